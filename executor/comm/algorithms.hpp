#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "executor/comm/exchange.hpp"
#include "executor/comm/scalar.hpp"

/// Collectives over messages, the same on every back end. Each gives the same bits on every run:
/// which rank adds what to what follows from the sizes alone. n: ranks, S: bytes of the buffer.
namespace shardplan::exec {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Where pieces of a buffer begin and end: piece i is [bounds[i], bounds[i + 1]), in bytes.
using Bounds = std::vector<std::size_t>;
/// `pieces` pieces of whole elements, as even as can be; the larger ones first.
Bounds even_bounds(std::size_t bytes, std::size_t element, int pieces);

// --- ring.cpp ------------------------------------------------------------------------------------

/// Leaves the result of piece r of `in` in `out` on rank r, which may be that piece of `in`. Each
/// rank sends S (n - 1) / n. Scratch: two segments.
Status ring_reduce_scatter(Exchange& x, Reduction how, ConstBytes in, const Bounds& bounds,
                           Bytes out);
/// Piece r of `data` comes from rank r, and ends on all. Each rank sends S (n - 1) / n.
Status ring_all_gather(Exchange& x, Bytes data, const Bounds& bounds);
/// The two one after the other.
Status ring_all_reduce(Exchange& x, Reduction how, Bytes data);
/// From neighbour to neighbour, segment by segment. All but the last rank send S.
Status chain_broadcast(Exchange& x, Bytes data, int root);
/// The way back: the root's neighbour adds last. All but the root send S.
Status chain_reduce(Exchange& x, Reduction how, ConstBytes in, Bytes out, int root);

// --- tree.cpp ------------------------------------------------------------------------------------

/// Binomial, as is the way of the result back. A rank sends S to each of its children.
Status tree_broadcast(Exchange& x, Bytes data, int root);
/// `out` is written on the root alone, and may be `in`.
Status tree_reduce(Exchange& x, Reduction how, ConstBytes in, Bytes out, int root);
/// Small ones by the two above. Larger ones by two binary trees with half of the data each, in
/// which no rank has children twice: each rank sends at most 2 S, S of two. Scratch: one segment.
/// Source: NCCL, src/graph/trees.cc; Sanders et al. 2009 (Parallel Computing 35).
Status tree_all_reduce(Exchange& x, Reduction how, Bytes data);

// --- tiers.cpp
// -------------------------------------------------------------------------------------

/// Rows as near to a square as the divisors of n allow: the longer side first.
std::vector<int> squarest(int ranks);
/// Reduce-scatter inside each tier, innermost first, a ring all-reduce in the outermost, and
/// all-gathers back. `tiers`: members of a unit, innermost first. Two tiers are a 2D torus: rows,
/// then columns.
Status tiered_all_reduce(Exchange& x, Reduction how, Bytes data, const std::vector<int>& tiers);
/// `all`: n equal parts, own one in place. Scratch: S.
Status tiered_all_gather(Exchange& x, Bytes all, const std::vector<int>& tiers);
/// Part r of `in` ends on rank r. Scratch: S.
Status tiered_reduce_scatter(Exchange& x, Reduction how, ConstBytes in, Bytes out,
                             const std::vector<int>& tiers);

// --- halving_doubling.cpp
// --------------------------------------------------------------------------

/// Recursive halving, then doubling, nearest partner first. Ranks beyond a power of two hand their
/// data over before and take the result after.
Status halving_doubling_all_reduce(Exchange& x, Reduction how, Bytes data);

// --- direct.cpp
// ------------------------------------------------------------------------------------

/// Every rank sends piece j of `in` to rank owners[j], which adds them in rank order into its `out`
/// (may be that piece of `in`). A rank owns at most one piece. Scratch of an owner: n - 1 segments.
Status direct_reduce(Exchange& x, Reduction how, ConstBytes in, const Bounds& bounds,
                     const std::vector<int>& owners, Bytes out);
/// Push to and pull from `servers` servers, ranks 0 and up, each of which holds an even part.
Status parameter_server_all_reduce(Exchange& x, Reduction how, Bytes data, int servers);
/// Adds in rank order on the owner of each piece, then an all-gather by ring.
Status rank_order_all_reduce(Exchange& x, Reduction how, Bytes data);
/// In step s with the ranks s before and s behind. Sizes in bytes.
Status pairwise_all_to_all(Exchange& x, ConstBytes in, const std::vector<std::size_t>& sizes_in,
                           Bytes out, const std::vector<std::size_t>& sizes_out);
/// Dissemination: after ceil(log2 n) rounds every rank has heard, by others, of all.
Status barrier(Exchange& x);

} // namespace shardplan::exec
