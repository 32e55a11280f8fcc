#include "simulator/schedule/schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace shardplan::sim {

namespace {

/// Ids are 32 bits wide, and the last one says that there is none.
constexpr std::uint32_t none = 0xFFFFFFFFU;

/// What is common to the tasks of one pass.
struct PassContext {
    std::uint16_t stage = 0;
    std::uint16_t chunk = 0;
    std::uint32_t micro_batch = no_micro_batch;
    PassKind pass = PassKind::forward;
};

/// What the builder knows of a stage while its tasks are written.
struct StageState {
    std::uint32_t last_compute = none;
    std::uint32_t last_reduce = none;
    std::uint32_t last_pass = none;        ///< of compute before what runs once per step
    std::vector<std::uint32_t> blockers;   ///< the next task of compute waits for them
    std::vector<std::uint32_t> wrap_uses;  ///< last compute of every use of a wrap unit, in order
    std::vector<std::int32_t> bucket_left; ///< by micro-batch, then bucket: units without gradients
    std::vector<std::uint32_t> parameters; ///< by bucket: the task that gathers it ahead
    std::vector<std::int32_t> unit_base;   ///< by chunk: units of the stage before it
    std::int32_t units = 0;
    std::int32_t buckets = 1;
};

class Builder {
public:
    explicit Builder(const ScheduleInput& in)
        : in_(in), dp_(in.data_parallel), shape_(in.shape), split_(splits_backward(shape_.kind)) {
        out_.shape = in.shape;
        const std::size_t steps =
            static_cast<std::size_t>(shape_.stages) * static_cast<std::size_t>(shape_.chunks);
        for (auto* table : {&sent_, &received_}) {
            table->assign(2 * steps * static_cast<std::size_t>(shape_.micro_batches), none);
        }
        steps_ = steps;
        ways_ = {way_of(shape_, 0), way_of(shape_, shape_.micro_batches - 1)};
        way_length_ = way_length(shape_);
    }

    Result<Schedule> run() {
        const auto orders = pipeline_order(shape_, in_.lengths);
        stages_.resize(orders.size());
        for (std::size_t s = 0; s < orders.size(); ++s) {
            write_stage(static_cast<std::uint16_t>(s), orders[s]);
            if (static_cast<std::int64_t>(out_.size()) > in_.most_tasks) return too_many_tasks(in_);
        }
        join_messages();
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            write_tail(static_cast<std::uint16_t>(s));
        }
        write_dependencies();
        return std::move(out_);
    }

private:
    std::uint32_t add(TaskKind kind, StreamKind stream, const PassContext& c, std::size_t unit,
                      std::size_t part) {
        const auto id = static_cast<std::uint32_t>(out_.size());
        out_.kind.push_back(kind);
        out_.stream.push_back(stream);
        out_.stage.push_back(c.stage);
        out_.chunk.push_back(c.chunk);
        out_.unit.push_back(static_cast<std::uint16_t>(unit));
        out_.part.push_back(static_cast<std::uint16_t>(part));
        out_.pass.push_back(c.pass);
        out_.micro_batch.push_back(c.micro_batch);
        return id;
    }
    void depend(std::uint32_t task, std::uint32_t on) {
        if (on != none) edges_.emplace_back(task, on);
    }
    std::uint32_t add_compute(TaskKind kind, const PassContext& c, std::size_t unit,
                              std::size_t part) {
        StageState& stage = stages_[c.stage];
        const std::uint32_t id = add(kind, StreamKind::compute, c, unit, part);
        for (const std::uint32_t blocker : stage.blockers)
            depend(id, blocker);
        stage.blockers.clear();
        stage.last_compute = id;
        return id;
    }

    // --- messages ---------------------------------------------------------------------------

    std::uint32_t& entry(std::vector<std::uint32_t>& table, const PassContext& c,
                         std::size_t step) const {
        const std::size_t direction = c.pass == PassKind::forward ? 0 : 1;
        return table[(direction * static_cast<std::size_t>(shape_.micro_batches) + c.micro_batch) *
                         steps_ +
                     step];
    }
    [[nodiscard]] std::size_t step_of(const PassContext& c) const {
        return step_on_way(shape_, {c.stage, c.chunk});
    }
    /// Does the step before (or after) lie on another stage?
    [[nodiscard]] bool crosses(const PassContext& c, std::size_t from, std::size_t to) const {
        const bool second =
            2 * std::size_t{c.micro_batch} >= static_cast<std::size_t>(shape_.micro_batches) + 1;
        const std::vector<Position>& way = ways_[second ? 1 : 0];
        return way[from].stage != way[to].stage;
    }
    /// The step whose result this pass waits for; way_length_: none.
    [[nodiscard]] std::size_t source(const PassContext& c, std::size_t step) const {
        if (c.pass == PassKind::forward) return step > 0 ? step - 1 : way_length_;
        return step + 1;
    }
    [[nodiscard]] std::size_t target(const PassContext& c, std::size_t step) const {
        if (c.pass == PassKind::forward) return step + 1;
        return step > 0 ? step - 1 : way_length_;
    }

    void receive(const PassContext& c) {
        const std::size_t step = step_of(c);
        const std::size_t from = source(c, step);
        if (from >= way_length_) return;
        if (!crosses(c, from, step)) {
            received_here_.push_back({c, step});
            return;
        }
        StageState& stage = stages_[c.stage];
        if (in_.messages_block) {
            entry(received_, c, step) = add_compute(TaskKind::receive, c, 0, 0);
        } else {
            const std::uint32_t id = add(TaskKind::receive, StreamKind::receive, c, 0, 1);
            entry(received_, c, step) = id;
            stage.blockers.push_back(id);
        }
    }
    void send(const PassContext& c) {
        const std::size_t step = step_of(c);
        const std::size_t to = target(c, step);
        std::uint32_t last = stages_[c.stage].last_compute;
        if (to < way_length_ && crosses(c, step, to)) {
            const std::uint32_t done = last;
            if (in_.messages_block) last = add_compute(TaskKind::send, c, 0, 0);
            if (in_.messages_under || !in_.messages_block) {
                last = add(TaskKind::send, StreamKind::send, c, 0, 1);
                depend(last, in_.messages_block ? stages_[c.stage].last_compute : done);
                for (const std::uint32_t blocker : stages_[c.stage].blockers) {
                    depend(last, blocker);
                }
            }
        }
        entry(sent_, c, step) = last;
    }
    /// Every receive waits for its send; where both ends lie on one stage the pass itself is waited
    /// for.
    void join_messages() {
        for (std::size_t id = 0; id < out_.size(); ++id) {
            if (out_.kind[id] != TaskKind::receive) continue;
            const PassContext c = {out_.stage[id], out_.chunk[id], out_.micro_batch[id],
                                   out_.pass[id]};
            depend(static_cast<std::uint32_t>(id), entry(sent_, c, source(c, step_of(c))));
        }
        for (const auto& [context, step] : received_here_) {
            const std::uint32_t first = entry(received_, context, step);
            depend(first, entry(sent_, context, source(context, step)));
        }
    }

    // --- passes -----------------------------------------------------------------------------

    [[nodiscard]] const std::vector<std::uint16_t>& units_of(const PassContext& c) const {
        return in_.units[c.stage][c.chunk];
    }
    [[nodiscard]] std::size_t wrapped() const {
        return dp_.wrapped > 0 ? static_cast<std::size_t>(dp_.wrapped) : 0xFFFFU;
    }

    /// Gathers a wrap unit before its first unit runs.
    void gather(const PassContext& c, std::size_t wrap) {
        StageState& stage = stages_[c.stage];
        if (dp_.gather_under) {
            const std::uint32_t id = add(TaskKind::gather, StreamKind::gather, c, wrap, 1);
            const std::size_t ahead = static_cast<std::size_t>(dp_.prefetch) + 1;
            if (stage.wrap_uses.size() >= ahead) {
                depend(id, stage.wrap_uses[stage.wrap_uses.size() - ahead]);
            }
            stage.blockers.push_back(id);
        }
        // on the stream of compute, so that it does not hold up what is gathered ahead
        if (dp_.gather_waits) add_compute(TaskKind::gather, c, wrap, 0);
    }
    void reduce_unit(const PassContext& c, std::size_t wrap) {
        StageState& stage = stages_[c.stage];
        if (dp_.reduce_under) {
            const std::uint32_t id = add(TaskKind::reduce_gradient, StreamKind::reduce, c, wrap, 1);
            depend(id, stage.last_compute);
            stage.last_reduce = id;
        }
        if (dp_.reduce_waits) add_compute(TaskKind::reduce_gradient, c, wrap, 0);
    }
    [[nodiscard]] bool makes_gradients(const PassContext& c) const {
        return c.pass == (split_ ? PassKind::weight : PassKind::backward);
    }

    void exchange(const PassContext& c, std::size_t unit, std::size_t number,
                  const UnitSteps::Exchange& e) {
        StageState& stage = stages_[c.stage];
        std::uint32_t before = stage.last_compute;
        if (e.waits) {
            const std::uint32_t id = add(TaskKind::exchange, e.stream, c, unit, 2 * number);
            depend(id, before);
            stage.blockers.push_back(id);
            before = id;
        }
        if (e.under == UnitSteps::Under::next) {
            under_ = add(TaskKind::exchange, e.stream, c, unit, 2 * number + 1);
            depend(under_, before);
        }
    }
    /// The share of the exchange after a part of compute that runs beside it.
    std::uint32_t exchange_beside(const PassContext& c, std::size_t unit, std::size_t number,
                                  const UnitSteps::Exchange& e) {
        if (e.under != UnitSteps::Under::previous) return none;
        const StageState& stage = stages_[c.stage];
        const std::uint32_t id = add(TaskKind::exchange, e.stream, c, unit, 2 * number + 1);
        depend(id, stage.last_compute);
        for (const std::uint32_t blocker : stage.blockers)
            depend(id, blocker);
        return id;
    }
    void run_unit(const PassContext& c, std::size_t unit) {
        static const std::vector<UnitSteps::Exchange> nothing;
        const UnitSteps& steps = in_.unit_kinds[units_of(c)[unit]];
        const auto& exchanges = c.pass == PassKind::forward    ? steps.forward
                                : c.pass == PassKind::backward ? steps.backward
                                                               : nothing;
        const TaskKind kind = c.pass == PassKind::forward    ? TaskKind::forward
                              : c.pass == PassKind::backward ? TaskKind::backward
                                                             : TaskKind::weight;
        for (std::size_t i = 0; i <= exchanges.size(); ++i) {
            // what ran under the part before this one is needed now
            const std::uint32_t needed = std::exchange(under_, none);
            const std::uint32_t before = needed_;
            needed_ = needed;
            if (before != none) stages_[c.stage].blockers.push_back(before);
            const bool last = i == exchanges.size();
            const std::uint32_t beside = last ? none : exchange_beside(c, unit, i, exchanges[i]);
            const std::uint32_t id = add_compute(kind, c, unit, i);
            if (first_of_pass_ == none) first_of_pass_ = id;
            if (beside != none) stages_[c.stage].blockers.push_back(beside);
            if (!last) exchange(c, unit, i, exchanges[i]);
        }
    }

    void before_unit(const PassContext& c, std::size_t unit, bool first_of_wrap) {
        StageState& stage = stages_[c.stage];
        const bool gathers =
            c.pass == PassKind::forward || (c.pass == PassKind::backward && dp_.gather_again);
        if (dp_.units && gathers && first_of_wrap) gather(c, unit / wrapped());
        if (!dp_.units && c.pass == PassKind::forward && !stage.parameters.empty()) {
            std::uint32_t& id = stage.parameters[bucket_of(c, unit)];
            if (id != none) stage.blockers.push_back(std::exchange(id, none));
        }
    }
    void after_unit(const PassContext& c, std::size_t unit, bool last_of_wrap) {
        StageState& stage = stages_[c.stage];
        if (!dp_.units) {
            if (makes_gradients(c) && dp_.reduce_under) count_gradient(c, unit);
            return;
        }
        if (!last_of_wrap) return;
        if (c.pass != PassKind::weight) stage.wrap_uses.push_back(stage.last_compute);
        const bool last_use = c.pass == (dp_.gather_again ? PassKind::forward : PassKind::backward);
        if (last_use || c.pass == PassKind::backward) {
            add_compute(TaskKind::release, c, unit / wrapped(), 0);
        }
        if (makes_gradients(c)) reduce_unit(c, unit / wrapped());
    }

    void write_pass(const PassContext& c) {
        StageState& stage = stages_[c.stage];
        const std::uint32_t before = stage.last_compute;
        const std::size_t count = units_of(c).size();
        first_of_pass_ = none;
        under_ = needed_ = none;
        const bool moves = c.pass != PassKind::weight;
        if (moves) receive(c);
        for (std::size_t i = 0; i < count; ++i) {
            const bool ahead = c.pass == PassKind::forward;
            const std::size_t unit = ahead ? i : count - 1 - i;
            const bool low = unit % wrapped() == 0;
            const bool high = (unit + 1) % wrapped() == 0 || unit + 1 == count;
            before_unit(c, unit, ahead ? low : high);
            run_unit(c, unit);
            after_unit(c, unit, ahead ? high : low);
        }
        if (first_of_pass_ == none) {
            first_of_pass_ = add_compute(TaskKind::forward, c, 0, 0);
            out_.kind.back() = c.pass == PassKind::forward    ? TaskKind::forward
                               : c.pass == PassKind::backward ? TaskKind::backward
                                                              : TaskKind::weight;
        }
        for (const std::uint32_t id : {std::exchange(under_, none), std::exchange(needed_, none)}) {
            if (id != none) stage.blockers.push_back(id);
        }
        if (!moves) return;
        const std::size_t step = step_of(c);
        if (entry(received_, c, step) == none) entry(received_, c, step) = first_of_pass_;
        if (c.pass == PassKind::forward && step + 1 == way_length_) {
            add_compute(TaskKind::loss, c, 0, 0);
        }
        send(c);
        offload(c, before);
    }

    /// Copies run beside the pass; the next one waits for them.
    void offload(const PassContext& c, std::uint32_t before) {
        if (!in_.offload_passes) return;
        const bool out = c.pass == PassKind::forward;
        const std::uint32_t id = add(out ? TaskKind::offload_out : TaskKind::offload_in,
                                     out ? StreamKind::copy_out : StreamKind::copy_in, c, 0, 1);
        depend(id, before);
        stages_[c.stage].blockers.push_back(id);
    }

    // --- gradients and parameters in buckets ------------------------------------------------

    [[nodiscard]] std::size_t bucket_of(const PassContext& c, std::size_t unit) const {
        const StageState& stage = stages_[c.stage];
        const std::int32_t at = stage.unit_base[c.chunk] + static_cast<std::int32_t>(unit);
        return static_cast<std::size_t>(at * stage.buckets / std::max(1, stage.units));
    }
    void count_gradient(const PassContext& c, std::size_t unit) {
        StageState& stage = stages_[c.stage];
        const std::size_t bucket = bucket_of(c, unit);
        const std::size_t row =
            dp_.every_micro_batch ? c.micro_batch * static_cast<std::size_t>(stage.buckets) : 0;
        if (--stage.bucket_left[row + bucket] > 0) return;
        const std::uint32_t id = add(TaskKind::reduce_gradient, StreamKind::reduce, c, bucket, 1);
        depend(id, stage.last_compute);
        stage.last_reduce = id;
    }
    void prepare_stage(std::uint16_t s, const std::vector<ScheduledPass>& order) {
        StageState& stage = stages_[s];
        std::vector<std::int32_t> visits(static_cast<std::size_t>(shape_.chunks), 0);
        for (const ScheduledPass& pass : order) {
            if (pass.kind == PassKind::forward) ++visits[static_cast<std::size_t>(pass.chunk)];
        }
        for (const auto& chunk : in_.units[s]) {
            stage.unit_base.push_back(stage.units);
            stage.units += static_cast<std::int32_t>(chunk.size());
        }
        stage.buckets = std::max(1, std::min(dp_.buckets, stage.units));
        const auto rows =
            static_cast<std::size_t>(dp_.every_micro_batch ? shape_.micro_batches : 1);
        stage.bucket_left.assign(rows * static_cast<std::size_t>(stage.buckets), 0);
        for (std::size_t chunk = 0; chunk < in_.units[s].size(); ++chunk) {
            const PassContext c{s, static_cast<std::uint16_t>(chunk), 0, PassKind::forward};
            for (std::size_t unit = 0; unit < in_.units[s][chunk].size(); ++unit) {
                for (std::size_t row = 0; row < rows; ++row) {
                    stage.bucket_left[row * static_cast<std::size_t>(stage.buckets) +
                                      bucket_of(c, unit)] +=
                        dp_.every_micro_batch ? 1 : visits[chunk];
                }
            }
        }
        if (dp_.units || !dp_.gather_under) return;
        for (std::int32_t b = 0; b < stage.buckets; ++b) {
            stage.parameters.push_back(add(TaskKind::gather_parameter, StreamKind::gather,
                                           {s, 0, no_micro_batch, PassKind::forward},
                                           static_cast<std::size_t>(b), 1));
        }
    }

    void write_stage(std::uint16_t s, const std::vector<ScheduledPass>& order) {
        prepare_stage(s, order);
        for (const ScheduledPass& pass : order) {
            write_pass({s, static_cast<std::uint16_t>(pass.chunk),
                        static_cast<std::uint32_t>(pass.micro_batch), pass.kind});
        }
        StageState& stage = stages_[s];
        stage.last_pass = stage.last_compute;
        const auto reduce_last = [&](std::size_t bucket) {
            const std::uint32_t id = add(TaskKind::reduce_gradient, StreamKind::reduce,
                                         {s, 0, no_micro_batch, PassKind::backward}, bucket, 0);
            depend(id, stage.last_compute);
            for (const std::uint32_t blocker : stage.blockers)
                depend(id, blocker);
            stage.last_reduce = id;
        };
        if (!dp_.units && dp_.reduce_waits) {
            for (std::int32_t b = stage.buckets - 1; b >= 0; --b) {
                reduce_last(static_cast<std::size_t>(b));
            }
        }
        if (dp_.replicas) reduce_last(replica_bucket);
    }

    void write_tail(std::uint16_t s) {
        StageState& stage = stages_[s];
        const PassContext once{s, 0, no_micro_batch, PassKind::backward};
        std::uint32_t last = none;
        if (in_.optimizer) {
            last = add_compute(TaskKind::optimizer, once, 0, 0);
            for (std::size_t other = 0; other < stages_.size(); ++other) {
                if (other != s && !in_.update_waits_for_all) continue;
                depend(last, stages_[other].last_reduce);
                if (other != s) depend(last, stages_[other].last_pass);
            }
        }
        if (in_.offload_states) {
            const std::uint32_t out = add(TaskKind::offload_out, StreamKind::copy_out, once, 1, 0);
            depend(out, last == none ? stage.last_compute : last);
            depend(out, stage.last_reduce);
            last = add(TaskKind::offload_in, StreamKind::copy_in, once, 1, 0);
            depend(last, out);
        }
        if (!dp_.units && dp_.gather_waits) {
            for (std::int32_t b = 0; b < stage.buckets; ++b) {
                const std::uint32_t id = add(TaskKind::gather_parameter, StreamKind::gather, once,
                                             static_cast<std::size_t>(b), 0);
                depend(id, last);
                if (b + 1 == stage.buckets) last = id;
            }
        }
        if (in_.save) {
            const std::uint32_t id = add(TaskKind::save, StreamKind::copy_out, once, 0, 0);
            depend(id, last == none ? stage.last_compute : last);
        }
    }

    /// From pairs in any order to rows by task, in the order they were written.
    void write_dependencies() {
        out_.first_dependency.assign(out_.size() + 1, 0);
        for (const auto& [task, on] : edges_)
            ++out_.first_dependency[task + 1];
        for (std::size_t i = 0; i < out_.size(); ++i) {
            out_.first_dependency[i + 1] += out_.first_dependency[i];
        }
        out_.dependencies.resize(edges_.size());
        std::vector<std::uint32_t> next(out_.first_dependency.begin(),
                                        out_.first_dependency.end() - 1);
        for (const auto& [task, on] : edges_)
            out_.dependencies[next[task]++] = on;
    }

    struct Here {
        PassContext context;
        std::size_t step = 0;
    };

    const ScheduleInput& in_;
    const DataParallelPlan& dp_;
    const PipelineShape& shape_;
    bool split_;
    std::size_t steps_ = 0;
    std::array<std::vector<Position>, 2> ways_; ///< of the first and the second half of the step
    std::size_t way_length_ = 0;
    Schedule out_;
    std::vector<StageState> stages_;
    std::vector<std::uint32_t> sent_;     ///< by direction, micro-batch, step
    std::vector<std::uint32_t> received_; ///< the same
    std::vector<Here> received_here_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
    std::uint32_t first_of_pass_ = none;
    std::uint32_t under_ = none;  ///< exchange that runs under the next part of compute
    std::uint32_t needed_ = none; ///< exchange that the part after it waits for
};

} // namespace

Result<Schedule> make_schedule(const ScheduleInput& in) {
    const Status status = check_input(in);
    if (!status) return status.error();
    return Builder(in).run();
}

} // namespace shardplan::sim
