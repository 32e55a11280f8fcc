#include "simulator/engine/expand.hpp"

#include <unordered_map>

namespace shardplan::sim {

namespace {

bool is_pass(TaskKind kind) {
    return kind == TaskKind::forward || kind == TaskKind::backward || kind == TaskKind::weight;
}

/// Number of the group that a rank of a stage communicates in with a task, -1: alone.
std::int64_t group_of(const Schedule& s, std::size_t task, const RankGrid& g, std::int64_t rank) {
    const std::int64_t t = rank % g.tp;
    switch (s.kind[task]) {
        case TaskKind::exchange:
            switch (s.stream[task]) {
                case StreamKind::tp:
                    return rank / g.tp;
                case StreamKind::cp:
                    return rank / (std::int64_t{g.tp} * g.cp) * g.tp + t;
                default:
                    return rank / g.experts;
            }
        case TaskKind::gather:
        case TaskKind::reduce_gradient:
        case TaskKind::gather_parameter:
            return t;
        default:
            return -1;
    }
}

} // namespace

TaskGraph expand(const Schedule& s, const RankGrid& grid) {
    const TaskGraph base = graph_of(s);
    const auto n = static_cast<std::size_t>(grid.ranks());
    const std::size_t tasks = base.size() * n;
    TaskGraph g;
    g.stream.resize(tasks);
    g.waits.resize(tasks);
    g.joint.assign(tasks, no_joint);
    g.first_successor.reserve(tasks + 1);
    g.successors.reserve(base.successors.size() * n);
    g.first_successor.push_back(0);
    g.first_member.push_back(0);
    std::vector<std::vector<std::uint32_t>> groups(n);
    for (std::size_t task = 0; task < base.size(); ++task) {
        for (auto& group : groups)
            group.clear();
        bool joins = false;
        for (std::size_t r = 0; r < n; ++r) {
            const std::size_t id = task * n + r;
            g.stream[id] = static_cast<std::uint32_t>(base.stream[task] * n + r);
            g.waits[id] = base.waits[task];
            for (std::uint32_t i = base.first_successor[task]; i < base.first_successor[task + 1];
                 ++i) {
                g.successors.push_back(static_cast<std::uint32_t>(base.successors[i] * n + r));
            }
            g.first_successor.push_back(static_cast<std::uint32_t>(g.successors.size()));
            const std::int64_t group = group_of(s, task, grid, static_cast<std::int64_t>(r));
            if (group < 0) continue;
            joins = true;
            groups[static_cast<std::size_t>(group)].push_back(static_cast<std::uint32_t>(id));
        }
        if (!joins) continue;
        for (const auto& group : groups) {
            if (group.size() < 2) continue;
            const auto joint = static_cast<std::uint32_t>(g.joints());
            for (const std::uint32_t id : group)
                g.joint[id] = joint;
            g.members.insert(g.members.end(), group.begin(), group.end());
            g.first_member.push_back(static_cast<std::uint32_t>(g.members.size()));
        }
    }
    g.first_on_stream.push_back(0);
    for (std::size_t stream = 0; stream < base.streams(); ++stream) {
        for (std::size_t r = 0; r < n; ++r) {
            for (std::uint32_t i = base.first_on_stream[stream];
                 i < base.first_on_stream[stream + 1]; ++i) {
                g.on_stream.push_back(static_cast<std::uint32_t>(base.on_stream[i] * n + r));
            }
            g.first_on_stream.push_back(static_cast<std::uint32_t>(g.on_stream.size()));
        }
    }
    return g;
}

namespace {

/// Links of every rank, and routes over those of all members of a group.
class Routes {
public:
    Routes(const TaskCosts& base, std::size_t ranks, LinkTable& out)
        : base_(base), n_(ranks), out_(out) {
        for (const double capacity : base.links.capacity) {
            out_.capacity.insert(out_.capacity.end(), ranks, capacity);
        }
    }
    /// `members`: ranks of the stage.
    std::uint32_t over(std::uint32_t route, const std::vector<std::size_t>& members) {
        // a group is known by its first member and its size
        const std::uint64_t key =
            (std::uint64_t{route} * n_ + members.front()) * (n_ + 1) + members.size();
        const auto it = known_.find(key);
        if (it != known_.end()) return it->second;
        std::vector<std::uint32_t> links;
        for (std::uint32_t i = base_.links.first_link[route]; i < base_.links.first_link[route + 1];
             ++i) {
            for (const std::size_t r : members) {
                links.push_back(static_cast<std::uint32_t>(base_.links.links[i] * n_ + r));
            }
        }
        return known_[key] = out_.add_route(links);
    }

private:
    const TaskCosts& base_;
    std::size_t n_;
    LinkTable& out_;
    std::unordered_map<std::uint64_t, std::uint32_t> known_;
};

} // namespace

TaskCosts expand_costs(const Schedule& s, const TaskCosts& base, const TaskGraph& g,
                       const RankGrid& grid, const Stragglers& stragglers) {
    const auto n = static_cast<std::size_t>(grid.ranks());
    TaskCosts out;
    const auto repeat = [&](const auto& column) {
        std::decay_t<decltype(column)> rows;
        rows.reserve(column.size() * n);
        for (const auto& value : column)
            rows.insert(rows.end(), n, value);
        return rows;
    };
    out.seconds = repeat(base.seconds);
    out.is_compute = repeat(base.is_compute);
    out.takes_units = repeat(base.takes_units);
    out.takes_bandwidth = repeat(base.takes_bandwidth);
    out.bandwidth_bound = repeat(base.bandwidth_bound);
    out.bytes = repeat(base.bytes);
    for (const std::uint32_t device : base.device) {
        for (std::size_t r = 0; r < n; ++r) {
            out.device.push_back(static_cast<std::uint32_t>(device * n + r));
        }
    }
    std::vector<double> factor(static_cast<std::size_t>(s.shape.stages) * n);
    for (std::size_t i = 0; i < factor.size(); ++i) {
        factor[i] =
            stragglers.factor(static_cast<std::int64_t>(i / n), static_cast<std::int64_t>(i % n));
    }
    for (std::size_t task = 0; task < s.size(); ++task) {
        if (!is_pass(s.kind[task])) continue;
        for (std::size_t r = 0; r < n; ++r)
            out.seconds[task * n + r] *= factor[s.stage[task] * n + r];
    }
    if (base.route.empty()) return out;
    out.route.assign(out.seconds.size(), no_route);
    Routes routes(base, n, out.links);
    std::vector<std::size_t> members;
    for (std::size_t id = 0; id < out.route.size(); ++id) {
        const std::uint32_t route = base.route[id / n];
        if (route == no_route) continue;
        members.clear();
        const std::uint32_t joint = g.joint[id];
        if (joint == no_joint) {
            members.push_back(id % n);
        } else {
            for (std::uint32_t i = g.first_member[joint]; i < g.first_member[joint + 1]; ++i) {
                members.push_back(g.members[i] % n);
            }
        }
        out.route[id] = routes.over(route, members);
    }
    return out;
}

void slow_down(const Schedule& s, const RankGrid& grid, const Stragglers& stragglers,
               TaskCosts& costs) {
    if (stragglers.sigma <= 0.0) return;
    std::vector<double> factor;
    for (std::int32_t stage = 0; stage < s.shape.stages; ++stage) {
        factor.push_back(stragglers.slowest(stage, grid.ranks()));
    }
    for (std::size_t task = 0; task < s.size(); ++task) {
        if (is_pass(s.kind[task])) costs.seconds[task] *= factor[s.stage[task]];
    }
}

} // namespace shardplan::sim
