#include "simulator/engine/play.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

namespace shardplan::sim {

TaskGraph graph_of(const Schedule& s) {
    TaskGraph g;
    const std::size_t n = s.size();
    const std::size_t streams = static_cast<std::size_t>(s.shape.stages) * stream_kind_count;
    g.stream.resize(n);
    g.waits.resize(n);
    g.first_successor.assign(n + 1, 0);
    g.first_on_stream.assign(streams + 1, 0);
    for (std::size_t task = 0; task < n; ++task) {
        g.stream[task] = static_cast<std::uint32_t>(stream_index(s, task));
        ++g.first_on_stream[g.stream[task] + 1];
        g.waits[task] = s.first_dependency[task + 1] - s.first_dependency[task];
    }
    for (const std::uint32_t on : s.dependencies)
        ++g.first_successor[on + 1];
    for (std::size_t i = 0; i < n; ++i)
        g.first_successor[i + 1] += g.first_successor[i];
    for (std::size_t i = 0; i < streams; ++i)
        g.first_on_stream[i + 1] += g.first_on_stream[i];
    g.successors.resize(s.dependencies.size());
    g.on_stream.resize(n);
    std::vector<std::uint32_t> at(g.first_successor.begin(), g.first_successor.end() - 1);
    std::vector<std::uint32_t> place(g.first_on_stream.begin(), g.first_on_stream.end() - 1);
    for (std::size_t task = 0; task < n; ++task) {
        const auto id = static_cast<std::uint32_t>(task);
        g.on_stream[place[g.stream[task]]++] = id;
        for (std::uint32_t d = s.first_dependency[task]; d < s.first_dependency[task + 1]; ++d) {
            g.successors[at[s.dependencies[d]]++] = id;
        }
    }
    return g;
}

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Streams by the time their running task ends; four children a node, so that it is shallow.
class Queue {
public:
    explicit Queue(std::size_t streams) : place_(streams, none) { heap_.reserve(streams); }

    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] double time() const { return heap_.empty() ? infinity : heap_.front().time; }
    [[nodiscard]] std::uint32_t stream() const { return heap_.front().stream; }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }

    void push(double time, std::uint32_t stream) {
        heap_.push_back({time, stream});
        up(heap_.size() - 1);
    }
    void pop() {
        place_[heap_.front().stream] = none;
        const Entry last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) down(0, last);
    }
    /// Changes the time of a stream that is there.
    void move(std::uint32_t stream, double time) {
        const std::size_t at = place_[stream];
        const Entry entry{time, stream};
        heap_[at] = entry;
        up(at);
        down(place_[stream], entry);
    }

private:
    struct Entry {
        double time = 0.0;
        std::uint32_t stream = 0;
        friend bool operator<(const Entry& a, const Entry& b) {
            return a.time < b.time || (a.time == b.time && a.stream < b.stream);
        }
    };
    static constexpr std::uint32_t none = 0xFFFFFFFFU;
    static constexpr std::size_t width = 4;

    void put(std::size_t at, const Entry& entry) {
        heap_[at] = entry;
        place_[entry.stream] = static_cast<std::uint32_t>(at);
    }
    void up(std::size_t at) {
        const Entry entry = heap_[at];
        while (at > 0) {
            const std::size_t parent = (at - 1) / width;
            if (!(entry < heap_[parent])) break;
            put(at, heap_[parent]);
            at = parent;
        }
        put(at, entry);
    }
    void down(std::size_t at, const Entry entry) {
        const std::size_t n = heap_.size();
        for (;;) {
            const std::size_t first = width * at + 1;
            if (first >= n) break;
            std::size_t least = first;
            const std::size_t end = std::min(first + width, n);
            for (std::size_t i = first + 1; i < end; ++i) {
                if (heap_[i] < heap_[least]) least = i;
            }
            if (!(heap_[least] < entry)) break;
            put(at, heap_[least]);
            at = least;
        }
        put(at, entry);
    }

    std::vector<Entry> heap_;
    std::vector<std::uint32_t> place_; ///< by stream
};

/// Shares are added and taken away again, so they are counted in whole parts.
constexpr double parts = 1048576.0;
/// However much communication runs, compute gets this share.
constexpr double least_share = 0.05;

class Player {
public:
    Player(const TaskGraph& graph, const TaskCosts& costs, const PlayOptions& options)
        : g_(graph),
          c_(costs),
          options_(options),
          queue_(graph.streams()),
          waits_(graph.waits),
          next_(graph.first_on_stream.begin(), graph.first_on_stream.end() - 1),
          running_(graph.streams(), no_task) {
        out_.start.assign(graph.size(), 0.0);
        out_.finish.assign(graph.size(), 0.0);
        out_.cause.assign(graph.size(), no_task);
        const std::size_t joints = graph.joints();
        out_.last_member.assign(joints, no_task);
        missing_.resize(joints);
        for (std::size_t j = 0; j < joints; ++j) {
            missing_[j] = graph.first_member[j + 1] - graph.first_member[j];
        }
        slows_ = !costs.device.empty();
        if (slows_) {
            std::uint32_t devices = 0;
            for (const std::uint32_t d : costs.device)
                devices = std::max(devices, d + 1);
            devices_.resize(devices);
            work_.resize(graph.streams());
            for (std::size_t s = 0; s < graph.streams(); ++s) {
                if (costs.is_compute[s] != 0) {
                    devices_[costs.device[s]].compute = static_cast<std::uint32_t>(s);
                }
            }
        }
        if (!costs.route.empty()) network_.emplace(costs.links);
    }

    Result<Play> run() {
        for (std::size_t s = 0; s < g_.streams(); ++s) {
            try_start(static_cast<std::uint32_t>(s), no_task);
        }
        settle();
        for (;;) {
            const double flow = network_ ? network_->next_end() : infinity;
            std::uint32_t task = no_task;
            if (flow < queue_.time()) {
                now_ = flow;
                task = running_[network_->finish_next()];
                ++out_.flow_events;
            } else if (!queue_.empty()) {
                now_ = queue_.time();
                task = running_[queue_.stream()];
                queue_.pop();
            } else {
                break;
            }
            finish_all(task);
            settle();
            if (out_.events > options_.most_events) return too_many();
        }
        if (finished_ < g_.size()) return stuck();
        out_.makespan = now_;
        return std::move(out_);
    }

private:
    struct Device {
        std::int64_t units = 0;     ///< in parts
        std::int64_t bandwidth = 0; ///< in parts
        std::uint32_t compute = no_task;
    };
    /// The running task of a stream of compute.
    struct Work {
        double left = 0.0; ///< seconds alone
        double since = 0.0;
        double rate = 0.0;
        std::uint32_t task = no_task;
    };

    void try_start(std::uint32_t stream, std::uint32_t cause) {
        if (running_[stream] != no_task || next_[stream] == g_.first_on_stream[stream + 1]) return;
        const std::uint32_t task = g_.on_stream[next_[stream]];
        if (waits_[task] != 0) return;
        ++next_[stream];
        running_[stream] = task;
        out_.start[task] = now_;
        out_.cause[task] = cause;
        if (slows_) take(task, stream, 1);
        if (!g_.joint.empty() && g_.joint[task] != no_joint) {
            const std::uint32_t joint = g_.joint[task];
            if (--missing_[joint] > 0) return;
            out_.last_member[joint] = task;
        }
        begin(task, stream);
    }

    void begin(std::uint32_t task, std::uint32_t stream) {
        const double seconds = c_.seconds[task];
        if (network_ && c_.route[task] != no_route && seconds > 0.0 && c_.bytes[task] > 0.0) {
            network_->start(now_, stream, c_.route[task], c_.bytes[task], c_.bytes[task] / seconds);
            ++out_.flow_events;
            return;
        }
        if (seconds <= 0.0) {
            over_.push_back(task);
            return;
        }
        double end = now_ + seconds;
        if (slows_ && c_.is_compute[stream] != 0 && can_slow(task)) {
            work_[stream] = {seconds, now_, rate_of(task, devices_[c_.device[stream]]), task};
            if (work_[stream].rate != 1.0) end = now_ + seconds / work_[stream].rate;
        }
        queue_.push(end, stream);
        out_.largest_queue = std::max(out_.largest_queue, queue_.size());
    }

    [[nodiscard]] bool can_slow(std::uint32_t task) const {
        return c_.bandwidth_bound.empty() || c_.bandwidth_bound[task] >= 0.0F;
    }
    [[nodiscard]] double rate_of(std::uint32_t task, const Device& device) const {
        if (device.units == 0 && device.bandwidth == 0) return 1.0;
        const auto left = [](std::int64_t taken) {
            return std::max(least_share, 1.0 - static_cast<double>(taken) / parts);
        };
        const double bound =
            c_.bandwidth_bound.empty() ? 0.0 : static_cast<double>(c_.bandwidth_bound[task]);
        return 1.0 / ((1.0 - bound) / left(device.units) + bound / left(device.bandwidth));
    }

    /// A task that takes compute from its device begins (+1) or ends (-1).
    void take(std::uint32_t task, std::uint32_t stream, std::int64_t sign) {
        const auto whole = [&](const std::vector<float>& shares) {
            return shares.empty()
                       ? std::int64_t{0}
                       : static_cast<std::int64_t>(static_cast<double>(shares[task]) * parts + 0.5);
        };
        const std::int64_t units = whole(c_.takes_units);
        const std::int64_t bandwidth = whole(c_.takes_bandwidth);
        if (units == 0 && bandwidth == 0) return;
        Device& device = devices_[c_.device[stream]];
        device.units += sign * units;
        device.bandwidth += sign * bandwidth;
        if (device.compute == no_task || device.compute == stream) return;
        const std::uint32_t slowed = running_[device.compute];
        Work& work = work_[device.compute];
        if (slowed == no_task || work.task != slowed) return;
        const double rate = rate_of(slowed, device);
        if (rate == work.rate) return;
        work.left = std::max(0.0, work.left - (now_ - work.since) * work.rate);
        work.since = now_;
        work.rate = rate;
        queue_.move(device.compute, now_ + work.left / rate);
        ++out_.events;
    }

    /// Ends a task, and all that run as one with it.
    void finish_all(std::uint32_t task) {
        if (g_.joint.empty() || g_.joint[task] == no_joint) {
            finish(task);
            return;
        }
        const std::uint32_t joint = g_.joint[task];
        // first all end, then what they let start does
        for (std::uint32_t i = g_.first_member[joint]; i < g_.first_member[joint + 1]; ++i) {
            end(g_.members[i]);
        }
        for (std::uint32_t i = g_.first_member[joint]; i < g_.first_member[joint + 1]; ++i) {
            release(g_.members[i]);
        }
    }
    void finish(std::uint32_t task) {
        end(task);
        release(task);
    }
    void end(std::uint32_t task) {
        const std::uint32_t stream = g_.stream[task];
        out_.finish[task] = now_;
        ++out_.events;
        ++finished_;
        running_[stream] = no_task;
        if (slows_) take(task, stream, -1);
    }
    void release(std::uint32_t task) {
        for (std::uint32_t i = g_.first_successor[task]; i < g_.first_successor[task + 1]; ++i) {
            const std::uint32_t next = g_.successors[i];
            if (--waits_[next] == 0) try_start(g_.stream[next], task);
        }
        try_start(g_.stream[task], task);
    }
    /// Tasks that take no time end when they begin.
    void settle() {
        while (!over_.empty()) {
            const std::uint32_t task = over_.back();
            over_.pop_back();
            finish_all(task);
        }
    }

    [[nodiscard]] Error too_many() const {
        return {ErrorCode::bad_input, "simulation",
                "needs more than " + std::to_string(options_.most_events) + " events",
                "allow more events, or simulate fewer micro-batches or ranks"};
    }
    [[nodiscard]] Error stuck() const {
        std::size_t first = 0;
        std::size_t stream = 0;
        for (std::size_t s = 0; s < g_.streams(); ++s) {
            if (next_[s] < g_.first_on_stream[s + 1]) {
                first = g_.on_stream[next_[s]];
                stream = s;
                break;
            }
        }
        return {ErrorCode::bad_input, "simulation",
                std::to_string(g_.size() - finished_) + " tasks wait for one another, first task " +
                    std::to_string(first) + " on stream " + std::to_string(stream),
                "check the schedule with check_schedule"};
    }

    const TaskGraph& g_;
    const TaskCosts& c_;
    PlayOptions options_;
    Queue queue_;
    std::vector<std::uint32_t> waits_;
    std::vector<std::uint32_t> next_;    ///< by stream: place of the next task
    std::vector<std::uint32_t> running_; ///< by stream
    std::vector<std::uint32_t> missing_; ///< by joint: members not there yet
    std::vector<std::uint32_t> over_;    ///< tasks that end now
    std::vector<Device> devices_;
    std::vector<Work> work_; ///< by stream
    std::optional<FairShare> network_;
    bool slows_ = false;
    double now_ = 0.0;
    std::size_t finished_ = 0;
    Play out_;
};

} // namespace

Result<Play> play(const TaskGraph& graph, const TaskCosts& costs, const PlayOptions& options) {
    return Player(graph, costs, options).run();
}

} // namespace shardplan::sim
