#pragma once

#include <cstdint>

#include "simulator/network/group_path.hpp"

/// What collectives cost on a dimension of a torus, where a message takes every link between its
/// ends and leaves the less of each to others. Figures of one dimension alone; `level.torus` must
/// be one.
namespace shardplan::sim {

/// Bytes that pass the busiest link in one direction, per byte that each member exchanges with all
/// others in equal parts: floor(m^2 / 4) / m of those the links of a member take together. By
/// derivation: the mean distance on a ring of m is floor(m^2 / 4) / m links; the middle link of an
/// open line has floor(m / 2) members on one side and ceil(m / 2) on the other.
double all_to_all_share(const PathLevel& level);

/// The same for recursive halving: partners at distance d send 1 / (2 d) of the data, and d pairs
/// share the link between them, in one direction.
double halving_share(const PathLevel& level);

/// Edges of a binary tree over the members, numbered in order, that cross the busiest link: one for
/// each height.
double tree_crossings(const PathLevel& level);

/// Latency of the hops beyond the first that a message makes on the way through a tree, in
/// recursive halving, or to the farthest member.
Seconds farther_hops(const PathLevel& level);

/// Bandwidth of the links of one direction for each rank.
Bandwidth one_direction(const PathLevel& level);

/// Seconds per byte and latency of one trip (scatter or gather) over all dimensions of a torus. The
/// data is split into as many parts as there are dimensions; each part begins with another one, so
/// that the links of all of them work at once. A step ends when its slowest part has ended.
/// Source: Mikami et al. 2018 (arXiv 1811.05233) for the order of the phases; the split by
/// derivation: without it the links of one dimension work at a time.
struct TorusTrip {
    double seconds_per_byte = 0.0;
    double latency = 0.0; ///< seconds
    double lost = 0.0;    ///< seconds at the half sizes
};
TorusTrip torus_trip(const PathLevel* first, std::size_t dimensions);

} // namespace shardplan::sim
