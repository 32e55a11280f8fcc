#include "simulator/schedule/pipeline_order.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "simulator/schedule/pass_order.hpp"

namespace shardplan::sim {

bool splits_backward(ScheduleKind kind) {
    switch (kind) {
        case ScheduleKind::gpipe:
        case ScheduleKind::one_f_one_b:
        case ScheduleKind::interleaved:
            return false;
        case ScheduleKind::zb_h1:
        case ScheduleKind::zb_h2:
        case ScheduleKind::zb_v:
        case ScheduleKind::dual_pipe:
            return true;
    }
    return false;
}

PassLengths lengths_of(double forward, double backward, double weight) {
    constexpr double parts = 32.0;
    const double most = std::max({forward, backward, weight});
    const auto length = [&](double of) {
        return most > 0.0 ? std::max(1, static_cast<std::int32_t>(std::lround(parts * of / most)))
                          : 1;
    };
    return {length(forward), length(backward), length(weight)};
}

namespace {

bool is_bidirectional(const PipelineShape& shape) {
    return shape.kind == ScheduleKind::dual_pipe && shape.chunks == 2;
}

/// Under dualpipe: which of the two directions a micro-batch takes.
std::int32_t direction_of(const PipelineShape& shape, std::int32_t micro_batch) {
    return micro_batch < (shape.micro_batches + 1) / 2 ? 0 : 1;
}

} // namespace

std::vector<Position> way_of(const PipelineShape& shape, std::int32_t micro_batch) {
    std::vector<Position> way;
    const auto visit = [&](std::int32_t chunk, bool down) {
        for (std::int32_t i = 0; i < shape.stages; ++i) {
            way.push_back({down ? shape.stages - 1 - i : i, chunk});
        }
    };
    if (is_bidirectional(shape)) {
        const std::int32_t direction = direction_of(shape, micro_batch);
        visit(direction, direction == 1);
        return way;
    }
    way.reserve(static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(shape.chunks));
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
        visit(chunk, shape.kind == ScheduleKind::zb_v && chunk % 2 == 1);
    }
    return way;
}

std::vector<std::int64_t> messages_sent(const PipelineShape& shape) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(shape.stages), 0);
    const auto send_along = [&](std::int32_t micro_batch, std::int64_t times) {
        const std::vector<Position> way = way_of(shape, micro_batch);
        for (std::size_t i = 1; i < way.size(); ++i) {
            const std::int32_t from = way[i - 1].stage;
            const std::int32_t to = way[i].stage;
            if (from == to) continue;
            out[static_cast<std::size_t>(from)] += times;
            out[static_cast<std::size_t>(to)] += times;
        }
    };
    // those of the first half go one way, those of the second perhaps another
    const std::int32_t second = shape.micro_batches / 2;
    send_along(0, shape.micro_batches - second);
    send_along(shape.micro_batches - 1, second);
    return out;
}

std::int32_t visits_of(ScheduleKind kind, std::int32_t chunks) {
    return kind == ScheduleKind::dual_pipe && chunks == 2 ? 1 : std::max(1, chunks);
}

std::size_t way_length(const PipelineShape& shape) {
    return static_cast<std::size_t>(shape.stages) *
           static_cast<std::size_t>(visits_of(shape.kind, shape.chunks));
}

std::size_t step_on_way(const PipelineShape& shape, const Position& at) {
    const bool down =
        at.chunk % 2 == 1 && (shape.kind == ScheduleKind::zb_v || is_bidirectional(shape));
    const std::int32_t step = down ? shape.stages - 1 - at.stage : at.stage;
    const std::int32_t before = is_bidirectional(shape) ? 0 : at.chunk * shape.stages;
    return static_cast<std::size_t>(before + step);
}

namespace {

/// How many micro-batches a stage may have begun and not finished.
struct Limits {
    std::int32_t to_backward = 0; ///< between F and B
    std::int32_t to_weight = 0;   ///< between F and W
};

/// A list scheduler over the lengths of passes, for schedules that split the backward pass.
class Greedy {
public:
    Greedy(const PipelineShape& shape, const PassLengths& lengths)
        : shape_(shape), lengths_(lengths) {
        const auto stages = static_cast<std::size_t>(shape.stages);
        orders_.resize(stages);
        stages_.resize(stages);
        ways_[0] = way_of(shape, 0);
        ways_[1] = way_of(shape, shape.micro_batches - 1);
        for (std::size_t s = 0; s < stages; ++s) {
            stages_[s].ready.resize(static_cast<std::size_t>(2 * shape.chunks));
            stages_[s].begun.assign(static_cast<std::size_t>(shape.chunks), 0);
            stages_[s].back.assign(static_cast<std::size_t>(shape.chunks), 0);
            stages_[s].done.assign(static_cast<std::size_t>(shape.chunks), 0);
        }
        for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
            arrive(PassKind::forward, m, 0);
        }
    }

    std::vector<std::vector<ScheduledPass>> run() {
        std::int64_t left =
            3 * static_cast<std::int64_t>(way_length(shape_)) * shape_.micro_batches;
        constexpr std::int64_t idle = std::numeric_limits<std::int64_t>::max();
        std::vector<std::int64_t> ends(orders_.size(), idle);
        for (std::int64_t now = 0; left > 0;) {
            // what ends now is there for all stages that choose now
            for (std::size_t s = 0; s < orders_.size(); ++s) {
                if (ends[s] != now) continue;
                ends[s] = idle;
                --left;
                finish(static_cast<std::int32_t>(s), orders_[s].back());
            }
            for (std::size_t s = 0; s < orders_.size(); ++s) {
                ScheduledPass pass;
                // nothing to choose from has come since it found nothing
                if (ends[s] != idle || !stages_[s].changed) continue;
                stages_[s].changed = false;
                if (!choose(static_cast<std::int32_t>(s), pass)) continue;
                orders_[s].push_back(pass);
                ends[s] = now + lengths_.of(pass.kind);
            }
            if (left > 0) now = *std::min_element(ends.begin(), ends.end());
        }
        return std::move(orders_);
    }

private:
    struct Waiting {
        std::vector<std::int32_t> micro_batches; ///< in the order they came
        std::size_t next = 0;
        [[nodiscard]] bool empty() const { return next == micro_batches.size(); }
    };
    struct StageState {
        std::vector<Waiting> ready; ///< by chunk: forward, then backward
        Waiting weights;            ///< indices into `weight_chunks` run along
        std::vector<std::int32_t> weight_chunks;
        std::vector<std::int32_t> begun, back, done; ///< passes by chunk
        bool changed = true;                         ///< something came, or a pass ended
    };

    [[nodiscard]] std::size_t slot(PassKind kind, std::int32_t chunk) const {
        return static_cast<std::size_t>(kind == PassKind::forward ? chunk : shape_.chunks + chunk);
    }

    void arrive(PassKind kind, std::int32_t m, std::size_t at) {
        const Position& p = way(m)[at];
        StageState& stage = stages_[static_cast<std::size_t>(p.stage)];
        stage.ready[slot(kind, p.chunk)].micro_batches.push_back(m);
        stage.changed = true;
    }

    [[nodiscard]] const std::vector<Position>& way(std::int32_t micro_batch) const {
        return ways_[is_bidirectional(shape_) && direction_of(shape_, micro_batch) == 1 ? 1 : 0];
    }

    [[nodiscard]] Limits limits(std::int32_t stage, std::int32_t chunk) const {
        const std::int32_t p = shape_.stages;
        const std::int32_t none = std::numeric_limits<std::int32_t>::max();
        switch (shape_.kind) {
            case ScheduleKind::zb_h1:
                return {p - stage, p};
            case ScheduleKind::zb_h2:
                return {2 * (p - stage) - 1, 2 * p - 1};
            case ScheduleKind::zb_v:
                return chunk == 0 ? Limits{p, p} : Limits{none, none};
            case ScheduleKind::dual_pipe:
                if (!is_bidirectional(shape_)) return {p - stage, p};
                return {chunk == 0 ? p - stage : stage + 1, p + 1};
            case ScheduleKind::gpipe:
            case ScheduleKind::one_f_one_b:
            case ScheduleKind::interleaved:
                break;
        }
        return {none, none};
    }

    [[nodiscard]] bool may_begin(std::int32_t stage, std::int32_t chunk) const {
        const StageState& s = stages_[static_cast<std::size_t>(stage)];
        const auto c = static_cast<std::size_t>(chunk);
        const Limits limit = limits(stage, chunk);
        return s.begun[c] - s.back[c] < limit.to_backward &&
               s.begun[c] - s.done[c] < limit.to_weight;
    }

    bool take(std::int32_t stage, PassKind kind, std::int32_t chunk, ScheduledPass& out) {
        StageState& s = stages_[static_cast<std::size_t>(stage)];
        Waiting& w = s.ready[slot(kind, chunk)];
        if (w.empty()) return false;
        out = {kind, chunk, w.micro_batches[w.next++]};
        const auto c = static_cast<std::size_t>(chunk);
        ++(kind == PassKind::forward ? s.begun[c] : s.back[c]);
        return true;
    }

    bool choose(std::int32_t stage, ScheduledPass& out) {
        for (std::int32_t c = shape_.chunks - 1; c >= 0; --c) {
            if (take(stage, PassKind::backward, c, out)) return true;
        }
        for (std::int32_t i = 0; i < shape_.chunks; ++i) {
            const std::int32_t c = shape_.chunks - 1 - i; // what has come far goes on
            if (may_begin(stage, c) && take(stage, PassKind::forward, c, out)) return true;
        }
        StageState& s = stages_[static_cast<std::size_t>(stage)];
        if (s.weights.empty()) return false;
        const std::int32_t chunk = s.weight_chunks[s.weights.next];
        out = {PassKind::weight, chunk, s.weights.micro_batches[s.weights.next++]};
        ++s.done[static_cast<std::size_t>(chunk)];
        return true;
    }

    /// What a finished pass sets free.
    void finish(std::int32_t stage, const ScheduledPass& pass) {
        stages_[static_cast<std::size_t>(stage)].changed = true;
        if (pass.kind == PassKind::weight) return;
        const std::size_t length = way_length(shape_);
        const std::size_t at = step_on_way(shape_, {stage, pass.chunk});
        if (pass.kind == PassKind::forward) {
            if (at + 1 < length) {
                arrive(PassKind::forward, pass.micro_batch, at + 1);
            } else {
                arrive(PassKind::backward, pass.micro_batch, at);
            }
            return;
        }
        StageState& s = stages_[static_cast<std::size_t>(stage)];
        s.weights.micro_batches.push_back(pass.micro_batch);
        s.weight_chunks.push_back(pass.chunk);
        if (at > 0) arrive(PassKind::backward, pass.micro_batch, at - 1);
    }

    PipelineShape shape_;
    PassLengths lengths_;
    std::array<std::vector<Position>, 2> ways_; ///< by direction
    std::vector<std::vector<ScheduledPass>> orders_;
    std::vector<StageState> stages_;
};

} // namespace

namespace {

/// The passes of one stage as they are put one after another, micro-batches of a chunk in order.
class StageOrder {
public:
    StageOrder(const PipelineShape& shape, std::vector<ScheduledPass>& out)
        : micro_batches_(shape.micro_batches), out_(out) {
        if (is_bidirectional(shape)) {
            // the second direction begins with the second half
            const std::int32_t half = (shape.micro_batches + 1) / 2;
            for (auto* next : {&forward_, &backward_})
                (*next)[1] = half;
        }
    }

    void forward(std::int32_t chunk) { put(PassKind::forward, chunk, forward_[index(chunk)]++); }
    void backward(std::int32_t chunk) {
        waiting_.push_back({PassKind::weight, chunk, backward_[index(chunk)]});
        put(PassKind::backward, chunk, backward_[index(chunk)]++);
    }
    /// With its weight pass.
    void whole_backward(std::int32_t chunk) {
        backward(chunk);
        const ScheduledPass weight = waiting_.back();
        waiting_.pop_back();
        put(weight.kind, weight.chunk, weight.micro_batch);
    }
    /// The weight pass that waits longest.
    void weight() { take(0); }
    /// The same of a chunk; false: none does.
    bool weight_of(std::int32_t chunk) {
        for (std::size_t i = 0; i < waiting_.size(); ++i) {
            if (waiting_[i].chunk != chunk) continue;
            take(i);
            return true;
        }
        return false;
    }
    [[nodiscard]] std::int32_t forwards(std::int32_t chunk) const { return forward_[index(chunk)]; }

private:
    static std::size_t index(std::int32_t chunk) { return static_cast<std::size_t>(chunk); }
    void put(PassKind kind, std::int32_t chunk, std::int32_t micro_batch) {
        // an order for more micro-batches than there are
        if (micro_batch < micro_batches_) out_.push_back({kind, chunk, micro_batch});
    }
    void take(std::size_t at) {
        const ScheduledPass pass = waiting_[at];
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
        put(pass.kind, pass.chunk, pass.micro_batch);
    }

    std::int32_t micro_batches_;
    std::vector<ScheduledPass>& out_;
    std::array<std::int32_t, 2> forward_{};
    std::array<std::int32_t, 2> backward_{};
    std::vector<ScheduledPass> waiting_; ///< weight passes
};

/// One stage of ZB-V, as torch.distributed.pipelining's ScheduleZBVZeroBubble has it.
void order_zb_v(const PipelineShape& shape, std::int32_t stage, std::vector<ScheduledPass>& out) {
    StageOrder order(shape, out);
    const auto times = [](std::int32_t count, const auto& what) {
        for (std::int32_t i = 0; i < count; ++i)
            what();
    };
    const std::int32_t behind = shape.stages - stage; // and itself
    const std::int32_t micro_batches = std::max(2 * shape.stages - 1, shape.micro_batches);
    times(2 * behind - 1, [&] { order.forward(0); });
    times(stage, [&] {
        order.forward(1);
        order.forward(0);
    });
    times(behind, [&] {
        order.forward(1);
        order.whole_backward(1);
    });
    while (order.forwards(1) < order.forwards(0) || order.forwards(0) < micro_batches) {
        if (order.forwards(0) < micro_batches) order.forward(0);
        order.whole_backward(0);
        order.forward(1);
        order.whole_backward(1);
    }
    times(stage, [&] {
        order.backward(0);
        order.backward(1);
    });
    times(behind, [&] {
        order.backward(0);
        order.weight_of(0);
    });
    for (const std::int32_t chunk : {1, 0}) {
        while (order.weight_of(chunk)) {
        }
    }
}

/// One stage of DualPipe, as DeepSeek's program has it. Seen from a stage of the first half; for
/// one of the second half the directions change places.
void order_dual_pipe(const PipelineShape& shape, std::int32_t stage,
                     std::vector<ScheduledPass>& out) {
    StageOrder order(shape, out);
    const bool second = stage >= shape.stages / 2;
    const std::int32_t outer = second ? shape.stages - 1 - stage : stage; // stages further out
    const std::int32_t inner = shape.stages / 2 - outer - 1;
    const std::int32_t own = second ? 1 : 0;
    const std::int32_t other = 1 - own;
    for (std::int32_t i = 0; i < 2 * inner; ++i)
        order.forward(own);
    for (std::int32_t i = 0; i <= outer; ++i) {
        order.forward(own);
        order.forward(other);
    }
    for (std::int32_t i = 0; i < inner; ++i) {
        order.backward(other);
        order.weight();
        order.forward(other);
    }
    for (std::int32_t i = 0; i < shape.micro_batches / 2 - shape.stages + outer + 1; ++i) {
        order.forward(own);
        order.whole_backward(other);
        order.forward(other);
        order.whole_backward(own);
    }
    for (std::int32_t i = 0; i < inner; ++i) {
        order.whole_backward(other);
        order.forward(other);
        order.whole_backward(own);
    }
    // weight passes wait from half of these on
    for (std::int32_t i = 0; i < 2 * (outer + 1); ++i) {
        const std::int32_t chunk = i % 2 == 0 ? other : own;
        if (i <= outer) {
            order.whole_backward(chunk);
        } else {
            order.backward(chunk);
        }
    }
    for (std::int32_t i = 0; i < inner; ++i) {
        order.weight();
        order.backward(own);
    }
    for (std::int32_t i = 0; i <= outer; ++i)
        order.weight();
}

} // namespace

bool order_is_found(const PipelineShape& shape) {
    if (!splits_backward(shape.kind)) return false;
    switch (shape.kind) {
        case ScheduleKind::zb_v:
            return shape.chunks != 2;
        case ScheduleKind::dual_pipe:
            return shape.chunks != 2 || shape.stages % 2 != 0 || shape.micro_batches % 2 != 0 ||
                   shape.micro_batches < 2 * shape.stages;
        default:
            return shape.chunks != 1;
    }
}

std::vector<std::vector<ScheduledPass>> pipeline_order(const PipelineShape& shape,
                                                       const PassLengths& lengths) {
    if (order_is_found(shape)) return Greedy(shape, lengths).run();
    const bool split = splits_backward(shape.kind);
    std::vector<std::vector<ScheduledPass>> out;
    for (std::int32_t stage = 0; stage < shape.stages; ++stage) {
        std::vector<ScheduledPass>& order = out.emplace_back();
        if (shape.kind == ScheduleKind::zb_v) {
            order_zb_v(shape, stage, order);
            continue;
        }
        if (shape.kind == ScheduleKind::dual_pipe) {
            order_dual_pipe(shape, stage, order);
            continue;
        }
        const std::int32_t late = shape.kind == ScheduleKind::zb_h2 ? 2 * stage : stage;
        std::int32_t weights = 0;
        for (const Pass& pass :
             pass_order(shape.kind, shape.stages, stage, shape.chunks, shape.micro_batches)) {
            const auto chunk = static_cast<std::int32_t>(pass.chunk);
            const auto m = static_cast<std::int32_t>(pass.micro_batch);
            order.push_back({pass.forward ? PassKind::forward : PassKind::backward, chunk, m});
            if (split && !pass.forward && m >= late) {
                order.push_back({PassKind::weight, 0, weights++});
            }
        }
        while (split && weights < shape.micro_batches) {
            order.push_back({PassKind::weight, 0, weights++});
        }
    }
    return out;
}

} // namespace shardplan::sim
