#include "simulator/engine/stage_costs.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

/// Counts that shares of a stage's totals are divided by.
struct StageCounts {
    double units = 0.0;   ///< of one micro-batch
    double wraps = 0.0;   ///< wrap units of one micro-batch
    double buckets = 1.0; ///< of the stage
    double visits = 1.0;  ///< passes of one micro-batch
};

std::size_t wrap_size(const DataParallelPlan& plan) {
    return plan.wrapped > 0 ? static_cast<std::size_t>(plan.wrapped) : 0xFFFFU;
}

StageCounts counts_of(const ScheduleInput& in, std::size_t stage) {
    StageCounts out;
    const std::size_t size = wrap_size(in.data_parallel);
    double held = 0.0;
    for (const auto& chunk : in.units[stage]) {
        held += static_cast<double>(chunk.size());
        out.wraps += static_cast<double>((chunk.size() + size - 1) / size);
    }
    // under dualpipe a micro-batch visits one of the two chunks
    const bool half = in.shape.kind == ScheduleKind::dual_pipe && in.shape.chunks == 2;
    out.visits = half ? 1.0 : static_cast<double>(in.shape.chunks);
    out.units = half ? 0.5 * held : held;
    out.wraps *= half ? 0.5 : 1.0;
    out.buckets = std::max(1.0, std::min(static_cast<double>(in.data_parallel.buckets), held));
    return out;
}

class Pricer {
public:
    Pricer(const ScheduleInput& in, const Schedule& schedule, const StageCosts& costs)
        : in_(in), s_(schedule), c_(costs) {
        for (std::size_t stage = 0; stage < in.units.size(); ++stage) {
            counts_.push_back(counts_of(in, stage));
        }
    }

    TaskCosts run() {
        const std::size_t n = s_.size();
        out_.seconds.resize(n);
        const bool links = !c_.routes.empty();
        out_.bytes.assign(n, 0.0);
        if (links) {
            out_.links = c_.links;
            out_.route.assign(n, no_route);
        }
        const bool slows = c_.taken_units > 0.0F || c_.taken_bandwidth > 0.0F;
        if (slows) prepare_slowing();
        for (std::size_t task = 0; task < n; ++task) {
            bytes_ = 0.0;
            out_.seconds[task] = seconds_of(task);
            out_.bytes[task] = bytes_;
            if (links && bytes_ > 0.0) {
                out_.route[task] = route_of(task);
                out_.bytes[task] = on_route(out_.route[task], out_.seconds[task]);
            } else if (links && computes(task)) {
                // its work in seconds, which go over the processors of the node
                out_.route[task] = route_of(task);
                if (out_.route[task] != no_route) out_.bytes[task] = out_.seconds[task];
            }
            if (slows) note_slowing(task);
        }
        return std::move(out_);
    }

private:
    void prepare_slowing() {
        const auto streams = static_cast<std::size_t>(s_.shape.stages) * stream_kind_count;
        for (std::size_t stream = 0; stream < streams; ++stream) {
            out_.device.push_back(static_cast<std::uint32_t>(stream / stream_kind_count));
            out_.is_compute.push_back(stream % stream_kind_count == 0 ? 1 : 0);
        }
        out_.takes_units.assign(s_.size(), 0.0F);
        out_.takes_bandwidth.assign(s_.size(), 0.0F);
        out_.bandwidth_bound.assign(s_.size(), 0.0F);
    }
    void note_slowing(std::size_t task) {
        switch (s_.kind[task]) {
            case TaskKind::forward:
            case TaskKind::backward:
            case TaskKind::weight:
                if (!unit_list(task).empty())
                    out_.bandwidth_bound[task] = unit(task).bandwidth_bound;
                return;
            case TaskKind::exchange:
            case TaskKind::send:
            case TaskKind::gather:
            case TaskKind::reduce_gradient:
            case TaskKind::gather_parameter:
                // copies run on engines of their own
                if (s_.stream[task] == StreamKind::compute) {
                    out_.bandwidth_bound[task] = -1.0F;
                } else {
                    out_.takes_units[task] = c_.taken_units;
                    out_.takes_bandwidth[task] = c_.taken_bandwidth;
                }
                return;
            case TaskKind::receive:
                out_.bandwidth_bound[task] = -1.0F;
                return;
            default:
                return;
        }
    }

    [[nodiscard]] bool computes(std::size_t task) const {
        switch (s_.kind[task]) {
            case TaskKind::forward:
            case TaskKind::backward:
            case TaskKind::weight:
            case TaskKind::optimizer:
                return true;
            default:
                return false;
        }
    }

    /// Bytes of the task just priced that cross its route. What a rank sends inside its node does
    /// not, so they are no more than the route carries in the time of the task alone.
    [[nodiscard]] double on_route(std::uint32_t route, double seconds) const {
        if (route == no_route) return bytes_;
        double least = bytes_;
        for (std::uint32_t i = c_.links.first_link[route]; i < c_.links.first_link[route + 1];
             ++i) {
            least = std::min(least, c_.links.capacity[c_.links.links[i]] * seconds);
        }
        return least;
    }
    [[nodiscard]] std::uint32_t route_of(std::size_t task) const {
        const StageRoutes& routes = c_.routes[s_.stage[task]];
        if (s_.kind[task] == TaskKind::send || s_.kind[task] == TaskKind::receive) {
            const bool second = s_.chunk[task] % 2 == 1;
            const bool down = second && (s_.shape.kind == ScheduleKind::zb_v ||
                                         s_.shape.kind == ScheduleKind::dual_pipe);
            const bool up = (s_.pass[task] == PassKind::forward) != down;
            return up ? routes.send_up : routes.send_down;
        }
        return routes.of_stream[static_cast<std::size_t>(s_.stream[task])];
    }

    [[nodiscard]] const std::vector<std::uint16_t>& unit_list(std::size_t task) const {
        return in_.units[s_.stage[task]][s_.chunk[task]];
    }
    [[nodiscard]] const UnitCosts& unit(std::size_t task) const {
        return c_.units[unit_list(task)[s_.unit[task]]];
    }
    /// `whole` in `count` equal parts, the share that the task's `part` names.
    double share(std::size_t task, const SplitSeconds& whole, double count) {
        const bool under = s_.part[task] % 2 == 1;
        const double seconds = under ? whole.under : whole.waits;
        if (whole.total() > 0.0) bytes_ = whole.bytes * (seconds / whole.total()) / count;
        return seconds / count;
    }

    double pass_seconds(std::size_t task) {
        if (unit_list(task).empty()) return 0.0;
        const UnitCosts& u = unit(task);
        const StageSeconds& stage = c_.stages[s_.stage[task]];
        const double units = std::max(1.0, counts_[s_.stage[task]].units);
        const bool first = s_.part[task] == 0;
        switch (s_.kind[task]) {
            case TaskKind::forward:
                return u.forward[s_.part[task]] + (first ? stage.forward_copies / units : 0.0);
            case TaskKind::backward: {
                const bool last = s_.part[task] + 1U == u.backward.size();
                return u.backward[s_.part[task]] + (first ? stage.backward_copies / units : 0.0) +
                       (last && !splits_backward(s_.shape.kind) ? u.weight : 0.0);
            }
            default:
                return u.weight;
        }
    }

    double seconds_of(std::size_t task) {
        const StageSeconds& stage = c_.stages[s_.stage[task]];
        const StageCounts& n = counts_[s_.stage[task]];
        const bool units = in_.data_parallel.units;
        switch (s_.kind[task]) {
            case TaskKind::forward:
            case TaskKind::backward:
            case TaskKind::weight:
                return pass_seconds(task);
            case TaskKind::exchange: {
                const UnitCosts& u = unit(task);
                const auto& list =
                    s_.pass[task] == PassKind::forward ? u.forward_exchanges : u.backward_exchanges;
                return share(task, list[s_.part[task] / 2U], 1.0);
            }
            case TaskKind::send:
                return share(task, stage.message, 1.0);
            case TaskKind::receive: {
                // at the end of the line the receiver pays for its pass
                const std::size_t step = step_on_way(s_.shape, {s_.stage[task], s_.chunk[task]});
                const std::size_t last = way_length(s_.shape) - 1;
                const bool end = step == (s_.pass[task] == PassKind::forward ? last : 0);
                return end && s_.part[task] == 0 ? share(task, stage.message, 1.0) : 0.0;
            }
            case TaskKind::gather:
                return share(task, stage.gather, std::max(1.0, n.wraps));
            case TaskKind::gather_parameter:
                return share(task, stage.gather, n.buckets);
            case TaskKind::reduce_gradient:
                return reduce_seconds(task, stage, n, units);
            case TaskKind::optimizer:
                return stage.optimizer;
            case TaskKind::offload_out:
                return s_.unit[task] == 1 ? stage.offload_states : stage.offload_forward / n.visits;
            case TaskKind::offload_in:
                return s_.unit[task] == 1 ? 0.0 : stage.offload_backward / n.visits;
            case TaskKind::save:
                return stage.save;
            case TaskKind::loss:
            case TaskKind::release:
                break;
        }
        return 0.0;
    }

    double reduce_seconds(std::size_t task, const StageSeconds& stage, const StageCounts& n,
                          bool units) {
        if (s_.unit[task] == replica_bucket) return stage.replicas;
        if (units) return share(task, stage.reduce, std::max(1.0, n.wraps));
        const double seconds = share(task, stage.reduce, n.buckets);
        // what is not reduced under the passes of each micro-batch is reduced for all at the end
        const bool all = in_.data_parallel.every_micro_batch && s_.part[task] == 0;
        const double times = all ? static_cast<double>(s_.shape.micro_batches) : 1.0;
        bytes_ *= times;
        return seconds * times;
    }

    const ScheduleInput& in_;
    const Schedule& s_;
    const StageCosts& c_;
    std::vector<StageCounts> counts_;
    TaskCosts out_;
    double bytes_ = 0.0; ///< of the task just priced
};

} // namespace

TaskCosts price(const ScheduleInput& input, const Schedule& schedule, const StageCosts& costs) {
    return Pricer(input, schedule, costs).run();
}

double flops_of(const ScheduleInput& input, const Schedule& s, const StageCosts& costs,
                std::size_t task) {
    const auto& units = input.units[s.stage[task]][s.chunk[task]];
    if (s.unit[task] >= units.size()) return 0.0;
    const UnitCosts& u = costs.units[units[s.unit[task]]];
    switch (s.kind[task]) {
        case TaskKind::forward:
            return u.forward_flops / static_cast<double>(u.forward.size());
        case TaskKind::backward:
            return (u.backward_flops + (splits_backward(s.shape.kind) ? 0.0 : u.weight_flops)) /
                   static_cast<double>(u.backward.size());
        case TaskKind::weight:
            return u.weight_flops;
        default:
            return 0.0;
    }
}

} // namespace shardplan::sim
