#pragma once

#include <string_view>

#include "simulator/spec/cluster.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/spec/fabric_profile.hpp"
#include "simulator/spec/job.hpp"
#include "simulator/spec/stack.hpp"
#include "simulator/units/result.hpp"

/// Whether a described input makes sense as a whole: what the bounds of single fields cannot say.
/// Each returns the first contradiction, with where (`source`, the name of the file or flag, and
/// the JSON pointer below it), what, and what to write instead.
namespace shardplan::sim {

/// Most devices a cluster may have; keeps every product of counts far from overflow.
inline constexpr std::int64_t most_devices = std::int64_t{1} << 24;

/// Nodes exist and hold devices; links between devices and between nodes have a bandwidth; more
/// than one node has a network and cards; levels of the switch tree nest; the dimensions of a torus
/// hold the nodes; an explicit graph names
/// its vertices once, holds as many devices and cards as the node, is connected, and has every card
/// behind a host or a PCIe switch.
Status check_cluster(const Cluster& cluster, std::string_view source);
/// Memory and memory bandwidth are there, visible memory is at most what is sold (80 "GB" may mean
/// 80 GiB), formats are known names. A missing peak is allowed: such a device can be described, but
/// not planned for.
Status check_device(const Device& device, std::string_view source);
/// At most one global batch, a mean that is not above the longest sample, stored formats that an
/// optimizer can update. What is missing or does not fit the rest is for resolve() to say: flags
/// may still give it.
Status check_job(const Job& job, std::string_view source);
/// Every Constant is stated, with its unit, a source and a range around its value; the defaults are
/// among the capabilities.
Status check_stack(const StackProfile& stack, std::string_view source);
/// Every Constant is stated, as for stacks.
Status check_fabric(const FabricProfile& fabric, std::string_view source);
Status check_compute(const ComputeProfile& compute, std::string_view source);

} // namespace shardplan::sim
