#pragma once

#include <cstdint>
#include <vector>

#include "simulator/engine/fair_share.hpp"
#include "simulator/schedule/schedule.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

inline constexpr std::uint32_t no_task = 0xFFFFFFFFU;
inline constexpr std::uint32_t no_route = 0xFFFFFFFFU;
inline constexpr std::uint32_t no_joint = 0xFFFFFFFFU;

/// Tasks on streams, as the engine plays them. A stream runs its tasks in order, one at a time.
struct TaskGraph {
    std::vector<std::uint32_t> stream;          ///< by task
    std::vector<std::uint32_t> waits;           ///< by task: dependencies
    std::vector<std::uint32_t> first_successor; ///< by task, and one past the last
    std::vector<std::uint32_t> successors;
    std::vector<std::uint32_t> first_on_stream; ///< by stream, and one past the last
    std::vector<std::uint32_t> on_stream;       ///< tasks in order
    /// Tasks that run as one: they begin when all of them have been reached by their streams, and
    /// end together. By task; empty: there are none.
    std::vector<std::uint32_t> joint;
    std::vector<std::uint32_t> first_member; ///< by joint, and one past the last
    std::vector<std::uint32_t> members;

    [[nodiscard]] std::size_t size() const { return stream.size(); }
    [[nodiscard]] std::size_t streams() const { return first_on_stream.size() - 1; }
    [[nodiscard]] std::size_t joints() const {
        return first_member.empty() ? 0 : first_member.size() - 1;
    }
};

/// Streams in the order of `stream_index`.
TaskGraph graph_of(const Schedule& schedule);

/// What tasks take. Columns by task; `seconds` is always there, the others may be empty.
struct TaskCosts {
    std::vector<double> seconds; ///< alone: nothing beside it on its device or links
    // --- work of a device that communication beside it slows ---
    /// By stream: the device whose compute it is or takes from; empty: nothing slows anything.
    std::vector<std::uint32_t> device;
    std::vector<char> is_compute;       ///< by stream
    std::vector<float> takes_units;     ///< share of the compute units that a task occupies
    std::vector<float> takes_bandwidth; ///< share of the memory bandwidth
    /// Share of a task of compute that waits for memory; negative: nothing slows it.
    std::vector<float> bandwidth_bound;
    // --- flows ---
    LinkTable links;
    std::vector<std::uint32_t> route; ///< by task; no_route: over no link that others use
    std::vector<double> bytes;        ///< by task: sent; with a route, over every link of it
};

struct PlayOptions {
    std::int64_t most_events = 1'000'000'000;
};

/// When tasks ran.
struct Play {
    std::vector<double> start;  ///< seconds, by task
    std::vector<double> finish; ///< seconds, by task
    /// By task: the task whose end let it start; no_task: it started at once.
    std::vector<std::uint32_t> cause;
    std::vector<std::uint32_t> last_member; ///< by joint: whom the others waited for
    double makespan = 0.0;
    std::int64_t events = 0; ///< task completions, and changes of rates that moved one
    std::int64_t flow_events = 0;
    std::size_t largest_queue = 0; ///< tasks running at once that the queue held
};

/// Plays the graph from time 0. Deterministic: equal times are taken in the order of streams.
/// Compute beside communication runs at 1 / ((1 - b) / (1 - units) + b / (1 - bandwidth)) of its
/// rate, b its bandwidth_bound, units and bandwidth what all tasks beside it take; flows share
/// links max-min fairly. Errors: more events than allowed; tasks that wait for one another.
Result<Play> play(const TaskGraph& graph, const TaskCosts& costs, const PlayOptions& options = {});

} // namespace shardplan::sim
