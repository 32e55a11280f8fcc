#include "simulator/memory/states.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::sim {

namespace {

bool shards_gradients(const Layout& layout) { return layout.shard >= Shard::optimizer_gradients; }
bool shards_parameters(const Layout& layout) { return layout.shard == Shard::all; }

/// FSDP: what is gathered is a compute copy of fp32 shards, and zero2 is the same with the copies
/// kept from forward to backward.
bool is_fsdp(const StackProfile& stack, const Layout& layout) {
    return stack.capabilities.fully_sharded && shards_gradients(layout);
}

/// A group of one has nothing to gather; only where shards are in another format than what
/// computes, or off the device, does it make the copies all the same.
bool gathers_nothing(const StackProfile& stack, const Layout& layout) {
    return shard_degrees(layout).dense <= 1.0 && !stack.memory.sharded_fp32_parameters &&
           layout.offload_parameters == 0;
}

/// Which states the ranks of a shard group split.
struct Splits {
    bool weights = false;
    bool gradients = false;
    bool states = false;
};
Splits splits_of(const Resolved& r, const StackProfile& stack, const Layout& layout) {
    Splits out;
    out.weights = shards_parameters(layout) || is_fsdp(stack, layout);
    out.gradients = shards_gradients(layout);
    // Muon orthogonalizes whole matrices, so every rank keeps their states whole.
    out.states = layout.shard != Shard::none && r.optimizer != OptimizerKind::muon;
    return out;
}

/// Trained parameters of one rank, split or whole.
double trained_on_rank(const RankParameters& p, bool split, const ShardDegrees& ranks) {
    return split ? p.dense / ranks.dense + p.expert / ranks.expert : p.trained();
}

/// Bytes of one stored weight. FSDP shards are in the master format and need no other copy.
double weight_size(const Resolved& r, const StackProfile& stack) {
    return bytes_per_element(stack.memory.sharded_fp32_parameters ? r.master : r.parameter);
}

bool has_master(const Resolved& r, const StackProfile& stack) {
    return !stack.memory.sharded_fp32_parameters && r.master != r.parameter;
}

double on_device(std::uint16_t offloaded) {
    return 1.0 - static_cast<double>(offloaded) / static_cast<double>(offload_scale);
}

/// Dense and expert parameters, each over its own group.
void add_split(PartSum& sum, TensorKind kind, std::string_view name, const RankParameters& p,
               double size, bool split, const ShardDegrees& ranks, std::string_view formula) {
    sum.add_elements(kind, name, p.dense, size, split ? ranks.dense : 1.0, formula);
    if (p.expert > 0.0) {
        const std::string of_experts =
            sum.lists_parts() ? std::string(name) + " of experts" : std::string();
        sum.add_elements(kind, of_experts, p.expert, size, split ? ranks.expert : 1.0, formula);
    }
}

/// Bytes of a frozen weight: QLoRA stores matrices in 4 bits with doubly quantized block scales.
/// Source: Dettmers et al. 2023 (arXiv 2305.14314): 4 + 8/64 + 32/(64 x 256) bits.
constexpr double nf4_bytes = (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0;

double quantized_elements(const Resolved& r, const RankParameters& p) {
    return r.method.kind == MethodKind::qlora ? p.frozen_matrix : 0.0;
}

/// Bytes of a unit's weights as they are gathered: quantized ones stay so.
double gathered_bytes(const Resolved& r, const RankParameters& p) {
    const double matrices = quantized_elements(r, p);
    return (p.trained() + p.frozen - matrices) * bytes_per_element(r.parameter) +
           matrices * nf4_bytes;
}

void add_frozen(const Resolved& r, bool splits, const RankParameters& p, const ShardDegrees& ranks,
                PartSum& sum) {
    if (p.frozen == 0.0) {
        return;
    }
    const double split = splits ? ranks.dense : 1.0;
    const double size = bytes_per_element(r.parameter);
    const double matrices = quantized_elements(r, p);
    sum.add_elements(TensorKind::weights, "frozen base weights", p.frozen - matrices, size, split,
                     "mem.frozen");
    sum.add_elements(TensorKind::weights, "quantized base weights", matrices, nf4_bytes, split,
                     "mem.nf4");
}

} // namespace

void PartSum::list(TensorKind kind, std::string_view name, double bytes, std::string_view formula) {
    list_->push_back({kind, std::string(name), bytes, std::string(formula), ""});
}

void PartSum::add_elements(TensorKind kind, std::string_view name, double count, double size,
                           double ranks, std::string_view formula) {
    const double bytes = count * size / ranks;
    if (bytes == 0.0) {
        return;
    }
    by_kind_[kind] += Bytes(bytes);
    if (list_ != nullptr) {
        std::string detail = fmt::format("{:g} B x {:.15g} elements", size, count);
        if (ranks != 1.0) {
            detail += fmt::format(" / {:g} ranks", ranks);
        }
        list_->push_back({kind, std::string(name), bytes, std::string(formula), std::move(detail)});
    }
}

double moment_bytes(const Resolved& r) {
    const double state = bytes_per_element(r.state);
    switch (r.optimizer) {
        case OptimizerKind::adamw:
            return 2.0 * state;
        // Dettmers et al. 2021 (arXiv 2110.02861): one byte and an fp32 scale per block of 256.
        case OptimizerKind::adamw_8bit:
            return 2.0 * (1.0 + 4.0 / 256.0);
        case OptimizerKind::sgd:
            return 0.0;
        case OptimizerKind::sgd_momentum:
            return state;
        case OptimizerKind::muon:
            return state;
        // Shazeer and Stern 2018 (arXiv 1804.04235): row and column sums, negligible beside a
        // moment.
        case OptimizerKind::adafactor:
            return 0.0;
    }
    return 2.0 * state;
}

namespace {

/// `elements(segment)` of all segments, dense ones and experts.
template <class F>
void add_pieces(PartSum& sum, TensorKind kind, std::string_view name,
                const std::vector<Portion>& portions, double size, std::string_view formula,
                F&& elements) {
    RankParameters p;
    for (const Portion& portion : portions) {
        for (const Segment& segment : portion.segments) {
            (segment.expert ? p.expert : p.dense) += elements(segment);
        }
    }
    add_split(sum, kind, name, p, size, false, {}, formula);
}

/// Persistent parts of a stack that splits parameters into whole elements.
void add_whole_pieces(const Resolved& r, const StackProfile& stack, const Layout& layout,
                      const StageParameters& p, bool gradients_exist, PartSum& sum) {
    const std::vector<Portion> portions = portions_of(layout, p.units);
    const auto here = [&](std::int64_t off) {
        return [off](const Segment& s) { return s.piece_here(off); };
    };
    const auto room = [](const Segment& s) { return s.room(); };
    const double size = bytes_per_element(r.parameter);
    if (shards_parameters(layout)) {
        add_pieces(sum, TensorKind::weights, "weights", portions, size, "mem.weights",
                   here(layout.offload_parameters));
    } else {
        add_pieces(sum, TensorKind::weights, "weights", portions, size, "mem.weights", room);
    }
    if (gradients_exist) {
        const bool split = shards_gradients(layout);
        add_pieces(sum, TensorKind::gradients, "gradients", portions, bytes_per_element(r.gradient),
                   "mem.gradients", [&](const Segment& s) { return split ? s.piece() : s.room(); });
    }
    if (has_master(r, stack)) {
        add_pieces(sum, TensorKind::master_weights, "master weights", portions,
                   bytes_per_element(r.master), "mem.master", here(layout.offload_optimizer));
    }
    add_pieces(sum, TensorKind::optimizer_states, "moments", portions, moment_bytes(r),
               "mem.moments", here(layout.offload_optimizer));
}

} // namespace

void add_persistent(const Scenario& scenario, const Resolved& r, const Layout& layout,
                    const StageParameters& p, bool gradients_exist, PartSum& sum) {
    const StackProfile& stack = scenario.stack;
    if (stack.states.whole_pieces) {
        add_whole_pieces(r, stack, layout, p, gradients_exist, sum);
        return;
    }
    const ShardDegrees ranks = shard_degrees(layout);
    const Splits splits = splits_of(r, stack, layout);
    const double parameters_here = on_device(layout.offload_parameters);
    const double states_here = on_device(layout.offload_optimizer);
    // 8-bit weights are two copies, row-wise and column-wise, in place of one of 16 bits (TE).
    add_split(sum, TensorKind::weights, "weights", p.all, weight_size(r, stack) * parameters_here,
              splits.weights, ranks, "mem.weights");
    if (stack.memory.sharded_fp32_parameters && !splits.weights && r.master != r.parameter) {
        add_split(sum, TensorKind::weights, "compute copy", p.all, bytes_per_element(r.parameter),
                  false, ranks, "mem.weights");
    }
    add_frozen(r, splits.weights, p.all, ranks, sum);
    if (gradients_exist) {
        add_split(sum, TensorKind::gradients, "gradients", p.all, bytes_per_element(r.gradient),
                  splits.gradients, ranks, "mem.gradients");
        if (stack.states.bucket_copy && layout.dp > 1) {
            add_split(sum, TensorKind::buckets, "bucket copies", p.all,
                      bytes_per_element(r.parameter), false, ranks, "mem.bucket_copy");
        }
    }
    if (has_master(r, stack)) {
        add_split(sum, TensorKind::master_weights, "master weights", p.all,
                  bytes_per_element(r.master) * states_here, splits.states, ranks, "mem.master");
    }
    add_split(sum, TensorKind::optimizer_states, "moments", p.all, moment_bytes(r) * states_here,
              splits.states, ranks, "mem.moments");
    if (stack.tensors.weight_gradient_placeholder && stack.tensors.fused_weight_gradient) {
        sum.add_elements(TensorKind::workspace, "placeholder gradients", p.placeholders,
                         bytes_per_element(r.parameter), 1.0, "mem.placeholders");
    }
}

double offloaded_bytes(const Resolved& r, const StackProfile& stack, const Layout& layout,
                       const StageParameters& p) {
    const ShardDegrees ranks = shard_degrees(layout);
    const Splits splits = splits_of(r, stack, layout);
    const double states =
        has_master(r, stack) ? bytes_per_element(r.master) + moment_bytes(r) : moment_bytes(r);
    if (stack.states.whole_pieces) {
        // states that lie elsewhere are updated there, from the gradients of the device
        double bytes = 0.0;
        for (const Portion& portion : portions_of(layout, p.units)) {
            for (const Segment& segment : portion.segments) {
                const auto off = [&](std::int64_t thousandths) {
                    return segment.piece() - segment.piece_here(thousandths);
                };
                bytes += states * off(layout.offload_optimizer);
                if (splits.weights) {
                    bytes += weight_size(r, stack) * off(layout.offload_parameters);
                }
            }
        }
        return bytes;
    }
    // The host steps on fp32 gradients of its own.
    return (1.0 - on_device(layout.offload_optimizer)) * (states + 4.0) *
               trained_on_rank(p.all, splits.states, ranks) +
           (1.0 - on_device(layout.offload_parameters)) * weight_size(r, stack) *
               trained_on_rank(p.all, splits.weights, ranks);
}

HostStaging host_staging(const Resolved& r, const StackProfile& stack, const Layout& layout,
                         const StageParameters& p) {
    const ShardDegrees ranks = shard_degrees(layout);
    const Splits splits = splits_of(r, stack, layout);
    const bool sharded_load = is_fsdp(stack, layout);
    const double states =
        (has_master(r, stack) ? bytes_per_element(r.master) : 0.0) + moment_bytes(r);
    HostStaging out;
    out.load = (trained_on_rank(p.all, sharded_load, ranks) +
                p.all.frozen / (sharded_load ? ranks.dense : 1.0)) *
               bytes_per_element(r.parameter);
    out.save = trained_on_rank(p.all, splits.weights, ranks) * weight_size(r, stack) +
               trained_on_rank(p.all, splits.states, ranks) * states;
    return out;
}

namespace {

void add_zero_buffers(const Resolved& r, const StackProfile& stack, const Layout& layout,
                      const StageParameters& p, UnitPhase phase, PartSum& sum) {
    const double bucket = stack.memory.bucket_bytes.value;
    if (shards_parameters(layout)) {
        // DeepSpeed: the unit in use, the next one, and two flat buckets
        sum.add(TensorKind::gathered_weights, "gathered units",
                2.0 * gathered_bytes(r, p.largest_block), "mem.zero3_units");
        sum.add(TensorKind::buckets, "gather and reduce buckets", 2.0 * bucket, "mem.zero_buckets");
    } else if (shards_gradients(layout) && phase == UnitPhase::backward) {
        sum.add(TensorKind::buckets, "reduce buckets", 2.0 * bucket, "mem.zero_buckets");
    }
}

/// Blocks that one FSDP unit holds on a stage.
double blocks_in_unit(WrapUnit wrap, double blocks_on_stage) {
    const double all = std::max(1.0, blocks_on_stage);
    const auto wrapped = static_cast<double>(wrapped_units(wrap));
    return wrapped > 0.0 ? std::min(wrapped, all) : all;
}

} // namespace

void add_gathered_units(const Resolved& r, const StackProfile& stack, const Layout& layout,
                        const StageParameters& p, UnitPhase phase, PartSum& sum) {
    if (stack.states.whole_pieces) {
        return; // what is whole differs from unit to unit: StageWindows
    }
    if (!is_fsdp(stack, layout)) {
        add_zero_buffers(r, stack, layout, p, phase, sum);
        return;
    }
    if (gathers_nothing(stack, layout)) return;
    const auto kind = TensorKind::gathered_weights;
    const double size = bytes_per_element(r.parameter);
    const double blocks = blocks_in_unit(layout.wrap, p.blocks);
    const double unit = blocks * gathered_bytes(r, p.largest_block);
    sum.add(kind, "root unit", gathered_bytes(r, p.root), "mem.fsdp_root");
    const bool stays = layout.shard == Shard::optimizer_gradients || !layout.reshard;
    const double ahead = layout.prefetch;
    if (stays) {
        sum.add(kind, "units kept until backward", p.blocks * gathered_bytes(r, p.largest_block),
                "mem.fsdp_units");
    } else if (phase == UnitPhase::loss) {
        sum.add(kind, "last unit", unit, "mem.fsdp_units");
    } else {
        sum.add(kind, "running and prefetched units", (1.0 + ahead) * unit, "mem.fsdp_units");
        // all-gather lands in a flat buffer before it is copied out
        sum.add(TensorKind::buckets, "gather buffer", std::min(1.0, ahead) * unit,
                "mem.fsdp_gather");
    }
    if (phase == UnitPhase::backward) {
        const double trained = blocks * p.largest_block.trained();
        sum.add_elements(TensorKind::gradients, "unsharded gradient of a unit", trained, size, 1.0,
                         "mem.fsdp_gradient");
        sum.add_elements(TensorKind::buckets, "reduce-scatter input", trained,
                         bytes_per_element(r.gradient), 1.0, "mem.fsdp_reduce");
        sum.add_elements(TensorKind::gradients, "root gradient", p.root_gradient, size, 1.0,
                         "mem.fsdp_root_gradient");
    }
}

void add_step_temporaries(const Resolved& r, const StackProfile& stack, const Layout& layout,
                          const StageParameters& p, PartSum& sum) {
    const ShardDegrees ranks = shard_degrees(layout);
    const auto kind = TensorKind::temporaries;
    const double shard = trained_on_rank(p.all, splits_of(r, stack, layout).states, ranks);
    const bool half = stack.states.fp16_gradients_stay && r.parameter == Dtype::fp16;
    const bool upcasts = (stack.states.fp32_gradient_on_step || half) && !stack.memory.pure_16bit &&
                         bytes_per_element(r.gradient) < 4.0;
    const double stepping =
        shard * ((upcasts ? 4.0 : 0.0) +
                 (stack.states.foreach_temporary ? bytes_per_element(r.master) : 0.0));
    double flat = 0.0;
    if (stack.states.flat_reduction && layout.dp > 1) {
        const double bucket = stack.memory.bucket_bytes.value / bytes_per_element(r.gradient) +
                              std::max(p.root.dense, p.largest_block.dense);
        flat = std::min(p.all.trained(), bucket) * (bytes_per_element(r.gradient) + 4.0);
    }
    // The reduction is over before the update begins.
    if (flat > stepping) {
        sum.add(kind, "flat bucket and its fp32 copy", flat, "mem.flat_reduction");
        return;
    }
    sum.add_elements(kind, "fp32 gradients", shard, upcasts ? 4.0 : 0.0, 1.0, "mem.step_gradient");
    sum.add_elements(kind, "optimizer temporary", shard,
                     stack.states.foreach_temporary ? bytes_per_element(r.master) : 0.0, 1.0,
                     "mem.step_foreach");
}

} // namespace shardplan::sim
