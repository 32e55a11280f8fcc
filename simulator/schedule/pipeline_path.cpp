#include "simulator/schedule/pipeline_path.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

namespace {

constexpr std::size_t kinds = 3; // of passes
constexpr std::uint32_t nobody = 0xFFFFFFFFU;

/// Seconds of one pass.
double seconds_of(const ChunkPass& pass, PassKind kind, bool split) {
    switch (kind) {
        case PassKind::forward:
            return pass.forward.value();
        case PassKind::backward:
            return (split ? pass.backward - pass.weight : pass.backward).value();
        case PassKind::weight:
            return pass.weight.value();
    }
    return 0.0;
}

/// Plays the order of a pipeline, pass by pass, and walks back along what was waited for.
class PassPlayer {
public:
    PassPlayer(const PipelineShape& shape, const PipelinePasses& passes)
        : shape_(shape),
          passes_(passes),
          order_(pipeline_order(shape, passes.lengths)),
          chunks_(static_cast<std::size_t>(shape.chunks)),
          way_(way_length(shape)) {
        for (std::size_t run = 0; run < passes.runs.size(); ++run)
            run_of_.insert(run_of_.end(), static_cast<std::size_t>(passes.runs[run].count), run);
        const bool split = splits_backward(shape.kind);
        for (const ChunkPass& chunk : passes.chunks) {
            for (std::size_t k = 0; k < kinds; ++k)
                seconds_.push_back(seconds_of(chunk, static_cast<PassKind>(k), split));
        }
        for (std::size_t s = 0; s < order_.size(); ++s) {
            first_.push_back(stage_of_.size());
            stage_of_.insert(stage_of_.end(), order_[s].size(), static_cast<std::uint32_t>(s));
        }
        const std::size_t tasks = stage_of_.size();
        first_.push_back(tasks);
        finish_.assign(tasks, 0.0);
        cause_.assign(tasks, nobody);
        done_.assign(2 * way_ * static_cast<std::size_t>(shape.micro_batches), nobody);
        play();
    }

    [[nodiscard]] PipelinePath longest() const {
        PipelinePath out;
        out.passes.assign(passes_.runs.size() * chunks_ * kinds, 0.0);
        const bool step_apart =
            shape_.kind == ScheduleKind::zb_h2 || shape_.kind == ScheduleKind::zb_v;
        double most = -1.0;
        std::size_t stage = 0;
        for (std::size_t s = 0; s < order_.size(); ++s) {
            const double begin = finish_[first_[s]] - seconds_[count_of(first_[s])];
            const double span = finish_[first_[s + 1] - 1] - (step_apart ? begin : 0.0);
            if (span > most) {
                most = span;
                stage = s;
            }
        }
        add(static_cast<std::uint32_t>(first_[stage + 1] - 1), 1.0, out);
        const std::uint32_t before = cause_[first_[stage]];
        if (step_apart && before != nobody) {
            add(before, -1.0, out);
            out.hops -= 1.0; // from there to the first pass
        }
        return out;
    }

private:
    [[nodiscard]] const ScheduledPass& pass_of(std::size_t task) const {
        const std::size_t stage = stage_of_[task];
        return order_[stage][task - first_[stage]];
    }
    /// Which passes it is one of, as in PipelinePath::passes.
    [[nodiscard]] std::size_t count_of(std::size_t task) const {
        const ScheduledPass& pass = pass_of(task);
        const std::size_t run = run_of_[stage_of_[task]];
        return (run * chunks_ + static_cast<std::size_t>(pass.chunk)) * kinds +
               static_cast<std::size_t>(pass.kind);
    }
    /// Where the pass of a micro-batch at a step of its way is noted.
    [[nodiscard]] std::size_t place(bool forward, std::int32_t micro_batch,
                                    std::size_t step) const {
        return (static_cast<std::size_t>(micro_batch) * 2 + (forward ? 0 : 1)) * way_ + step;
    }
    /// Whether what a pass works on is there; `task`: the pass that made it, if one did.
    bool is_ready(const ScheduledPass& pass, std::size_t stage, std::uint32_t& task) const {
        task = nobody;
        const std::size_t step =
            step_on_way(shape_, {static_cast<std::int32_t>(stage), pass.chunk});
        const bool turns = step + 1 == way_;
        if (pass.kind == PassKind::forward) {
            if (step == 0) return true;
            task = done_[place(true, pass.micro_batch, step - 1)];
        } else if (pass.kind == PassKind::backward) {
            task = done_[place(turns, pass.micro_batch, turns ? step : step + 1)];
        } else {
            task = done_[place(false, pass.micro_batch, step)];
        }
        return task != nobody;
    }

    void play() {
        std::vector<std::size_t> next(order_.size(), 0);
        std::vector<std::size_t> open;
        for (std::size_t s = order_.size(); s-- > 0;)
            open.push_back(s);
        // A stage that waits is looked at again when a neighbour has gone on.
        while (!open.empty()) {
            const std::size_t stage = open.back();
            open.pop_back();
            bool moved = false;
            while (next[stage] < order_[stage].size()) {
                const ScheduledPass& pass = order_[stage][next[stage]];
                std::uint32_t before = nobody;
                if (!is_ready(pass, stage, before)) break;
                run(first_[stage] + next[stage], before);
                ++next[stage];
                moved = true;
            }
            if (!moved) continue;
            for (const std::size_t other :
                 {stage + 1, stage - 1, order_.size() - 1, std::size_t{0}}) {
                if (other < order_.size() && other != stage && next[other] < order_[other].size())
                    open.push_back(other);
            }
        }
    }
    void run(std::size_t task, std::uint32_t before) {
        const std::size_t stage = stage_of_[task];
        double at = 0.0;
        if (task > first_[stage]) {
            at = finish_[task - 1];
            cause_[task] = static_cast<std::uint32_t>(task - 1);
        }
        if (before != nobody) {
            const double hop = stage_of_[before] == stage ? 0.0 : passes_.hop.value();
            if (finish_[before] + hop > at || task == first_[stage]) {
                at = finish_[before] + hop;
                cause_[task] = before;
            }
        }
        finish_[task] = at + seconds_[count_of(task)];
        const ScheduledPass& pass = pass_of(task);
        if (pass.kind == PassKind::weight) return;
        const std::size_t step =
            step_on_way(shape_, {static_cast<std::int32_t>(stage), pass.chunk});
        done_[place(pass.kind == PassKind::forward, pass.micro_batch, step)] =
            static_cast<std::uint32_t>(task);
    }
    /// The passes and hops up to the end of a task, `times` each.
    void add(std::uint32_t task, double times, PipelinePath& out) const {
        for (; task != nobody; task = cause_[task]) {
            out.passes[count_of(task)] += times;
            const std::uint32_t before = cause_[task];
            if (before != nobody && stage_of_[before] != stage_of_[task]) out.hops += times;
        }
    }

    PipelineShape shape_;
    const PipelinePasses& passes_;
    std::vector<std::vector<ScheduledPass>> order_;
    std::size_t chunks_;
    std::size_t way_;
    std::vector<std::size_t> run_of_;     ///< by stage
    std::vector<double> seconds_;         ///< as PipelinePath::passes
    std::vector<std::size_t> first_;      ///< task of a stage, and one past the last
    std::vector<std::uint32_t> stage_of_; ///< by task
    std::vector<double> finish_;          ///< by task
    std::vector<std::uint32_t> cause_;    ///< by task: what it waited for
    std::vector<std::uint32_t> done_;     ///< by `place`
};

/// Gives every run its chunks.
void fill_chunks(const PipelinePasses& passes, const PipelineShape& shape, PipelinePasses& out) {
    out.runs = passes.runs;
    out.hop = passes.hop;
    out.lengths = passes.lengths;
    out.chunks = passes.chunks;
    if (!passes.chunks.empty()) return;
    // all that come to a stage visit each of its chunks, or one of two
    const double visits =
        static_cast<double>(way_length(shape)) / static_cast<double>(shape.stages);
    const double each = 1.0 / visits;
    for (const StageRun& run : passes.runs) {
        const StagePass& p = run.pass;
        out.chunks.insert(out.chunks.end(), static_cast<std::size_t>(shape.chunks),
                          {each * p.forward, each * (p.backward_input + p.backward_weight),
                           each * p.backward_weight});
    }
}

double length_of(const PipelinePath& path, const PipelinePasses& passes, bool split) {
    double sum = path.hops * passes.hop.value();
    std::size_t at = 0;
    for (const ChunkPass& chunk : passes.chunks) {
        for (std::size_t k = 0; k < kinds; ++k)
            sum += path.passes[at++] * seconds_of(chunk, static_cast<PassKind>(k), split);
    }
    return sum;
}

} // namespace

PipelinePath longest_path(const PipelineShape& shape, const PipelinePasses& passes) {
    return PassPlayer(shape, passes).longest();
}

void PlayedPaths::fill_key(const PipelineShape& shape, const PipelinePasses& passes) {
    const bool split = splits_backward(shape.kind);
    double most = 0.0;
    for (const ChunkPass& chunk : passes.chunks) {
        most =
            std::max({most, chunk.forward.value(), seconds_of(chunk, PassKind::backward, split)});
    }
    const double unit = most > 0.0 ? most / parts : 1.0;
    const auto whole = [&](Seconds seconds) {
        return static_cast<std::int32_t>(std::lround(seconds.value() / unit));
    };
    key_.assign({static_cast<std::int32_t>(shape.kind), shape.stages, shape.chunks,
                 shape.micro_batches, passes.lengths.forward, passes.lengths.backward,
                 passes.lengths.weight, whole(passes.hop)});
    round_.runs = passes.runs;
    round_.lengths = passes.lengths;
    round_.hop = Seconds(key_.back());
    round_.chunks.clear();
    for (const StageRun& run : passes.runs)
        key_.push_back(static_cast<std::int32_t>(run.count));
    for (const ChunkPass& chunk : passes.chunks) {
        const std::int32_t forward = whole(chunk.forward);
        const std::int32_t weight = whole(chunk.weight);
        const std::int32_t backward = whole(chunk.backward - chunk.weight);
        key_.insert(key_.end(), {forward, backward, weight});
        round_.chunks.push_back({Seconds(forward), Seconds(backward + weight), Seconds(weight)});
    }
}

const PipelinePath& PlayedPaths::path(const PipelineShape& shape) {
    std::size_t hash = 0;
    for (const std::int32_t part : key_)
        hash = hash_mix(hash, static_cast<std::uint32_t>(part));
    if (const PipelinePath* known = known_.find(key_, hash)) return *known;
    PipelinePath made = longest_path(shape, round_);
    PipelinePath& out = known_.take(key_, hash);
    out = std::move(made);
    return out;
}

double PlayedPaths::seconds(ScheduleKind kind, const PipelinePasses& passes,
                            std::int64_t micro_batches, std::int64_t chunks) {
    std::int64_t stages = 0;
    for (const StageRun& run : passes.runs)
        stages += run.count;
    const bool split = splits_backward(kind);
    PipelineShape shape{kind, static_cast<std::int32_t>(stages), static_cast<std::int32_t>(chunks),
                        static_cast<std::int32_t>(micro_batches)};
    // Orders that are written down repeat themselves, stage after stage; others never quite do.
    const auto each = 3 * static_cast<std::int64_t>(way_length(shape));
    const bool repeats = !order_is_found(shape);
    const std::int64_t most = repeats ? 4 * stages : std::max(4 * stages, most_passes / each);
    const std::int64_t less = repeats ? 3 * stages : most / 2;
    shape.micro_batches = static_cast<std::int32_t>(std::min(micro_batches, most));
    fill_chunks(passes, shape, whole_);
    fill_key(shape, whole_);
    double out = length_of(path(shape), whole_, split);
    if (micro_batches > most) {
        shape.micro_batches = static_cast<std::int32_t>(less);
        key_[3] = shape.micro_batches;
        const double part = length_of(path(shape), whole_, split);
        double more = (out - part) / static_cast<double>(most - less);
        // in whole parts another stage may look as slow as the slowest
        for (const StageRun& run : passes.runs)
            more = std::max(more, run.pass.total().value());
        out += more * static_cast<double>(micro_batches - most);
    }
    return out;
}

} // namespace shardplan::sim
