#include "simulator/schedule/bubble.hpp"

#include <algorithm>

#include "simulator/schedule/pass_order.hpp"

namespace shardplan::sim {

namespace {

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
            // In between the path may go down and back every k + 1 micro-batches: where messages
            // take so long, or later stages, that as many in flight do not cover it.
            const std::int64_t rounds = (m - 1) / (after + 1) - 1;
            const double again =
                rounds > 0 ? static_cast<double>(rounds) * positive(away - k * t) : 0.0;
            const double seconds = before + inside * (t + hops) + static_cast<double>(m) * t +
                                   waits(away, k * f, k * b, m - 1 > after) + again;
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

    [[nodiscard]] std::size_t count() const { return chunks_; }
    [[nodiscard]] std::size_t last() const { return chunks_ - 1; }
    [[nodiscard]] std::size_t end() const { return passes_.runs.size() - 1; }

private:
    const PipelinePasses& passes_;
    std::size_t chunks_;
};

/// Ways through the rounds of one direction.
struct Rounds {
    double group = 0.0;        ///< micro-batches of a group
    double arrival = 0.0;      ///< of the micro-batch at the next run
    std::vector<double>& ways; ///< by run: at its first and its last stage

    Rounds(double of_group, std::size_t runs, std::vector<double>& out)
        : group(of_group), ways(out) {
        ways.assign(2 * runs, 0.0);
    }
    /// On from one run to the next. `before`: a pass of the chunk before; 0: there is none.
    void go(std::size_t run, double before, double own, double stages, double hop) {
        double& first = ways[2 * run];
        double& last = ways[2 * run + 1];
        const double round = group * before;
        first = std::max(first + round, arrival);
        last = std::max(last + round, first + (stages - 1.0) * (own + hop));
        arrival = last + own + hop;
    }
};

/// The longest ways to the first micro-batch's last chunk, at the first and the last stage of every
/// run: each round with it through all stages, or through the passes of a group on one of them.
/// Read backwards, the same of the last micro-batch's way back. Both at once: neither waits for the
/// other.
void go_round(const PipelinePasses& passes, const Chunks& of, const MicroBatchGroups& groups,
              PipelineRoom& room) {
    const std::vector<StageRun>& runs = passes.runs;
    const double hop = passes.hop.value();
    Rounds out(static_cast<double>(groups.largest()), runs.size(), room.warm_up);
    Rounds back(static_cast<double>(groups.least), runs.size(), room.drain);
    for (std::size_t chunk = 0; chunk < of.count(); ++chunk) {
        for (std::size_t run = 0; run < runs.size(); ++run) {
            const auto stages = static_cast<double>(runs[run].count);
            const bool any = chunk > 0;
            out.go(run, any ? of.forward(run, chunk - 1) : 0.0, of.forward(run, chunk), stages,
                   hop);
            back.go(run, any ? of.backward(run, chunk - 1) : 0.0, of.backward(run, chunk), stages,
                    hop);
        }
    }
}

/// Passes on the ways between a stage and the last one.
struct Ways {
    double down = 0.0; ///< forward, last chunk, of the stages behind
    double up = 0.0;   ///< backward, the same
    double out = 0.0;  ///< backward, chunk 1 of the stages before, then chunk 0 of the last stage
    double in = 0.0;   ///< forward, chunk 0 of the last stage, then chunk 1 of the stages before
};

/// What a path along one stage waits for micro-batches that are away. The shortest stays are those
/// for the first micro-batch and the last one. Where the head makes the last stage the slowest
/// while it works on its last chunk and another one is the slowest otherwise, the longest path
/// stays there for a group at a time: it leaves with the last chunk's forward passes (`down`) or
/// with backward passes around to the chunk before (`out`), and comes back the same two ways.
/// Places of passes on the stage are counted from the first forward pass of the last chunk of the
/// group; the backward pass of a place is that of `late` places before.
class StageWaits {
public:
    /// `behind`: stages.
    StageWaits(const Chunks& of, std::size_t run, std::int64_t behind,
               const MicroBatchGroups& groups)
        : of_(of), run_(run), groups_(groups), g_(groups.largest()), late_(2 * behind) {}

    /// Seconds. `head`: passes of one micro-batch on the last chunk of the last stage.
    [[nodiscard]] double seconds(const Ways& ways, const ChunkPass& head, bool may_stay) const {
        const bool several = groups_.count > 1;
        const double away = ways.down + ways.up;
        // its next passes of that chunk, then of the group after it, or before
        const std::int64_t own_forward = std::min(late_, g_ - 1);
        const std::int64_t own_back = std::min(late_, groups_.least - 1);
        double work = static_cast<double>(own_forward) * of_.forward(run_, of_.last());
        double work_back = static_cast<double>(own_back) * of_.backward(run_, of_.last());
        if (several) {
            work += static_cast<double>(late_ - own_forward) * of_.forward(run_, 0);
            work_back += static_cast<double>(late_ - own_back) * of_.backward(run_, 0);
        }
        if (!several) return waits(away, work, work_back, late_ < g_ - 1);
        const double first = positive(away - work);
        const double last = positive(away - work_back);
        // later groups that are smaller are out of step with those before
        const std::int64_t alike = groups_.larger > 0 ? groups_.larger : groups_.count;
        double most = first + last;
        if (!may_stay || alike < 2) return most;
        const double stay = static_cast<double>(g_ - 1) * (head.forward + head.backward).value();
        const Skipped skipped = skip();
        for (const bool out : {false, true}) {
            for (const bool in : {false, true}) {
                if (!in_time(out, in)) continue;
                const double leaves = out ? ways.out + head.forward.value() : ways.down;
                const double comes = in ? ways.in + head.backward.value() : ways.up;
                const double own = skipped.forward + skipped.backward(in);
                // the first group has no backward passes before it, the last one nothing after it
                const double begin = stay + ways.down + comes - own - skipped.after(in);
                const double between =
                    stay + leaves + comes - own - skipped.after(in) - skipped.before(out);
                const double end = stay + leaves + ways.up - skipped.forward -
                                   skipped.backward(false) - skipped.before(out);
                most = std::max(most, std::max(first, begin) +
                                          static_cast<double>(alike - 2) * positive(between) +
                                          (groups_.larger > 0 ? last : std::max(last, end)));
            }
        }
        return most;
    }

private:
    /// Seconds of the passes of the stage that the path leaves out for a group.
    struct Skipped {
        double forward = 0.0;       ///< of the last chunk, after the first
        double forward_out = 0.0;   ///< before that, from where it left by `out`; may be negative
        double forward_up = 0.0;    ///< of the group after it, to where it comes back by `up`
        double forward_in = 0.0;    ///< the same by `in`
        double backward_down = 0.0; ///< of the group before it, from where it left by `down`
        double backward_out = 0.0;  ///< the same by `out`
        double backward_up = 0.0;   ///< of this group, to where it comes back by `up`
        double backward_in = 0.0;   ///< the same by `in`

        [[nodiscard]] double backward(bool in) const { return in ? backward_in : backward_up; }
        [[nodiscard]] double after(bool in) const { return in ? forward_in : forward_up; }
        [[nodiscard]] double before(bool out) const {
            return out ? forward_out + backward_out : backward_down;
        }
    };

    [[nodiscard]] Skipped skip() const {
        const std::size_t last = of_.last();
        const std::size_t before = last > 0 ? last - 1 : 0;
        const double f = of_.forward(run_, last);
        const double b = of_.backward(run_, last);
        const auto g = static_cast<double>(g_);
        const auto late = static_cast<double>(late_);
        const double near = std::min(late, g);
        const double far = late - near;
        Skipped out;
        out.forward = (g - 1.0) * f;
        out.forward_out =
            late < g ? (g - late) * of_.forward(run_, before) + f : (g + 1.0 - late) * f;
        out.forward_up = near * of_.forward(run_, 0) + far * of_.forward(run_, 1);
        out.forward_in = g * of_.forward(run_, 0);
        out.backward_down = near * of_.backward(run_, 0) + far * of_.backward(run_, 1);
        out.backward_out = g * of_.backward(run_, 0);
        out.backward_up = (g - 1.0) * b;
        out.backward_in =
            late < g ? g * b + (g - late) * of_.backward(run_, before) : (2.0 * g - late) * b;
        return out;
    }
    /// Is the path back on the stage before it leaves again?
    [[nodiscard]] bool in_time(bool out, bool in) const {
        const auto v = static_cast<std::int64_t>(of_.count());
        if (out != in) return true;
        return out ? 3 * g_ + 1 - late_ <= v * g_ : late_ <= (v - 1) * g_;
    }

    const Chunks& of_;
    std::size_t run_;
    const MicroBatchGroups& groups_;
    std::int64_t g_;
    std::int64_t late_;
};

/// Is a stage slower than the last one with any chunk? If not, a path along it is never longer than
/// one along the last stage.
bool is_slower_than_end(const Chunks& of, std::size_t run) {
    const std::size_t end = of.end();
    for (std::size_t chunk = 0; chunk <= of.last(); ++chunk) {
        if (of.forward(run, chunk) + of.backward(run, chunk) >
            of.forward(end, chunk) + of.backward(end, chunk)) {
            return true;
        }
    }
    return false;
}

double interleaved_path(const PipelinePasses& passes, std::int64_t stages,
                        std::int64_t micro_batches, std::int64_t chunks, PipelineRoom& room) {
    const Chunks of(passes, chunks);
    const auto v = static_cast<std::size_t>(chunks);
    const MicroBatchGroups groups = groups_of(stages, micro_batches);
    const auto first_group = static_cast<double>(groups.largest());
    const auto last_group = static_cast<double>(groups.least);
    const auto m = static_cast<double>(micro_batches);
    const double hop = passes.hop.value();
    const auto forward = [&](std::size_t run, std::size_t chunk) { return of.forward(run, chunk); };
    const auto back = [&](std::size_t run, std::size_t chunk) { return of.backward(run, chunk); };
    go_round(passes, of, groups, room);
    const std::size_t end = passes.runs.size() - 1;
    const ChunkPass head{Seconds(forward(end, v - 1)), Seconds(back(end, v - 1)), Seconds{}};
    Ways ways; // of the run and all after it, and of all before it
    for (std::size_t run = 0; run <= end; ++run) {
        const auto count = static_cast<double>(passes.runs[run].count);
        ways.down += count * (forward(run, v - 1) + hop);
        ways.up += count * (back(run, v - 1) + hop);
    }
    ways.out = back(end, 0) + hop;
    ways.in = forward(end, 0) + hop;
    double longest = 0.0;
    std::int64_t first = 0;
    for (std::size_t run = 0; run <= end; ++run) {
        const StagePass& pass = passes.runs[run].pass;
        const double f = forward(run, v - 1);
        const double b = back(run, v - 1);
        const double other_forward = pass.forward.value() - f;
        const double other_back = (pass.backward_input + pass.backward_weight).value() - b;
        const double work =
            m * (f + b) + (m - first_group) * other_forward + (m - last_group) * other_back;
        const bool may_stay = run != end && is_slower_than_end(of, run);
        const std::int64_t count = passes.runs[run].count;
        const auto through = [&](std::int64_t inside, std::size_t side) {
            const auto before = static_cast<double>(inside);
            Ways own = ways;
            own.down = positive(own.down - (before + 1.0) * (f + hop));
            own.up = positive(own.up - (before + 1.0) * (b + hop));
            own.out += before * (back(run, 1) + hop);
            own.in += before * (forward(run, 1) + hop);
            const StageWaits waits(of, run, stages - 1 - first - inside, groups);
            longest =
                std::max(longest, work + waits.seconds(own, head, may_stay) +
                                      room.warm_up[2 * run + side] + room.drain[2 * run + side]);
        };
        through(0, 0);
        if (count > 1) through(count - 1, 1);
        const auto all = static_cast<double>(count);
        ways.down -= all * (f + hop);
        ways.up -= all * (b + hop);
        ways.out += all * (back(run, 1) + hop);
        ways.in += all * (forward(run, 1) + hop);
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
    } else if (schedule == ScheduleKind::zb_h1 && micro_batches >= p && v == 1) {
        seconds = zb_h1_path(passes, p, micro_batches);
    } else if (schedule == ScheduleKind::interleaved) {
        seconds = interleaved_path(passes, p, micro_batches, v, room);
    } else {
        seconds = room.played.seconds(schedule, passes, micro_batches, v);
    }
    out.bubble = Seconds(positive(seconds - work.value()));
    out.total = work + out.bubble;
    return out;
}

PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks) {
    PipelinePasses passes;
    passes.runs.reserve(stages.size());
    StagePass slowest;
    for (const StagePass& stage : stages) {
        passes.runs.push_back({stage, 1});
        if (stage.total() > slowest.total()) slowest = stage;
    }
    passes.lengths = lengths_of(slowest.forward.value(), slowest.backward_input.value(),
                                slowest.backward_weight.value());
    PipelineRoom room;
    return pipeline_time(schedule, passes, micro_batches, chunks, room);
}

} // namespace shardplan::sim
