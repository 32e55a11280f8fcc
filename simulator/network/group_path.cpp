#include "simulator/network/group_path.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace shardplan::sim {

namespace {

/// Degrees and strides of a layout in its rank order, with the expert dimensions cut out of the
/// ranks of one stage (tp x cp x dp).
class RankGrid {
public:
    explicit RankGrid(const Layout& layout) : layout_(layout) {
        std::int64_t stride = 1;
        bool ep_seen = false;
        for (const Dim dim : order_of(layout.order)) {
            switch (dim) {
                case Dim::ep:
                    ep_seen = true;
                    continue;
                case Dim::pp:
                    below_pp_ = stride;
                    break;
                case Dim::dp:
                    ep_before_dp_ = ep_seen;
                    break;
                case Dim::tp:
                case Dim::cp:
                    break;
            }
            stride_[static_cast<std::size_t>(dim)] = stride;
            stride *= degree(dim);
        }
    }

    [[nodiscard]] std::int64_t degree(Dim dim) const {
        switch (dim) {
            case Dim::tp:
                return layout_.tp;
            case Dim::cp:
                return layout_.cp;
            case Dim::ep:
                return layout_.ep;
            case Dim::dp:
                return layout_.dp;
            case Dim::pp:
                return layout_.pp;
        }
        return 1;
    }
    [[nodiscard]] StridedRanks along(Dim dim) const {
        return {stride_[static_cast<std::size_t>(dim)], degree(dim)};
    }
    /// The expert grid: etp innermost, then ep and the copies of the experts in the order in which
    /// ep and dp stand. Source: Megatron-Core, parallel_state.py, expert rank generator.
    [[nodiscard]] std::vector<StridedRanks> experts(Group group) const {
        const std::int64_t stage_ranks =
            std::int64_t{layout_.tp} * layout_.cp * std::int64_t{layout_.dp};
        const std::int64_t etp = etp_of(layout_);
        const std::int64_t ep = layout_.ep;
        const std::int64_t copies = std::max<std::int64_t>(1, stage_ranks / (etp * ep));
        if (group == Group::etp) return spread({1, etp});
        const bool is_ep = group == Group::ep;
        const bool is_inner = is_ep == ep_before_dp_;
        const std::int64_t size = is_ep ? ep : copies;
        const std::int64_t other = is_ep ? copies : ep;
        return spread({is_inner ? etp : etp * other, size});
    }

private:
    /// A run over the ranks of one stage, as ranks of the cluster: pipeline stages may stand
    /// between them.
    [[nodiscard]] std::vector<StridedRanks> spread(StridedRanks run) const {
        const std::int64_t pp = layout_.pp;
        if (pp == 1 || run.stride * run.size <= below_pp_) return {run};
        if (run.stride >= below_pp_) return {{run.stride * pp, run.size}};
        const std::int64_t inner = below_pp_ / run.stride;
        return {{run.stride, inner}, {below_pp_ * pp, run.size / inner}};
    }

    const Layout& layout_;
    std::array<std::int64_t, 5> stride_{};
    std::int64_t below_pp_ = 1; ///< ranks of a stage that neighbour one another
    bool ep_before_dp_ = true;
};

/// Splits the product of runs into its innermost `wanted` ranks and the rest.
void split_runs(const std::vector<StridedRanks>& runs, std::int64_t wanted,
                std::vector<StridedRanks>& inner, std::vector<StridedRanks>& outer) {
    for (const StridedRanks& run : runs) {
        const std::int64_t taken = std::gcd(run.size, std::max<std::int64_t>(1, wanted));
        if (taken > 1) inner.push_back({run.stride, taken});
        if (run.size / taken > 1) outer.push_back({run.stride * taken, run.size / taken});
        wanted /= taken;
    }
}

} // namespace

std::vector<StridedRanks> ranks_of(const Layout& layout, Group group) {
    const RankGrid grid(layout);
    std::vector<StridedRanks> runs;
    switch (group) {
        case Group::tp:
            return {grid.along(Dim::tp)};
        case Group::cp:
            return {grid.along(Dim::cp)};
        case Group::pp:
            return {grid.along(Dim::pp)};
        case Group::dp:
            return {grid.along(Dim::dp)};
        case Group::ep:
        case Group::etp:
        case Group::expert_dp:
            return grid.experts(group);
        case Group::dp_cp:
        case Group::shard:
        case Group::replica:
            break;
    }
    runs = {grid.along(Dim::cp), grid.along(Dim::dp)};
    std::sort(runs.begin(), runs.end(),
              [](const StridedRanks& a, const StridedRanks& b) { return a.stride < b.stride; });
    if (group == Group::dp_cp) return runs;
    std::vector<StridedRanks> inner;
    std::vector<StridedRanks> outer;
    split_runs(runs, shard_ranks(layout), inner, outer);
    return group == Group::shard ? inner : outer;
}

namespace {

/// Members of a group inside an aligned unit of `unit` neighbouring ranks. Where a run does not
/// tile the unit, the group that straddles its edge decides. `all`: ranks of the whole layout.
std::int64_t members_within(const std::vector<StridedRanks>& runs, std::int64_t unit,
                            std::int64_t all) {
    std::int64_t members = 1;
    for (const StridedRanks& run : runs) {
        if (all <= unit) {
            members *= run.size;
        } else if (unit % run.stride == 0) {
            members *= std::gcd(run.size, unit / run.stride);
        }
    }
    return members;
}

const FabricProfile* profile_of(const Scenario& scenario, std::string_view name) {
    for (const FabricProfile& profile : scenario.fabrics) {
        if (profile.name == name) return &profile;
    }
    return nullptr;
}

/// Bandwidth to plan with: measured or achievable as stated, otherwise the sheet's times what the
/// kind of network loses.
Bandwidth planned(const LinkBandwidth& link, const FabricProfile* profile) {
    if (link.measured) return *link.measured;
    if (link.achievable) return *link.achievable;
    const double efficiency = profile != nullptr ? profile->bandwidth_efficiency.value : 1.0;
    return link.physical * efficiency;
}

void set_profile(const FabricProfile* profile, const LinkBandwidth& link, PathLevel& level) {
    if (profile == nullptr) return;
    level.spread = spread_of(*profile, link.measured.has_value());
    level.step_latency = Seconds(profile->step_latency.value);
    level.launch_latency = Seconds(profile->launch_latency.value);
    level.half_size = Bytes(profile->half_size.value);
    level.ramp = profile->ramp.source.empty() ? 1.0 : profile->ramp.value;
}

/// Device to device through host memory: every byte goes up one slot and down another, and is
/// written to and read from host memory, which all devices of the node share.
Bandwidth through_host(const NodeTemplate& node) {
    Bandwidth rate = usable(node.host.pcie_per_device) / 2.0;
    if (node.host.memory_bandwidth.value() > 0.0 && node.devices > 0) {
        const Bandwidth share =
            node.host.memory_bandwidth / (2.0 * static_cast<double>(node.devices));
        rate = std::min(rate, share);
    }
    return rate;
}

/// Inside one scale-up domain for a group with `members` of its ranks there.
PathLevel scaleup_level(const Scenario& scenario, const NodeTemplate& node, std::int64_t domain,
                        std::int64_t members) {
    const Scaleup& s = node.scaleup;
    PathLevel level;
    level.name = name_of(s.kind);
    const FabricProfile* profile = profile_of(scenario, level.name);
    set_profile(profile, s.per_device, level);
    if (s.latency.value() > 0.0) level.step_latency = s.latency;
    level.per_rank = planned(s.per_device, profile);
    const bool mesh = s.kind == ScaleupKind::nvlink_mesh || s.kind == ScaleupKind::xgmi_mesh;
    if (mesh && domain > 1) {
        // a rank reaches each neighbour over links of its own; those to other ranks lie idle
        const Bandwidth pair = level.per_rank / static_cast<double>(domain - 1);
        level.per_rank = pair * static_cast<double>(std::max<std::int64_t>(1, members - 1));
        level.per_link = pair;
    } else {
        level.per_link = level.per_rank;
    }
    if (s.kind == ScaleupKind::none || !s.peer_access) {
        const Bandwidth host = through_host(node);
        if (host.value() > 0.0) {
            level.per_rank = s.kind == ScaleupKind::none ? host : std::min(level.per_rank, host);
        }
        level.per_link = level.per_rank;
    }
    level.members = members;
    level.sharing_groups = std::max<std::int64_t>(1, domain / std::max<std::int64_t>(1, members));
    return level;
}

/// Between the domains of one node (bridged pairs): over the host's bus.
PathLevel host_level(const Scenario& scenario, const NodeTemplate& node) {
    PathLevel level;
    level.name = name_of(ScaleupKind::pcie);
    const FabricProfile* profile = profile_of(scenario, level.name);
    set_profile(profile, node.host.pcie_per_device, level);
    level.per_rank =
        node.scaleup.peer_access ? planned(node.host.pcie_per_device, profile) : through_host(node);
    level.per_link = level.per_rank;
    return level;
}

/// Between nodes below one leaf.
PathLevel nic_level(const Scenario& scenario, const NodeTemplate& node) {
    PathLevel level;
    level.name = name_of(scenario.cluster.fabric.kind);
    const FabricProfile* profile = profile_of(scenario, level.name);
    set_profile(profile, node.nics.per_nic, level);
    const Bandwidth card = planned(node.nics.per_nic, profile);
    const double cards = static_cast<double>(std::max<std::int64_t>(1, node.nics.count));
    level.per_rank = card * cards / static_cast<double>(std::max<std::int64_t>(1, node.devices));
    // a device with several cards of its own spreads one message over them
    level.per_link = std::max(card, level.per_rank);
    Bandwidth to_card = usable(node.host.pcie_per_device);
    if (!node.nics.gpudirect) to_card = through_host(node);
    if (to_card.value() > 0.0) {
        level.per_rank = std::min(level.per_rank, to_card);
        level.per_link = std::min(level.per_link, to_card);
    }
    return level;
}

/// The node kind whose links are slowest; a collective waits for it.
const NodeTemplate& slowest_node(const Cluster& cluster) {
    const NodeTemplate* slowest = &cluster.node_groups.front().node;
    const auto nic_rate = [](const NodeTemplate& n) {
        return usable(n.nics.per_nic).value() * static_cast<double>(n.nics.count) /
               static_cast<double>(std::max<std::int64_t>(1, n.devices));
    };
    for (const NodeGroup& group : cluster.node_groups) {
        if (nic_rate(group.node) < nic_rate(*slowest)) slowest = &group.node;
    }
    return *slowest;
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

GroupPath path_of(const Scenario& scenario, const Layout& layout, Group group) {
    const std::vector<StridedRanks> runs = ranks_of(layout, group);
    GroupPath path;
    for (const StridedRanks& run : runs)
        path.ranks *= run.size;
    if (path.ranks <= 1 || scenario.cluster.node_groups.empty()) return path;

    const std::int64_t all = rank_count(layout);
    const NodeTemplate& node = slowest_node(scenario.cluster);
    const std::int64_t devices = std::max<std::int64_t>(1, node.devices);
    std::int64_t domain = node.scaleup.domain_devices > 0 ? node.scaleup.domain_devices : devices;
    // a fabric of this kind is the scale-up network itself
    if (scenario.cluster.fabric.kind == FabricKind::nvlink_domain) domain = std::max(domain, all);
    std::int64_t reached = 1; // ranks of the group inside the units below

    const std::int64_t in_domain = members_within(runs, domain, all);
    if (in_domain > 1) {
        path.levels.push_back(scaleup_level(scenario, node, domain, in_domain));
        reached = in_domain;
    }
    if (reached < path.ranks && domain < devices) {
        const std::int64_t in_node = members_within(runs, devices, all);
        if (in_node > reached) {
            PathLevel level = host_level(scenario, node);
            level.members = in_node / reached;
            level.sharing_groups = std::max<std::int64_t>(1, devices / in_node);
            path.levels.push_back(level);
            reached = in_node;
        }
    }
    if (reached == path.ranks) return path;

    const PathLevel nic = nic_level(scenario, node);
    const std::int64_t sharing = std::max<std::int64_t>(1, std::max(devices, domain) / reached);
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
                                        ? members_within(runs, tier.nodes_per_group * devices, all)
                                        : path.ranks;
        if (inside > reached) add_level(inside);
        if (reached == path.ranks) return path;
        oversubscription *= std::max(1.0, tier.oversubscription);
    }
    add_level(path.ranks);
    return path;
}

} // namespace shardplan::sim
