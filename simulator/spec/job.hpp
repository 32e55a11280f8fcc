#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/spec/device.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// Lengths of training samples in tokens. With packing or padding to one length, mean = max.
struct Sequence {
    std::int64_t max = 0; ///< tokens of the longest sample; 0 = the model's positions, at most 8192
    double mean = 0.0;    ///< tokens; 0 = max
    double mean_square = 0.0; ///< tokens^2, decides attention work; 0 = mean^2

    friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// Samples (or tokens) per optimizer step over all ranks; exactly one is given. `held`: the planner
/// may not change it.
struct GlobalBatch {
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    bool held = true;

    friend bool operator==(const GlobalBatch&, const GlobalBatch&) = default;
};

enum class Fp8Recipe { none, tensorwise, rowwise, blockwise, mxfp8, nvfp4 };
template <>
struct EnumNames<Fp8Recipe> {
    static constexpr std::array<std::string_view, 6> names = {"none",      "tensorwise", "rowwise",
                                                              "blockwise", "mxfp8",      "nvfp4"};
};

struct Precision {
    Dtype compute = Dtype::bf16;    ///< matrix products
    Dtype master = Dtype::fp32;     ///< copy the optimizer updates; = compute: no master copy
    std::optional<Dtype> gradients; ///< accumulation; absent = the stack's
    Fp8Recipe recipe = Fp8Recipe::none;

    friend bool operator==(const Precision&, const Precision&) = default;
};

enum class MethodKind { full, lora, qlora };
template <>
struct EnumNames<MethodKind> {
    static constexpr std::array<std::string_view, 3> names = {"full", "lora", "qlora"};
};
enum class LoraTargets { attention, all_linear };
template <>
struct EnumNames<LoraTargets> {
    static constexpr std::array<std::string_view, 2> names = {"attention", "all_linear"};
};

/// What is trained.
struct Method {
    MethodKind kind = MethodKind::full;
    std::int64_t rank = 16;
    LoraTargets targets = LoraTargets::all_linear;

    friend bool operator==(const Method&, const Method&) = default;
};

enum class OptimizerKind { adamw, adamw_8bit, sgd, sgd_momentum, muon, adafactor };
template <>
struct EnumNames<OptimizerKind> {
    static constexpr std::array<std::string_view, 6> names = {
        "adamw", "adamw_8bit", "sgd", "sgd_momentum", "muon", "adafactor"};
};

struct Optimizer {
    OptimizerKind kind = OptimizerKind::adamw;
    Dtype state = Dtype::fp32; ///< moments

    friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

/// How evenly tokens reach experts.
struct MoeLoad {
    double capacity = 0.0;  ///< capacity factor with padding and drops; 0 = dropless
    double imbalance = 1.0; ///< tokens of the busiest rank over the mean; 1 = balanced

    friend bool operator==(const MoeLoad&, const MoeLoad&) = default;
};

enum class RecomputePolicy { any, forbid, full };
template <>
struct EnumNames<RecomputePolicy> {
    static constexpr std::array<std::string_view, 3> names = {"any", "forbid", "full"};
};

/// What the user insists on. Empty lists allow everything.
struct Constraints {
    std::vector<std::int64_t> tp, pp, cp, ep, dp, micro_batch;
    RecomputePolicy recompute = RecomputePolicy::any;
    std::optional<Bytes> memory_cap; ///< per device, below the usable memory
    bool idle_devices = false;       ///< layouts may leave devices unused

    friend bool operator==(const Constraints&, const Constraints&) = default;
};

enum class Objective { time, cost, headroom };
template <>
struct EnumNames<Objective> {
    static constexpr std::array<std::string_view, 3> names = {"time", "cost", "headroom"};
};

/// A training job: what the user insists on. Defaults of the software are the stack's, choices are
/// the layout's.
struct Job {
    std::string name;
    Sequence sequence;
    GlobalBatch global_batch;
    Precision precision;
    Method method;
    Optimizer optimizer;
    MoeLoad moe;
    Constraints constraints;
    double tokens_to_train = 0.0; ///< 0 = not stated; calendar and cost of the whole run need it
    Objective objective = Objective::time;

    friend bool operator==(const Job&, const Job&) = default;
};

void describe(FieldVisitor& v, Sequence& x);
void describe(FieldVisitor& v, GlobalBatch& x);
void describe(FieldVisitor& v, Precision& x);
void describe(FieldVisitor& v, Method& x);
void describe(FieldVisitor& v, Optimizer& x);
void describe(FieldVisitor& v, MoeLoad& x);
void describe(FieldVisitor& v, Constraints& x);
void describe(FieldVisitor& v, Job& x);

} // namespace shardplan::sim
