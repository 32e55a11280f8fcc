#include "simulator/network/communicators.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::sim {

namespace {

/// Connections of a ring and of a tree that hold buffers on a rank, inside a node: the receiving
/// side holds them. A chain inside a node has a neighbour above and one below.
constexpr double ring_receives = 1.0;
constexpr double chain_receives = 2.0;
/// Over a network both sides hold them; a node of a binary tree has a parent and two children.
constexpr double ring_ends = 2.0;
constexpr double tree_ends = 6.0;
/// Fewest channels a searched graph has before they are doubled, and the most after.
constexpr double fewest_channels = 2.0;
constexpr double most_channels = 32.0;
constexpr double doubling = 2.0;
/// Channels that one peer's messages use.
constexpr double channels_per_peer = 2.0;

double connection_bytes(const GroupPath& path) {
    double bytes = 0.0;
    for (const PathLevel& level : path.levels) {
        bytes = std::max(bytes, level.buffers.connection.value());
    }
    return bytes;
}

bool has(const GroupPath& path, Algorithm a) {
    return (path.algorithms & 1U << static_cast<unsigned>(a)) != 0;
}

} // namespace

double channels_of(const GroupPath& path) {
    if (path.ranks <= 1 || path.levels.empty()) return 0.0;
    const PathLevel& inner = path.levels.front();
    const PathLevel& outer = path.levels.back();
    if (outer.is_scaleup) return outer.buffers.channels;
    if (outer.buffers.channel_rate <= 0.0) return 0.0;
    const auto inside = static_cast<double>(inner.is_scaleup ? inner.members : 1);
    const double searched = outer.per_rank.value() * inside / outer.buffers.channel_rate;
    return std::min(most_channels, doubling * std::max(fewest_channels, std::ceil(searched)));
}

Bytes communicator_memory(const GroupPath& path) {
    const double channels = channels_of(path);
    if (channels <= 0.0) return {};
    const PathLevel& inner = path.levels.front();
    const bool over_network = !path.levels.back().is_scaleup;
    const bool in_switch = inner.is_scaleup && inner.in_switch.share > 0.0;
    double connections = 0.0;
    if (over_network) {
        // of the ranks of a node each is the one at the cards for its share of the channels
        const auto g = static_cast<double>(inner.is_scaleup ? inner.members : 1);
        const double at_cards = 1.0 / g;
        connections += at_cards * (ring_ends + (has(path, Algorithm::tree) ? tree_ends : 0.0));
        if (g > 1.0) {
            connections += ring_receives + (has(path, Algorithm::tree) ? chain_receives : 0.0);
        }
    } else {
        connections = ring_receives + (has(path, Algorithm::tree) ? chain_receives : 0.0);
    }
    Bytes bytes(channels * connections * connection_bytes(path));
    if (in_switch) bytes += inner.buffers.in_switch;
    return bytes;
}

Bytes message_memory(const GroupPath& path) {
    if (path.ranks <= 1 || path.levels.empty()) return {};
    double plain = 0.0;
    for (const PathLevel& level : path.levels) {
        plain = std::max(plain, level.buffers.message.value());
    }
    const auto peers = static_cast<double>(path.ranks - 1);
    return Bytes(channels_per_peer * peers * plain);
}

namespace {

/// `path_of_group`: gives the path of a Group.
template <class PathOf>
CommunicatorMemory opened(const Layout& layout, const PathOf& path_of_group) {
    CommunicatorMemory out;
    const double replicas = static_cast<double>(layout.dp) * layout.cp;
    const bool hybrid = layout.shard_group > 0 && layout.shard_group < replicas;
    const auto add = [&](Group group, bool opens, bool messages) {
        if (!opens) return;
        const GroupPath& path = path_of_group(group);
        const Bytes bytes = communicator_memory(path);
        if (bytes.value() <= 0.0) {
            ++out.others;
            return;
        }
        out.buffers += bytes;
        if (messages) out.buffers += message_memory(path);
    };
    add(Group::tp, layout.tp > 1, false);
    add(Group::cp, layout.cp > 1, layout.cp_kind == CpKind::all_to_all);
    add(Group::dp_cp, replicas > 1.0, false);
    add(Group::ep, layout.ep > 1, true);
    add(Group::shard, hybrid, false);
    return out;
}

} // namespace

CommunicatorMemory communicators_of(const Scenario& scenario, const Layout& layout) {
    return opened(layout, [&](Group group) { return tiers_of(scenario, layout, group); });
}

CommunicatorMemory communicators_of(const GroupPaths& paths, const Layout& layout) {
    return opened(layout, [&](Group group) -> const GroupPath& { return path_in(paths, group); });
}

} // namespace shardplan::sim
