#include "simulator/network/group_path.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "simulator/network/algorithms.hpp"
#include "simulator/network/path_parts.hpp"
#include "simulator/network/ring_search.hpp"

namespace shardplan::sim {

std::int64_t members_within(const GroupRanks& ranks, std::int64_t unit) {
    std::int64_t members = 1;
    for (const StridedRanks& run : ranks.runs) {
        if (ranks.all <= unit) {
            members *= run.size;
        } else if (unit % run.stride == 0) {
            members *= std::gcd(run.size, unit / run.stride);
        }
    }
    return members;
}

const FabricProfile* profile_of(const Scenario& scenario, std::string_view name,
                                std::size_t group) {
    const FabricProfile* found = nullptr;
    for (const FabricProfile& profile : scenario.fabrics) {
        if (profile.name != name) continue;
        const bool is_theirs = !profile.arch.empty() && group < scenario.devices.size() &&
                               scenario.devices[group].arch.starts_with(profile.arch);
        if (is_theirs) return &profile;
        if (found == nullptr || (profile.arch.empty() && !found->arch.empty())) found = &profile;
    }
    return found;
}

Bandwidth planned(const LinkBandwidth& link, const FabricProfile* profile) {
    if (link.measured) return *link.measured;
    if (link.achievable) return *link.achievable;
    const double efficiency = profile != nullptr ? profile->bandwidth_efficiency.value : 1.0;
    return link.physical * efficiency;
}

namespace {

/// A way of moving data as a share of what a ring with plain stores reaches.
void set_transport(const FabricProfile& profile, const std::optional<TransportProfile>& from,
                   Transport& to) {
    const double whole = profile.bandwidth_efficiency.value;
    if (!from || whole <= 0.0) return;
    to = {from->bandwidth_efficiency.value / whole, Seconds(from->step_latency.value),
          Bytes(from->half_size.value)};
}

void set_profile(const FabricProfile* profile, const LinkBandwidth& link, PathLevel& level) {
    if (profile == nullptr) return;
    level.spread = spread_of(*profile, link.measured.has_value());
    level.step_latency = Seconds(profile->step_latency.value);
    level.launch_latency = Seconds(profile->launch_latency.value);
    level.half_size = Bytes(profile->half_size.value);
    level.ramp = profile->ramp.source.empty() ? 1.0 : profile->ramp.value;
    if (profile->floor_latency) level.floor_latency = Seconds(profile->floor_latency->value);
    if (profile->reduction_rate && profile->reduction_rate->value > 0.0) {
        level.seconds_per_sum = 1.0 / profile->reduction_rate->value;
    }
    set_transport(*profile, profile->low_latency, level.low_latency);
    set_transport(*profile, profile->low_latency_128, level.low_latency_128);
    set_transport(*profile, profile->tree, level.tree);
    set_transport(*profile, profile->in_switch, level.in_switch);
    if (profile->buffers) {
        const BufferProfile& b = *profile->buffers;
        level.buffers = {b.channels ? b.channels->value : 0.0,
                         b.channel_rate ? b.channel_rate->value : 0.0,
                         Bytes(b.connection_buffers.value), Bytes(b.message_buffers.value),
                         b.in_switch_buffers ? Bytes(b.in_switch_buffers->value) : Bytes()};
    }
}

/// Device to device through host memory: every byte goes up one slot and down another, and is
/// written to and read from host memory, which `sharing` devices of the node share.
Bandwidth through_host(const NodeTemplate& node, double sharing) {
    Bandwidth rate = usable(node.host.pcie_per_device) / 2.0;
    if (node.host.memory_bandwidth.value() > 0.0 && sharing > 0.0) {
        rate = std::min(rate, node.host.memory_bandwidth / (2.0 * sharing));
    }
    return rate;
}
Bandwidth through_host(const NodeTemplate& node) {
    return through_host(node, static_cast<double>(node.devices));
}

/// Rings of a group of `members` neighbours at `stride` in a node with links between its devices;
/// nothing where it states none.
std::optional<Rings> rings_in_node(const Scenario& scenario, std::size_t group, std::int64_t used,
                                   std::int64_t stride, std::int64_t members) {
    const auto node_group = static_cast<std::int64_t>(group);
    for (const MeshRings& m : scenario.mesh_rings) {
        if (m.node_group == node_group && m.used == used && m.stride == stride &&
            m.size == members) {
            return Rings{m.count, m.relayed};
        }
    }
    const NodeTemplate& node = scenario.cluster.node_groups[group].node;
    if (node.links.empty()) return std::nullopt;
    const LinkGraph graph = link_graph(node);
    if (graph.devices < used) return std::nullopt;
    return fewest_rings(graph, used, stride, members);
}

/// A group of a scale-up domain: where its ranks are.
struct InDomain {
    std::size_t node_group = 0;
    std::int64_t domain = 1;  ///< devices
    std::int64_t members = 1; ///< ranks of the group in one domain
    std::int64_t used = 1;    ///< devices of the domain the layout uses
    std::int64_t stride = 1;
};

/// A mesh: a rank reaches each neighbour over links of its own, and those to others lie idle.
void set_mesh(const Scenario& scenario, const InDomain& in, const FabricProfile* profile,
              PathLevel& level) {
    const auto members = static_cast<double>(std::max<std::int64_t>(2, in.members));
    const Bandwidth whole = level.per_rank;
    const NodeTemplate& node = scenario.cluster.node_groups[in.node_group].node;
    const bool nvlink = node.scaleup.kind == ScaleupKind::nvlink_mesh;
    const auto rings = nvlink
                           ? rings_in_node(scenario, in.node_group, in.used, in.stride, in.members)
                           : std::nullopt;
    if (!rings) {
        const Bandwidth pair = whole / static_cast<double>(in.domain - 1);
        level.per_rank = pair * (members - 1.0);
        level.per_link = pair;
        level.chain_gain = members / (members - 1.0);
        return;
    }
    const LinkGraph graph = link_graph(node);
    const double kept = profile != nullptr ? profile->bandwidth_efficiency.value : 1.0;
    const Bandwidth link = graph.per_link * kept;
    level.per_link = link;
    level.per_rank = link * static_cast<double>(rings->count);
    if (rings->relayed && profile != nullptr && profile->relay_efficiency) {
        level.per_rank = level.per_rank * profile->relay_efficiency->value;
    }
    if (rings->count == 0) level.per_rank = level.per_link = through_host(node);
}

/// Inside one scale-up domain.
PathLevel scaleup_level(const Scenario& scenario, const InDomain& in) {
    const NodeTemplate& node = scenario.cluster.node_groups[in.node_group].node;
    const Scaleup& s = node.scaleup;
    PathLevel level;
    level.name = name_of(s.kind);
    level.is_scaleup = true;
    const FabricProfile* profile = profile_of(scenario, level.name, in.node_group);
    set_profile(profile, s.per_device, level);
    if (s.latency.value() > 0.0) level.step_latency = s.latency;
    level.per_rank = planned(s.per_device, profile);
    level.per_link = level.per_rank;
    const bool mesh = s.kind == ScaleupKind::nvlink_mesh || s.kind == ScaleupKind::xgmi_mesh;
    if (mesh && in.domain > 1) set_mesh(scenario, in, profile, level);
    // ranks that are cores of the host copy messages themselves, as fast as their node says
    const bool copies = s.kind == ScaleupKind::none && s.per_device.physical.value() > 0.0;
    if ((s.kind == ScaleupKind::none && !copies) || !s.peer_access) {
        const Bandwidth host = through_host(node);
        if (host.value() > 0.0) {
            level.per_rank = s.kind == ScaleupKind::none ? host : std::min(level.per_rank, host);
        }
        level.per_link = level.per_rank;
    }
    level.members = in.members;
    level.sharing_groups =
        std::max<std::int64_t>(1, in.domain / std::max<std::int64_t>(1, in.members));
    return level;
}

/// Between the domains of one node (bridged pairs): over the host's bus.
PathLevel host_level(const Scenario& scenario, std::size_t group) {
    const NodeTemplate& node = scenario.cluster.node_groups[group].node;
    PathLevel level;
    level.name = name_of(ScaleupKind::pcie);
    level.is_scaleup = true;
    const FabricProfile* profile = profile_of(scenario, level.name, group);
    set_profile(profile, node.host.pcie_per_device, level);
    level.per_rank =
        node.scaleup.peer_access ? planned(node.host.pcie_per_device, profile) : through_host(node);
    level.per_link = level.per_rank;
    return level;
}

} // namespace

/// Between nodes below one leaf. Channels get equal shares of the data, so where only some cards
/// are staged through the host the others wait for them.
/// Source: NCCL src/graph/search.cc (one speed for all channels).
PathLevel nic_level(const Scenario& scenario, std::size_t group) {
    const NodeTemplate& node = scenario.cluster.node_groups[group].node;
    PathLevel level;
    level.name = name_of(scenario.cluster.fabric.kind);
    const FabricProfile* profile = profile_of(scenario, level.name, group);
    set_profile(profile, node.nics.per_nic, level);
    Bandwidth card = planned(node.nics.per_nic, profile);
    const double cards = static_cast<double>(std::max<std::int64_t>(1, node.nics.count));
    const double devices = static_cast<double>(std::max<std::int64_t>(1, node.devices));
    const auto staged = static_cast<double>(staged_cards(node.nics));
    Bandwidth to_card = usable(node.host.pcie_per_device);
    if (staged > 0.0) {
        if (node.nics.staged_rate) {
            card = std::min(card, *node.nics.staged_rate);
        } else {
            to_card = through_host(node, devices * staged / cards);
        }
        if (profile != nullptr && profile->staged_latency) {
            level.step_latency += Seconds(profile->staged_latency->value);
        }
    }
    if (scenario.cluster.fabric.in_network_reduction && profile != nullptr) {
        set_transport(*profile, profile->in_network, level.in_network);
    }
    level.per_rank = card * cards / devices;
    // a device with several cards of its own spreads one message over them
    level.per_link = std::max(card, level.per_rank);
    if (to_card.value() > 0.0) {
        level.per_rank = std::min(level.per_rank, to_card);
        level.per_link = std::min(level.per_link, to_card);
    }
    return level;
}

PathLevel domain_level(const Scenario& scenario, std::size_t group, std::int64_t domain) {
    return scaleup_level(scenario, {group, domain, domain, domain, 1});
}

namespace {

/// Node groups that hold ranks 0 to `all` - 1, as [0, end).
std::size_t groups_with(const Cluster& cluster, std::int64_t all) {
    std::size_t end = 0;
    for (std::int64_t held = 0; end < cluster.node_groups.size() && held < all; ++end) {
        held += cluster.node_groups[end].count * cluster.node_groups[end].node.devices;
    }
    return std::max<std::size_t>(1, end);
}

/// Of what `level_of` says for each of the first `groups` node groups, the slowest: a collective
/// waits for it.
template <class LevelOf>
PathLevel slowest_level(std::size_t groups, const LevelOf& level_of) {
    PathLevel slowest = level_of(std::size_t{0});
    for (std::size_t i = 1; i < groups; ++i) {
        PathLevel level = level_of(i);
        if (level.per_rank < slowest.per_rank) slowest = level;
    }
    return slowest;
}

/// What the policy of the stack allows.
void set_policy(const Scenario& scenario, GroupPath& path) {
    const CommPolicy& policy = scenario.stack.collectives;
    const bool on_cpus = !scenario.devices.empty() && scenario.devices.front().arch == "x86_64";
    path.algorithms = allowed_algorithms(policy, on_cpus);
    path.protocols = allowed_protocols(policy);
    path.servers = policy.servers;
    // who builds a torus has a library that goes along its dimensions
    const bool is_free = policy.algorithms.empty() && policy.library == CommLibrary::automatic;
    if (!scenario.cluster.fabric.torus.empty() && is_free && !on_cpus) {
        path.algorithms |= 1U << static_cast<unsigned>(Algorithm::torus_2d);
    }
}

} // namespace

double spread_of(const FabricProfile& profile, bool measured) {
    constexpr double half_sizes = 10.0;
    const double ramp = profile.ramp.source.empty() ? 1.0 : profile.ramp.value;
    const double lost = std::pow(half_sizes, -ramp);
    const double share = ramp * lost / (1.0 + lost);
    const double bandwidth = measured ? 0.0 : profile.bandwidth_efficiency.sigma;
    const double half = share * profile.half_size.sigma;
    const double power = share * std::log(half_sizes) * profile.ramp.sigma;
    return std::sqrt(bandwidth * bandwidth + half * half + power * power);
}

namespace {

/// More than any cluster has.
constexpr std::int64_t most_ranks = std::int64_t{1} << 40;

/// The smallest nodes and scale-up domains of the groups that hold ranks: where groups differ they
/// decide what stays inside.
struct Units {
    std::int64_t devices = 1;
    std::int64_t domain = 1;
};
Units units_of(const Cluster& cluster, std::size_t groups, std::int64_t all) {
    Units out{most_ranks, most_ranks};
    for (std::size_t i = 0; i < groups; ++i) {
        const NodeTemplate& node = cluster.node_groups[i].node;
        const std::int64_t devices = std::max<std::int64_t>(1, node.devices);
        const std::int64_t domain = node.scaleup.domain_devices;
        out.devices = std::min(out.devices, devices);
        out.domain = std::min(out.domain, domain > 0 ? domain : devices);
    }
    // a fabric of this kind is the scale-up network itself
    if (cluster.fabric.kind == FabricKind::nvlink_domain) out.domain = std::max(out.domain, all);
    return out;
}

/// Tiers between nodes below a tree of switches.
void add_switch_levels(const Scenario& scenario, const GroupRanks& ranks, std::int64_t devices,
                       const PathLevel& nic, std::int64_t reached, std::int64_t sharing,
                       GroupPath& path) {
    double oversubscription = 1.0;
    Seconds climbed;
    const auto add_level = [&](std::int64_t inside) {
        PathLevel level = nic;
        level.members = inside / reached;
        level.per_rank = nic.per_rank / oversubscription;
        level.per_link = nic.per_link / oversubscription;
        level.step_latency = nic.step_latency + climbed;
        level.sharing_groups = sharing;
        path.levels.push_back(level);
        reached = inside;
    };
    for (const FabricLevel& tier : scenario.cluster.fabric.levels) {
        climbed += tier.latency;
        const std::int64_t inside = tier.nodes_per_group > 0
                                        ? members_within(ranks, tier.nodes_per_group * devices)
                                        : path.ranks;
        if (inside > reached) add_level(inside);
        if (reached == path.ranks) return;
        oversubscription *= std::max(1.0, tier.oversubscription);
    }
    add_level(path.ranks);
}

/// The tiers of a group of several ranks.
void add_levels(const Scenario& scenario, const GroupRanks& ranks, GroupPath& path) {
    const Cluster& cluster = scenario.cluster;
    const std::int64_t all = ranks.all;
    const std::size_t groups = groups_with(cluster, all);
    const auto [devices, domain] = units_of(cluster, groups, all);
    std::int64_t reached = 1; // ranks of the group inside the units below

    const std::int64_t in_domain = members_within(ranks, domain);
    if (in_domain > 1) {
        path.levels.push_back(slowest_level(groups, [&](std::size_t group) {
            return scaleup_level(
                scenario, {group, domain, in_domain, std::min(all, domain), ranks.first_stride});
        }));
        reached = in_domain;
    }
    if (reached < path.ranks && domain < devices) {
        const std::int64_t in_node = members_within(ranks, devices);
        if (in_node > reached) {
            PathLevel level = slowest_level(
                groups, [&](std::size_t group) { return host_level(scenario, group); });
            level.members = in_node / reached;
            level.sharing_groups = std::max<std::int64_t>(1, devices / in_node);
            path.levels.push_back(level);
            reached = in_node;
        }
    }
    if (reached == path.ranks) return;

    const PathLevel nic =
        slowest_level(groups, [&](std::size_t group) { return nic_level(scenario, group); });
    if (!cluster.fabric.torus.empty()) {
        const bool has_cards =
            std::any_of(cluster.node_groups.begin(), cluster.node_groups.end(),
                        [](const NodeGroup& group) { return group.node.nics.count > 0; });
        add_torus_levels(scenario, ranks, devices, nic, has_cards, reached, path);
        return;
    }
    const std::int64_t sharing = std::max<std::int64_t>(1, std::max(devices, domain) / reached);
    add_switch_levels(scenario, ranks, devices, nic, reached, sharing, path);
}

} // namespace

GroupPath tiers_of(const Scenario& scenario, const GroupRanks& ranks) {
    GroupPath path;
    path.ranks = ranks.size();
    if (path.ranks <= 1 || scenario.cluster.node_groups.empty()) return path;
    set_policy(scenario, path);
    add_levels(scenario, ranks, path);
    return path;
}

GroupPath tiers_of(const Scenario& scenario, const Layout& layout, Group group) {
    return tiers_of(scenario, group_ranks(layout, group));
}

GroupPath path_of(const Scenario& scenario, const Layout& layout, Group group) {
    GroupPath path = tiers_of(scenario, layout, group);
    path.costs = cost_lines(path);
    return path;
}

} // namespace shardplan::sim
