#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "simulator/spec/fields.hpp"

/// The vocabulary shared by Estimate, explain paths, allocator tags, traces and GUI colours.
namespace shardplan::sim {

/// What memory is held for.
enum class TensorKind : std::uint8_t {
    weights,          ///< compute copy, sharded part
    gathered_weights, ///< unsharded units of a zero3 layout
    gradients,
    master_weights,
    optimizer_states, ///< moments
    activations,      ///< stored between forward and backward
    temporaries,      ///< live only inside one operator
    logits,           ///< output of the head and everything the loss keeps
    buckets,          ///< copies that gradient reduction and parameter gathering need
    messages,         ///< pipeline and expert messages in flight
    workspace,        ///< of libraries, inside the allocator
    allocator_slack,  ///< reserved and not allocated
    communicators,    ///< of the collective library, outside the allocator
    context,          ///< of the driver, outside the allocator
};
inline constexpr std::size_t tensor_kind_count = 14;
template <>
struct EnumNames<TensorKind> {
    static constexpr std::array<std::string_view, tensor_kind_count> names = {
        "weights",     "gathered_weights", "gradients",     "master_weights", "optimizer_states",
        "activations", "temporaries",      "logits",        "buckets",        "messages",
        "workspace",   "allocator_slack",  "communicators", "context"};
};

/// What a step spends time on.
enum class TimeKind : std::uint8_t {
    gemm,        ///< matrix products of the forward and backward pass
    attention,   ///< score products
    elementwise, ///< norms, activations, residuals, rope, dropout, loss
    launch,      ///< host time the device waits for
    recompute,
    optimizer,
    tp_comm,
    cp_comm,
    ep_comm,
    pp_comm,
    dp_comm, ///< gradient reduction and parameter gathering
    offload,
    bubble,   ///< waiting for other pipeline stages
    overhead, ///< outside the model: data, logging, Python
};
inline constexpr std::size_t time_kind_count = 14;
template <>
struct EnumNames<TimeKind> {
    static constexpr std::array<std::string_view, time_kind_count> names = {
        "gemm",    "attention", "elementwise", "launch",  "recompute", "optimizer", "tp_comm",
        "cp_comm", "ep_comm",   "pp_comm",     "dp_comm", "offload",   "bubble",    "overhead"};
};

/// Phases of a step in the order a run meets them.
enum class Phase : std::uint8_t { load, init, forward, loss, backward, step, save, restart };
inline constexpr std::size_t phase_count = 8;
template <>
struct EnumNames<Phase> {
    static constexpr std::array<std::string_view, phase_count> names = {
        "load", "init", "forward", "loss", "backward", "step", "save", "restart"};
};

/// Kinds of operators of a block, the embedding and the head.
enum class OpKind : std::uint8_t {
    embedding,
    norm,
    linear,
    rope,
    attention,
    activation,
    residual,
    router,
    dispatch,
    grouped_linear,
    combine,
    head,
    loss,
};
template <>
struct EnumNames<OpKind> {
    static constexpr std::array<std::string_view, 13> names = {
        "embedding", "norm",     "linear",         "rope",    "attention", "activation", "residual",
        "router",    "dispatch", "grouped_linear", "combine", "head",      "loss"};
};

/// Ranks that talk to one another: those along a dimension of the layout, or along a product of
/// dimensions.
enum class Group : std::uint8_t {
    tp,
    cp,
    ep,
    etp,
    pp,
    dp,        ///< data parallel
    dp_cp,     ///< ranks that hold the same dense parameters
    shard,     ///< ranks that share a sharded state
    replica,   ///< hybrid sharding: ranks that hold the same shard
    expert_dp, ///< ranks that hold the same experts
};
inline constexpr std::size_t group_count = 10;
template <>
struct EnumNames<Group> {
    static constexpr std::array<std::string_view, group_count> names = {
        "tp", "cp", "ep", "etp", "pp", "dp", "dp_cp", "shard", "replica", "expert_dp"};
};

/// Where bytes live.
enum class Tier : std::uint8_t { device, host, nvme };
inline constexpr std::size_t tier_count = 3;
template <>
struct EnumNames<Tier> {
    static constexpr std::array<std::string_view, tier_count> names = {"device", "host", "nvme"};
};

/// Amounts by kind; sums run in enumerator order, so they are the same everywhere.
template <class Kind, class Amount, std::size_t N>
struct ByKind {
    std::array<Amount, N> amounts{};

    Amount& operator[](Kind kind) { return amounts[static_cast<std::size_t>(kind)]; }
    const Amount& operator[](Kind kind) const { return amounts[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] Amount total() const {
        Amount sum{};
        for (const Amount& amount : amounts) {
            sum += amount;
        }
        return sum;
    }
    friend bool operator==(const ByKind&, const ByKind&) = default;
};

using BytesByKind = ByKind<TensorKind, Bytes, tensor_kind_count>;
using SecondsByKind = ByKind<TimeKind, Seconds, time_kind_count>;

} // namespace shardplan::sim
