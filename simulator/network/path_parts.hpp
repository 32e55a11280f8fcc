#pragma once

#include "simulator/network/group_path.hpp"

/// What the tiers of a path are put together from.
namespace shardplan::sim {

/// Members of a group inside an aligned unit of `unit` neighbouring ranks. Where a run does not
/// tile the unit, the group that straddles its edge decides.
std::int64_t members_within(const GroupRanks& ranks, std::int64_t unit);

/// Bandwidth to plan with: measured or achievable as stated, otherwise the sheet's times what the
/// kind of network loses (`profile`; nullptr: nothing).
Bandwidth planned(const LinkBandwidth& link, const FabricProfile* profile);

/// The profile of a kind of network for the devices of a node group: that of their architecture
/// where there is one. nullptr: the scenario has none.
const FabricProfile* profile_of(const Scenario& scenario, std::string_view name, std::size_t group);

/// The way out of a node of one group, all its devices sending, and that inside one of its scale-up
/// domains of `domain` devices, all of them in one group.
PathLevel nic_level(const Scenario& scenario, std::size_t group);
PathLevel domain_level(const Scenario& scenario, std::size_t group, std::int64_t domain);

/// The dimensions of a torus that a group crosses, one tier each. `devices`: of one node. `nic`:
/// the way out of a node, whose constants the links share. `has_cards`: what leaves a node goes
/// through cards, whose rate bounds it; else the links end at the devices. `reached`: members of
/// the group inside a node.
/// By derivation: in a closed dimension a ring of the members, in the order they lie in, uses every
/// link between nodes once in each direction, whatever the distance of the members; groups whose
/// members lie between one another's share the links. Members that lie side by side in a part of
/// the dimension have an open line.
void add_torus_levels(const Scenario& scenario, const GroupRanks& ranks, std::int64_t devices,
                      const PathLevel& nic, bool has_cards, std::int64_t reached, GroupPath& path);

} // namespace shardplan::sim
