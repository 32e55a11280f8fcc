#include "simulator/schedule/bubble.hpp"

#include <algorithm>

#include "simulator/schedule/pass_order.hpp"

namespace shardplan::sim {

namespace {

/// Share of the bubbles for which a schedule has weight gradients to fill them with, of those it
/// could fill: the last micro-batch's come too late, and `wanted` others fill them all.
double filled(std::int64_t micro_batches, std::int64_t wanted) {
    return wanted > 0
               ? std::min(1.0, static_cast<double>(micro_batches - 1) / static_cast<double>(wanted))
               : 1.0;
}

/// What a stage that is not the slowest adds to the fill and drain of the pipeline.
double share_of(ScheduleKind schedule, const StagePass& s, std::int64_t others,
                std::int64_t micro_batches) {
    const double f = s.forward.value();
    const double b = s.backward_input.value();
    const double w = s.backward_weight.value() *
                     filled(micro_batches, schedule == ScheduleKind::zb_h2 ? 2 * others : others);
    switch (schedule) {
        case ScheduleKind::zb_h2:
            return std::max(0.0, f + b - 2.0 * w);
        case ScheduleKind::zb_v:
            return std::max(0.0, f + b - 2.0 * w) / 2.0;
        case ScheduleKind::dual_pipe:
            return 0.0;
        case ScheduleKind::gpipe:
        case ScheduleKind::one_f_one_b:
        case ScheduleKind::interleaved:
        case ScheduleKind::zb_h1:
            break;
    }
    return s.total().value();
}

/// Waiting that depends on the whole pipeline and is not a sum over stages.
double common_share(ScheduleKind schedule, const StagePass& slowest, std::int64_t stages,
                    std::int64_t micro_batches) {
    const auto p = static_cast<double>(stages);
    if (schedule == ScheduleKind::dual_pipe) {
        const double f = slowest.forward.value();
        const double b = slowest.backward_input.value();
        const double w = slowest.backward_weight.value() * filled(micro_batches, stages / 2 - 1);
        return std::max(0.0, p / 2.0 - 1.0) * std::max(0.0, f + 2.0 * b - w);
    }
    return 0.0;
}

/// The slowest stage and a share of every other one.
double by_shares(ScheduleKind schedule, const PipelinePasses& passes, std::size_t slowest,
                 std::int64_t stages, std::int64_t micro_batches) {
    double bubble = 0.0;
    for (std::size_t i = 0; i < passes.runs.size(); ++i) {
        const StageRun& run = passes.runs[i];
        const std::int64_t others = run.count - (i == slowest ? 1 : 0);
        bubble +=
            static_cast<double>(others) * share_of(schedule, run.pass, stages - 1, micro_batches);
    }
    const StagePass& most = passes.runs[slowest].pass;
    return static_cast<double>(micro_batches) * most.total().value() + bubble +
           common_share(schedule, most, stages, micro_batches);
}

double positive(double seconds) { return std::max(0.0, seconds); }

/// Both directions are a flow shop of equal jobs.
double gpipe_path(const PipelinePasses& passes, std::int64_t micro_batches) {
    double all = -2.0 * passes.hop.value(); // one message less than stages each way
    double longest_forward = 0.0;
    double longest_backward = 0.0;
    for (const StageRun& run : passes.runs) {
        const double f = run.pass.forward.value();
        const double b = (run.pass.backward_input + run.pass.backward_weight).value();
        all += static_cast<double>(run.count) * (f + b + 2.0 * passes.hop.value());
        longest_forward = std::max(longest_forward, f);
        longest_backward = std::max(longest_backward, b);
    }
    return all + static_cast<double>(micro_batches - 1) * (longest_forward + longest_backward);
}

/// Both waits of a stage for micro-batches that are away for `away`: for the first to come back,
/// with `forward` of work meanwhile, and for the last, with `backward`. `apart`: some backward pass
/// comes before the last forward one, so that one path waits twice.
double waits(double away, double forward, double backward, bool apart) {
    const double first = positive(away - forward);
    const double last = positive(away - backward);
    return apart ? first + last : std::max(first, last);
}

double one_f_one_b_path(const PipelinePasses& passes, std::int64_t stages,
                        std::int64_t micro_batches) {
    const double hops = 2.0 * passes.hop.value();
    double behind = 0.0; // this run and all after it
    for (const StageRun& run : passes.runs)
        behind += static_cast<double>(run.count) * (run.pass.total().value() + hops);
    const std::int64_t p = stages;
    const std::int64_t m = micro_batches;
    double before = 0.0;
    double longest = 0.0;
    std::int64_t first = 0;
    for (const StageRun& run : passes.runs) {
        const double f = run.pass.forward.value();
        const double b = (run.pass.backward_input + run.pass.backward_weight).value();
        const double t = f + b;
        const auto through = [&](std::int64_t stage) {
            const auto inside = static_cast<double>(stage - first);
            const std::int64_t after = p - 1 - stage;
            const auto k = static_cast<double>(std::min(after, m - 1));
            const double away = behind - (inside + 1.0) * (t + hops);
            const double seconds = before + inside * (t + hops) + static_cast<double>(m) * t +
                                   waits(away, k * f, k * b, m - 1 > after);
            longest = std::max(longest, seconds);
        };
        // Convex in the stage within a run, but for where the micro-batches get fewer than the
        // stages behind.
        const std::int64_t last = first + run.count - 1;
        through(first);
        if (run.count > 1) through(last);
        for (const std::int64_t bend : {p - m, p - m + 1}) {
            if (bend > first && bend < last) through(bend);
        }
        before += static_cast<double>(run.count) * (t + hops);
        behind -= static_cast<double>(run.count) * (t + hops);
        first = last + 1;
    }
    return longest;
}

/// In the order of `pipeline_order`: on stage s the weight pass of micro-batch j follows the
/// backward pass of j + s.
double zb_h1_path(const PipelinePasses& passes, std::int64_t stages, std::int64_t micro_batches) {
    const double hop = passes.hop.value();
    const std::int64_t p = stages;
    const std::int64_t m = micro_batches;
    double away = 0.0;
    for (const StageRun& run : passes.runs) {
        away +=
            static_cast<double>(run.count) * (run.pass.forward + run.pass.backward_input).value();
        away += static_cast<double>(run.count) * 2.0 * hop;
    }
    double longest = 0.0;
    double fill = 0.0;
    double drain = 0.0; // from the end of the last backward pass of the stage
    std::int64_t stage = 0;
    for (const StageRun& run : passes.runs) {
        const double f = run.pass.forward.value();
        const double b = run.pass.backward_input.value();
        const double w = run.pass.backward_weight.value();
        for (std::int64_t i = 0; i < run.count; ++i, ++stage) {
            away -= f + b + 2.0 * hop;
            const std::int64_t after = p - 1 - stage;
            const std::int64_t k = std::min(after, m - 1);
            // weight passes between the last forward pass and its backward one
            const std::int64_t filling = std::clamp<std::int64_t>(m - 1 - stage, 0, k);
            const double left = static_cast<double>(std::min(stage, m - 1) + 1) * w;
            drain = std::max(drain, left);
            const double work = static_cast<double>(m) * (f + b + w) - left;
            const double waited =
                waits(positive(away), static_cast<double>(k) * f,
                      static_cast<double>(k) * b + static_cast<double>(filling) * w, m - 1 > after);
            longest = std::max(longest, fill + work + waited + drain);
            fill += f + hop;
            drain += b + hop;
        }
    }
    return longest;
}

/// Passes of the chunks of all runs, equal unless told.
class Chunks {
public:
    Chunks(const PipelinePasses& passes, std::int64_t chunks)
        : passes_(passes), chunks_(static_cast<std::size_t>(chunks)) {}

    [[nodiscard]] double forward(std::size_t run, std::size_t chunk) const {
        if (!passes_.chunks.empty()) return passes_.chunks[run * chunks_ + chunk].forward.value();
        return passes_.runs[run].pass.forward.value() / static_cast<double>(chunks_);
    }
    [[nodiscard]] double backward(std::size_t run, std::size_t chunk) const {
        if (!passes_.chunks.empty()) return passes_.chunks[run * chunks_ + chunk].backward.value();
        const StagePass& pass = passes_.runs[run].pass;
        return (pass.backward_input + pass.backward_weight).value() / static_cast<double>(chunks_);
    }

private:
    const PipelinePasses& passes_;
    std::size_t chunks_;
};

/// The longest way to the first micro-batch's last chunk, at the first and the last stage of every
/// run: each round with it through all stages, or through the passes of a group on one of them.
/// Read backwards, the same of the last micro-batch's way back. `pass(run, chunk)`: seconds.
template <class Pass>
void go_round(const PipelinePasses& passes, double group, std::size_t chunks, const Pass& pass,
              std::vector<double>& ways) {
    const std::vector<StageRun>& runs = passes.runs;
    const double hop = passes.hop.value();
    ways.assign(2 * runs.size(), 0.0);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        double arrival = chunk > 0 ? ways.back() + pass(runs.size() - 1, chunk - 1) + hop : 0.0;
        for (std::size_t run = 0; run < runs.size(); ++run) {
            const double round = chunk > 0 ? group * pass(run, chunk - 1) : 0.0;
            double& first = ways[2 * run];
            double& last = ways[2 * run + 1];
            const double own = pass(run, chunk);
            first = std::max(first + round, arrival);
            last = std::max(last + round,
                            first + static_cast<double>(runs[run].count - 1) * (own + hop));
            arrival = last + own + hop;
        }
    }
}

double interleaved_path(const PipelinePasses& passes, std::int64_t stages,
                        std::int64_t micro_batches, std::int64_t chunks, PipelineRoom& room) {
    const Chunks of(passes, chunks);
    const auto v = static_cast<std::size_t>(chunks);
    const MicroBatchGroups groups = groups_of(stages, micro_batches);
    const auto first_group = static_cast<double>(groups.largest());
    const auto last_group = static_cast<double>(groups.least);
    const auto m = static_cast<double>(micro_batches);
    const double hops = 2.0 * passes.hop.value();
    const auto forward = [&](std::size_t run, std::size_t chunk) { return of.forward(run, chunk); };
    const auto back = [&](std::size_t run, std::size_t chunk) { return of.backward(run, chunk); };
    go_round(passes, first_group, v, forward, room.warm_up);
    go_round(passes, last_group, v, back, room.drain);
    double behind = 0.0; // in the last chunk: this run and all after it
    for (std::size_t run = 0; run < passes.runs.size(); ++run) {
        behind += static_cast<double>(passes.runs[run].count) *
                  (forward(run, v - 1) + back(run, v - 1) + hops);
    }
    double longest = 0.0;
    std::int64_t first = 0;
    for (std::size_t run = 0; run < passes.runs.size(); ++run) {
        const double f = forward(run, v - 1);
        const double b = back(run, v - 1);
        double work = m * (f + b);
        for (std::size_t chunk = 0; chunk + 1 < v; ++chunk)
            work += (m - first_group) * forward(run, chunk) + (m - last_group) * back(run, chunk);
        const std::int64_t count = passes.runs[run].count;
        const auto through = [&](std::int64_t inside, std::size_t end) {
            // forward passes before the first comes back: of the last chunk, then of the next group
            const auto k = 2.0 * static_cast<double>(stages - 1 - first - inside);
            const double own_forward = std::min(k, first_group - 1.0);
            const double own_back = std::min(k, last_group - 1.0);
            const bool several = groups.count > 1;
            const double away = behind - static_cast<double>(inside + 1) * (f + b + hops);
            const double work_forward =
                own_forward * f + (several ? k - own_forward : 0.0) * forward(run, 0);
            const double work_back = own_back * b + (several ? k - own_back : 0.0) * back(run, 0);
            const double waited =
                waits(positive(away), work_forward, work_back, several || k < first_group - 1.0);
            longest = std::max(
                longest, work + waited + room.warm_up[2 * run + end] + room.drain[2 * run + end]);
        };
        through(0, 0);
        if (count > 1) through(count - 1, 1);
        behind -= static_cast<double>(count) * (f + b + hops);
        first += count;
    }
    return longest;
}

} // namespace

PipelineTime pipeline_time(ScheduleKind schedule, const PipelinePasses& passes,
                           std::int64_t micro_batches, std::int64_t chunks, PipelineRoom& room) {
    PipelineTime out;
    const std::vector<StageRun>& runs = passes.runs;
    if (runs.empty()) return out;
    std::size_t slowest = 0;
    std::int64_t p = 0; // stages
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].pass.total() > runs[slowest].pass.total()) {
            slowest = i;
            out.slowest_stage = p;
        }
        p += runs[i].count;
    }
    const Seconds work = static_cast<double>(micro_batches) * runs[slowest].pass.total();
    out.total = work;
    if (p == 1) return out;
    const std::int64_t v = std::max<std::int64_t>(1, chunks);
    double seconds = 0.0;
    if (schedule == ScheduleKind::gpipe) {
        seconds = gpipe_path(passes, micro_batches);
    } else if (schedule == ScheduleKind::one_f_one_b ||
               (schedule == ScheduleKind::interleaved && v == 1)) {
        seconds = one_f_one_b_path(passes, p, micro_batches);
    } else if (schedule == ScheduleKind::zb_h1) {
        seconds = zb_h1_path(passes, p, micro_batches);
    } else if (schedule == ScheduleKind::interleaved) {
        seconds = interleaved_path(passes, p, micro_batches, v, room);
    } else {
        seconds = by_shares(schedule, passes, slowest, p, micro_batches);
    }
    out.bubble = Seconds(positive(seconds - work.value()));
    out.total = work + out.bubble;
    return out;
}

PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks) {
    PipelinePasses passes;
    passes.runs.reserve(stages.size());
    for (const StagePass& stage : stages)
        passes.runs.push_back({stage, 1});
    PipelineRoom room;
    return pipeline_time(schedule, passes, micro_batches, chunks, room);
}

} // namespace shardplan::sim
