#include "simulator/schedule/pipeline_order.hpp"

#include <algorithm>
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

std::size_t way_length(const PipelineShape& shape) {
    const std::int32_t visits = is_bidirectional(shape) ? 1 : shape.chunks;
    return static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(visits);
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
        for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
            ways_.push_back(way_of(shape, m));
        }
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
        std::int64_t left = 0;
        for (const auto& way : ways_) {
            left += static_cast<std::int64_t>(way.size()) * 3;
        }
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
                if (ends[s] != idle || !choose(static_cast<std::int32_t>(s), pass)) continue;
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
    };

    [[nodiscard]] std::size_t slot(PassKind kind, std::int32_t chunk) const {
        return static_cast<std::size_t>(kind == PassKind::forward ? chunk : shape_.chunks + chunk);
    }

    void arrive(PassKind kind, std::int32_t m, std::size_t at) {
        const Position& p = ways_[static_cast<std::size_t>(m)][at];
        stages_[static_cast<std::size_t>(p.stage)]
            .ready[slot(kind, p.chunk)]
            .micro_batches.push_back(m);
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
        if (pass.kind == PassKind::weight) return;
        const auto& way = ways_[static_cast<std::size_t>(pass.micro_batch)];
        const std::size_t at = step_on_way(shape_, {stage, pass.chunk});
        if (pass.kind == PassKind::forward) {
            if (at + 1 < way.size()) {
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
    std::vector<std::vector<Position>> ways_;
    std::vector<std::vector<ScheduledPass>> orders_;
    std::vector<StageState> stages_;
};

} // namespace

bool order_is_found(const PipelineShape& shape) {
    const bool late_weights =
        (shape.kind == ScheduleKind::zb_h1 || shape.kind == ScheduleKind::zb_h2) &&
        shape.chunks == 1;
    return splits_backward(shape.kind) && !late_weights;
}

std::vector<std::vector<ScheduledPass>> pipeline_order(const PipelineShape& shape,
                                                       const PassLengths& lengths) {
    if (order_is_found(shape)) return Greedy(shape, lengths).run();
    const bool split = splits_backward(shape.kind);
    std::vector<std::vector<ScheduledPass>> out;
    for (std::int32_t stage = 0; stage < shape.stages; ++stage) {
        std::vector<ScheduledPass>& order = out.emplace_back();
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
