#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// Ways to do a collective. The first five and the last two are NCCL's; the others are those of
/// other libraries, or of frameworks that build a collective from several calls.
enum class Algorithm : std::uint8_t {
    ring,
    tree, ///< double binary tree; on CPUs one binomial tree for small messages
    nvls, ///< reduction inside the switch of one domain
    nvls_tree,
    pat, ///< one rank per node, all-gather and reduce-scatter in logarithmic steps
    hierarchical,
    torus_2d,
    halving_doubling,
    parameter_server,
    collnet_chain, ///< reduction inside the network between nodes, a chain inside a node
    collnet_direct ///< the same, every rank sending its part to the one at its card
};
template <>
struct EnumNames<Algorithm> {
    static constexpr std::array<std::string_view, 11> names = {"ring",
                                                               "tree",
                                                               "nvls",
                                                               "nvls_tree",
                                                               "pat",
                                                               "hierarchical",
                                                               "torus_2d",
                                                               "halving_doubling",
                                                               "parameter_server",
                                                               "collnet_chain",
                                                               "collnet_direct"};
};

/// NCCL's wire protocols: stores that carry a flag (half the bandwidth), lines of 128 bytes that
/// carry one (15 of 16), plain stores with fences.
enum class Protocol : std::uint8_t { ll, ll128, simple };
template <>
struct EnumNames<Protocol> {
    static constexpr std::array<std::string_view, 3> names = {"ll", "ll128", "simple"};
};

/// Who does the collectives. `automatic`: NCCL (RCCL) between accelerators, Gloo between CPUs.
enum class CommLibrary : std::uint8_t { automatic, nccl, gloo, mpi };
template <>
struct EnumNames<CommLibrary> {
    static constexpr std::array<std::string_view, 4> names = {"automatic", "nccl", "gloo", "mpi"};
};

/// How collectives are done: by what the library chooses, or by what the user forces.
struct CommPolicy {
    CommLibrary library = CommLibrary::automatic;
    std::vector<Algorithm> algorithms; ///< empty: those the library chooses among
    std::vector<Protocol> protocols;   ///< empty: all
    std::int64_t servers = 1;          ///< of a parameter server

    friend bool operator==(const CommPolicy&, const CommPolicy&) = default;
};

/// Bits of the algorithms a policy leaves, by index of Algorithm. `on_cpus`: decides `automatic`.
std::uint32_t allowed_algorithms(const CommPolicy& policy, bool on_cpus);
/// Bits of the protocols a policy leaves, by index of Protocol.
std::uint32_t allowed_protocols(const CommPolicy& policy);

/// A policy from the values of NCCL_ALGO and NCCL_PROTO: names in any case, separated by commas, a
/// leading "^" for all but those; names of the other algorithms are taken too. Empty text: no
/// choice. The form per collective ("allreduce:tree") is refused. Errors name the word.
Result<CommPolicy> policy_of(std::string_view algorithms, std::string_view protocols,
                             std::string_view where);

void describe(FieldVisitor& v, CommPolicy& x);

} // namespace shardplan::sim
