#include "planner/analysis/calendar.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "simulator/memory/rank_parameters.hpp"
#include "simulator/memory/states.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan {
namespace {

constexpr double seconds_per_hour = 3600.0;

std::string text(double seconds) {
    constexpr double day = 24.0 * seconds_per_hour;
    return seconds >= 2.0 * day ? fmt::format("{:.3g} days", seconds / day)
                                : sim::format_quantity(seconds, sim::Dimension::seconds);
}

class Planner {
public:
    Planner(const sim::Scenario& scenario, const sim::Estimate& estimate, const Losses& losses,
            const Operations& operations)
        : scenario_(scenario), estimate_(estimate), losses_(losses), operations_(operations) {}

    sim::Result<Calendar> run() {
        for (const auto step : {&Planner::check, &Planner::count, &Planner::checkpoints}) {
            if (const auto status = (this->*step)(); !status) {
                return status.error();
            }
        }
        if (const auto status = lose(); !status) {
            return status.error();
        }
        const double low = estimate_.time.total.low.value() / out_.step_s;
        const double high = estimate_.time.total.high.value() / out_.step_s;
        const double moving = out_.total_s - losses_.queue_s;
        out_.total_low_s = losses_.queue_s + moving * low;
        out_.total_high_s = losses_.queue_s + moving * high;
        spend();
        return std::move(out_);
    }

private:
    void assume(std::string path, std::string value, std::string origin, std::string note) {
        out_.assumptions.push_back(
            {std::move(path), std::move(value), std::move(origin), std::move(note)});
    }

    sim::Status check();
    sim::Status count();
    sim::Status checkpoints();
    sim::Status lose();
    void spend();
    double node_rate();
    double save_rate();

    const sim::Scenario& scenario_;
    const sim::Estimate& estimate_;
    const Losses& losses_;
    const Operations& operations_;
    sim::Resolved resolved_;
    double restart_s_ = 0.0;
    Calendar out_;
};

sim::Status Planner::check() {
    if (!(scenario_.job.tokens_to_train > 0.0)) {
        return sim::Error{sim::ErrorCode::bad_input, "job.tokens_to_train",
                          "the tokens of the whole run are not given", "write --tokens 2e12"};
    }
    if (estimate_.verdict == sim::Verdict::does_not_fit) {
        return sim::Error{sim::ErrorCode::bad_input, "calendar",
                          "the layout does not fit, so the run has no length",
                          "see `shardplan fit` for what would make it fit"};
    }
    const double least =
        std::min({losses_.mean_time_to_failure_s.value_or(1.0), losses_.interval_s.value_or(1.0)});
    const double lowest = std::min({losses_.save_s.value_or(0.0), losses_.restart_s.value_or(0.0),
                                    losses_.requeue_s, losses_.queue_s, losses_.planned});
    if (!(least > 0.0) || !(lowest >= 0.0) || losses_.planned >= 1.0 ||
        !(losses_.power_overhead.value_or(1.0) >= 1.0)) {
        return sim::Error{sim::ErrorCode::bad_input, "losses", "a loss is out of its range",
                          "times are not negative, a mean time and an interval are above 0, the "
                          "planned share lies below 1 and the overhead of power is 1 or more"};
    }
    return sim::Done{};
}

sim::Status Planner::count() {
    const auto resolved = sim::resolve(scenario_);
    if (!resolved) {
        return resolved.error();
    }
    resolved_ = resolved->values;
    out_.tokens = scenario_.job.tokens_to_train;
    out_.tokens_per_step =
        static_cast<double>(resolved_.global_batch) * static_cast<double>(resolved_.sequence);
    out_.steps = std::ceil(out_.tokens / out_.tokens_per_step);
    out_.step_s = estimate_.time.total.value.value();
    out_.pure_s = out_.steps * out_.step_s;
    out_.devices = static_cast<double>(estimate_.devices_used);
    double left = out_.devices;
    for (const sim::NodeGroup& group : scenario_.cluster.node_groups) {
        const auto per_node = static_cast<double>(group.node.devices);
        const double used = std::min(left, per_node * static_cast<double>(group.count));
        out_.nodes += std::ceil(used / per_node);
        left -= used;
    }
    return sim::Done{};
}

/// Stops per second of the whole job.
double Planner::node_rate() {
    if (losses_.mean_time_to_failure_s) {
        return out_.nodes / *losses_.mean_time_to_failure_s;
    }
    double rate = 0.0;
    double left = out_.nodes;
    double unknown = 0.0;
    for (const sim::NodeGroup& group : scenario_.cluster.node_groups) {
        const double used = std::min(left, static_cast<double>(group.count));
        left -= used;
        const double mean = group.mean_time_to_failure.value();
        rate += mean > 0.0 ? used / mean : 0.0;
        unknown += mean > 0.0 ? 0.0 : used;
    }
    if (unknown > 0.0) {
        assume("mean time to failure of a node", text(1.0 / operations_.stops.value), "default",
               "give --mttf; " + operations_.stops.source);
        rate += unknown * operations_.stops.value;
    }
    return rate;
}

/// Bytes per second of all nodes together.
double Planner::save_rate() {
    for (const sim::StorageTier& tier : scenario_.cluster.storage) {
        const double all = tier.write_per_node.value() * out_.nodes;
        const double limit = tier.write_total.value();
        if (all > 0.0 || limit > 0.0) {
            return all > 0.0 && limit > 0.0 ? std::min(all, limit) : std::max(all, limit);
        }
    }
    assume("checkpoint write rate",
           sim::format_quantity(operations_.save_per_node.value, sim::Dimension::bandwidth) +
               " per node",
           "default", "give --checkpoint-time; " + operations_.save_per_node.source);
    return operations_.save_per_node.value * out_.nodes;
}

sim::Status Planner::checkpoints() {
    out_.checkpoint_bytes = checkpoint_bytes(scenario_, resolved_);
    const double rate = node_rate();
    out_.mean_time_to_stop_s = rate > 0.0 ? 1.0 / rate : 0.0;
    out_.save_s = losses_.save_s ? *losses_.save_s : out_.checkpoint_bytes / save_rate();
    if (!losses_.restart_s) {
        assume("restart after a stop", text(operations_.restart.value), "default",
               "give --restart; " + operations_.restart.source);
    }
    restart_s_ = losses_.restart_s.value_or(operations_.restart.value) + losses_.requeue_s;
    const double wanted = losses_.interval_s.value_or(
        rate > 0.0 ? daly_interval(out_.save_s, out_.mean_time_to_stop_s) : out_.pure_s);
    out_.steps_per_checkpoint =
        std::clamp(std::round(wanted / out_.step_s), 1.0, std::max(out_.steps, 1.0));
    out_.interval_s = out_.steps_per_checkpoint * out_.step_s;
    return sim::Done{};
}

sim::Status Planner::lose() {
    const double checkpoints = std::floor(out_.steps / out_.steps_per_checkpoint);
    const double saving = checkpoints * out_.save_s;
    double running = out_.pure_s + saving;
    if (out_.mean_time_to_stop_s > 0.0) {
        const double mean = out_.mean_time_to_stop_s;
        const double clean = 1.0 + out_.save_s / out_.interval_s;
        const double stretch = expected_stretch(out_.interval_s, out_.save_s, restart_s_, mean);
        if (!std::isfinite(stretch) || !(out_.pure_s * stretch < 1e12)) {
            return sim::Error{
                sim::ErrorCode::bad_input, "losses",
                fmt::format("with a stop every {} and {} between checkpoints the run does not end",
                            text(mean), text(out_.interval_s)),
                "save more often, or faster"};
        }
        running *= stretch / clean;
    }
    out_.stops = out_.mean_time_to_stop_s > 0.0 ? running / out_.mean_time_to_stop_s : 0.0;
    const double restarting = out_.stops * restart_s_;
    const double again = std::max(running - out_.pure_s - saving - restarting, 0.0);
    const double with_planned = running / (1.0 - losses_.planned);
    out_.total_s = with_planned + losses_.queue_s;
    out_.goodput = out_.pure_s / out_.total_s;
    const auto line = [&](const char* name, double seconds, std::string how) {
        if (seconds > 0.0) {
            out_.losses.push_back({name, seconds, std::move(how)});
        }
    };
    line("saving checkpoints", saving,
         fmt::format("{:.0f} x {}, one every {} ({:.0f} steps)", checkpoints, text(out_.save_s),
                     text(out_.interval_s), out_.steps_per_checkpoint));
    line("work done again", again,
         fmt::format("{:.3g} stops expected, one every {}", out_.stops,
                     text(out_.mean_time_to_stop_s)));
    // Daly counts a restart that is itself interrupted under the work; what is left is exact.
    line("restarting", running - out_.pure_s - saving - again,
         fmt::format("{} after each stop", text(restart_s_)));
    line("planned", with_planned - running,
         fmt::format("{:.1f} % of the wall time", 100.0 * losses_.planned));
    line("queueing", losses_.queue_s, "before the first step");
    return sim::Done{};
}

void Planner::spend() {
    const double held = out_.total_s - losses_.queue_s;
    out_.device_hours = out_.devices * held / seconds_per_hour;
    out_.money = estimate_.money_per_hour * held / seconds_per_hour;
    out_.currency = scenario_.cluster.currency;
    out_.power_overhead = losses_.power_overhead.value_or(operations_.power_overhead.value);
    constexpr double million = 1e6;
    const double training =
        estimate_.kilowatt_hours_per_million_tokens * out_.steps * out_.tokens_per_step / million;
    out_.kilowatt_hours = training * held / out_.pure_s * out_.power_overhead;
    if (!losses_.power_overhead && out_.kilowatt_hours > 0.0) {
        assume("power overhead", fmt::format("{:.3g}", out_.power_overhead), "default",
               "give --power-overhead; " + operations_.power_overhead.source);
    }
}

} // namespace

double daly_interval(double save_s, double mean_time_s) {
    if (save_s >= 2.0 * mean_time_s) {
        return mean_time_s;
    }
    const double ratio = save_s / (2.0 * mean_time_s);
    return std::sqrt(2.0 * save_s * mean_time_s) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) -
           save_s;
}

double expected_stretch(double interval_s, double save_s, double restart_s, double mean_time_s) {
    return mean_time_s / interval_s * std::exp(restart_s / mean_time_s) *
           std::expm1((interval_s + save_s) / mean_time_s);
}

double checkpoint_bytes(const sim::Scenario& scenario, const sim::Resolved& resolved) {
    std::int64_t blocks = 0;
    for (const sim::Part& part : scenario.model.parts) {
        if (part.role == sim::PartRole::trunk) {
            for (const sim::Run& run : part.runs) {
                blocks += run.count;
            }
        }
    }
    sim::Stage whole;
    whole.chunks = {{0, blocks}};
    whole.has_embedding = true;
    whole.has_head = true;
    const double trained =
        sim::stage_on_rank(scenario.model, resolved, sim::Layout{}, whole).trained();
    const bool has_master = resolved.master != resolved.parameter;
    return trained * (sim::bytes_per_element(resolved.parameter) +
                      (has_master ? sim::bytes_per_element(resolved.master) : 0.0) +
                      sim::moment_bytes(resolved));
}

sim::Result<Calendar> calendar(const sim::Scenario& scenario, const sim::Estimate& estimate,
                               const Losses& losses, const Operations& operations) {
    return Planner(scenario, estimate, losses, operations).run();
}

} // namespace shardplan::plan
