#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "simulator/spec/scenario.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

/// Longest sequence taken as a default: models name positions up to a million, which nobody trains
/// on without saying so.
constexpr std::int64_t default_sequence_limit = 8192;

Error bad(std::string where, std::string what, std::string hint) {
    return {ErrorCode::bad_input, std::move(where), std::move(what), std::move(hint)};
}

class Resolver {
public:
    explicit Resolver(const Scenario& scenario) : scenario_(scenario) {}

    Result<ResolvedWithNotes> run() {
        for (const auto step : {&Resolver::sequence, &Resolver::batch, &Resolver::precision,
                                &Resolver::peaks, &Resolver::optimizer, &Resolver::method}) {
            if (Status done = (this->*step)(); !done) {
                return done.error();
            }
        }
        attention();
        if (scenario_.job.constraints.memory_cap.has_value()) {
            out_.values.memory_cap = *scenario_.job.constraints.memory_cap;
        }
        out_.values.vocab_multiple = scenario_.stack.capabilities.vocab_multiple;
        return std::move(out_);
    }

private:
    void note(std::string path, std::string value, std::string origin, std::string why) {
        out_.assumptions.push_back(
            {std::move(path), std::move(value), std::move(origin), std::move(why)});
    }
    [[nodiscard]] std::string of_stack() const { return "stack " + scenario_.stack.name; }

    void attention();
    Status sequence();
    Status batch();
    Status precision();
    Status peaks();
    Status optimizer();
    Status method();

    const Scenario& scenario_;
    ResolvedWithNotes out_;
};

/// Transformer Engine runs cuDNN's attention from compute capability 9.0 on and FlashAttention 2
/// before (transformer_engine/pytorch/attention, backend selection).
void Resolver::attention() {
    AttentionImpl kernel = scenario_.stack.attention;
    std::string origin = of_stack();
    const bool named = has_feature(scenario_.stack, Feature::cudnn_attn);
    for (const Device& device : scenario_.devices) {
        const double capability = std::strtod(device.compute_capability.c_str(), nullptr);
        if (kernel == AttentionImpl::cudnn && !named && capability > 0.0 && capability < 9.0) {
            kernel = AttentionImpl::flash_2;
            origin += " on compute capability " + device.compute_capability;
        }
    }
    if (kernel > scenario_.stack.newest_attention) {
        kernel = scenario_.stack.newest_attention;
        origin = "newest kernel of " + of_stack();
    }
    // "Unfused" attention of Megatron's layers and of Transformer Engine still calls
    // FusedScaleMaskSoftmax.
    if (kernel == AttentionImpl::unfused && scenario_.stack.tensors.one_kernel_softmax) {
        kernel = AttentionImpl::fused_softmax;
        origin += ", whose unfused attention has a softmax kernel";
    }
    out_.values.attention = kernel;
    note("stack.attention", std::string(name_of(kernel)), std::move(origin),
         "which attention kernel runs");
}

Status Resolver::sequence() {
    const Sequence& given = scenario_.job.sequence;
    const ModelSpec& model = scenario_.model;
    std::int64_t max = given.max;
    if (max == 0) {
        max = model.max_positions > 0 ? std::min(model.max_positions, default_sequence_limit)
                                      : default_sequence_limit;
        note("job.sequence.max", std::to_string(max),
             model.max_positions > 0 && model.max_positions <= default_sequence_limit
                 ? "positions of the model"
                 : "default",
             "tokens per sample decide activations and attention");
    }
    if (max < 1) {
        return bad("job.sequence.max", fmt::format("{} tokens are no sequence", max),
                   "write a positive number of tokens, as in 8192");
    }
    const std::int64_t rows = model.embedding.position_rows;
    if (model.embedding.positions == Positions::learned && rows > 0 && max > rows) {
        return bad(
            "job.sequence.max",
            fmt::format("{} tokens exceed the {} learned positions of {}", max, rows, model.name),
            fmt::format("write {} or less", rows));
    }
    const double mean = given.mean == 0.0 ? static_cast<double>(max) : given.mean;
    if (!(mean > 0.0 && mean <= static_cast<double>(max))) {
        return bad(
            "job.sequence.mean",
            fmt::format("a mean of {} tokens lies outside 0 to the maximum of {}", mean, max),
            fmt::format("write at most {}, or leave it out", max));
    }
    const double mean_square = given.mean_square == 0.0 ? mean * mean : given.mean_square;
    // A hair of slack: mean and mean square are usually written with a few digits.
    const double slack = 1.0 + 1e-6;
    const double largest = mean * static_cast<double>(max);
    if (!(mean_square * slack >= mean * mean && mean_square <= largest * slack)) {
        return bad(
            "job.sequence.mean_square",
            fmt::format("a mean square of {} cannot come with a mean of {} and a maximum of {}",
                        mean_square, mean, max),
            fmt::format("write a number from {} to {}, or leave it out", mean * mean, largest));
    }
    out_.values.sequence = max;
    out_.values.sequence_mean_square = mean_square;
    return Done{};
}

Status Resolver::batch() {
    const GlobalBatch& given = scenario_.job.global_batch;
    const std::int64_t sequence = out_.values.sequence;
    if (given.sequences < 0 || given.tokens < 0) {
        return bad("job.global_batch", "a batch cannot be negative",
                   "write global_batch.sequences, as in 512");
    }
    if (given.sequences > 0 && given.tokens > 0) {
        return bad("job.global_batch", "the batch is given both in sequences and in tokens",
                   "keep one of global_batch.sequences and global_batch.tokens");
    }
    if (given.sequences == 0 && given.tokens == 0) {
        return bad("job.global_batch", "the global batch is not given",
                   fmt::format("write global_batch.sequences, as in 512 ({} tokens), or "
                               "global_batch.tokens",
                               512 * sequence));
    }
    if (given.sequences > 0) {
        out_.values.global_batch = given.sequences;
        return Done{};
    }
    if (given.tokens % sequence != 0) {
        const std::int64_t below = given.tokens / sequence * sequence;
        return bad(
            "job.global_batch.tokens",
            fmt::format("{} tokens are no whole number of sequences of {}", given.tokens, sequence),
            below > 0 ? fmt::format("write {} or {}", below, below + sequence)
                      : fmt::format("write {} or more", sequence));
    }
    out_.values.global_batch = given.tokens / sequence;
    return Done{};
}

/// The recipe a feature of the stack stands for.
Fp8Recipe recipe_of(const StackProfile& stack) {
    constexpr std::array<std::pair<Feature, Fp8Recipe>, 5> recipes = {{
        {Feature::nvfp4, Fp8Recipe::nvfp4},
        {Feature::mxfp8, Fp8Recipe::mxfp8},
        {Feature::float8_rowwise, Fp8Recipe::rowwise},
        {Feature::float8_tensorwise, Fp8Recipe::tensorwise},
        {Feature::te_fp8, Fp8Recipe::tensorwise},
    }};
    for (const auto& [feature, recipe] : recipes) {
        if (has_feature(stack, feature)) {
            return recipe;
        }
    }
    return Fp8Recipe::none;
}

Status Resolver::precision() {
    const Precision& given = scenario_.job.precision;
    Resolved& values = out_.values;
    values.recipe = given.recipe;
    if (values.recipe == Fp8Recipe::none) {
        values.recipe = recipe_of(scenario_.stack);
        if (values.recipe != Fp8Recipe::none) {
            note("job.precision.recipe", std::string(name_of(values.recipe)), of_stack(),
                 "format of matrix products");
        } else if (given.compute == Dtype::fp8) {
            values.recipe = Fp8Recipe::tensorwise;
            note("job.precision.recipe", "tensorwise", "default", "scales of fp8 products");
        } else if (given.compute == Dtype::fp4) {
            values.recipe = Fp8Recipe::nvfp4;
            note("job.precision.recipe", "nvfp4", "default", "scales of fp4 products");
        }
    }
    if (given.compute == Dtype::int8 || given.compute == Dtype::nf4) {
        return bad("job.precision.compute",
                   fmt::format("training does not multiply in {}", name_of(given.compute)),
                   "bf16, fp16, fp8, tf32 or fp32; weights in nf4 are method qlora");
    }
    const bool low = values.recipe != Fp8Recipe::none;
    if (low && (given.compute == Dtype::fp32 || given.compute == Dtype::tf32)) {
        return bad(
            "job.precision",
            fmt::format("the recipe {} multiplies 16-bit tensors in low precision, and compute "
                        "is {}",
                        name_of(values.recipe), name_of(given.compute)),
            "write compute bf16, or recipe none");
    }
    if (given.compute == Dtype::fp4 && values.recipe != Fp8Recipe::nvfp4) {
        return bad("job.precision.recipe",
                   fmt::format("compute is fp4 and the recipe is {}", name_of(values.recipe)),
                   "write recipe nvfp4, or compute fp8");
    }
    // Under a recipe the tensors between products stay 16 bits wide.
    const bool wide = given.compute == Dtype::fp32 || given.compute == Dtype::tf32;
    const bool half = given.compute == Dtype::fp16;
    values.parameter = wide ? Dtype::fp32 : half ? Dtype::fp16 : Dtype::bf16;
    values.compute = values.recipe == Fp8Recipe::nvfp4 ? Dtype::fp4
                     : low                             ? Dtype::fp8
                                                       : given.compute;
    values.master = wide ? Dtype::fp32 : given.master;
    if (given.gradients.has_value()) {
        values.gradient = *given.gradients;
    } else {
        const bool stays = half && scenario_.stack.states.fp16_gradients_stay;
        values.gradient = wide    ? Dtype::fp32
                          : stays ? Dtype::fp16
                                  : scenario_.stack.memory.gradient;
        note("job.precision.gradients", std::string(name_of(values.gradient)), of_stack(),
             "format gradients accumulate in");
    }
    return Done{};
}

/// A device without the format, with the formats it has.
Status Resolver::peaks() {
    const Resolved& values = out_.values;
    std::string_view format = name_of(values.compute);
    // MX formats came with the units that also multiply in fp4 (Blackwell, CDNA 4).
    const bool block_scaled = values.recipe == Fp8Recipe::mxfp8;
    for (const Device& device : scenario_.devices) {
        if (device.peak_dense.empty()) {
            return Error{ErrorCode::unsupported, "cluster.node.device",
                         fmt::format("the peak of device {} is not known", device.name),
                         "describe it under \"devices\" in the cluster file, or name one that "
                         "`shardplan list devices` prints"};
        }
        const bool has = device.peak_dense.count(std::string(format)) > 0 &&
                         (!block_scaled || device.peak_dense.count("fp4") > 0);
        if (has) {
            continue;
        }
        std::string formats;
        for (const Dtype type : {Dtype::fp32, Dtype::tf32, Dtype::fp16, Dtype::bf16, Dtype::fp8}) {
            if (device.peak_dense.count(std::string(name_of(type))) > 0) {
                formats += fmt::format("{}{}", formats.empty() ? "" : ", ", name_of(type));
            }
        }
        const std::string wanted = block_scaled ? "mxfp8" : std::string(format);
        return bad("job.precision",
                   fmt::format("device {} has no {} matrix units", device.name, wanted),
                   fmt::format("{} multiplies in {}", device.name, formats));
    }
    return Done{};
}

Status Resolver::optimizer() {
    const Optimizer& given = scenario_.job.optimizer;
    Resolved& values = out_.values;
    values.optimizer = given.kind;
    values.state = given.state;
    if (scenario_.stack.memory.pure_16bit) {
        values.master = values.parameter;
        values.gradient = values.parameter;
        values.state = values.parameter;
        note("job.optimizer.state", std::string(name_of(values.state)), of_stack(),
             "weights, gradients and moments are all kept in the compute format");
    }
    if (given.kind == OptimizerKind::adamw && has_feature(scenario_.stack, Feature::adamw_8bit)) {
        values.optimizer = OptimizerKind::adamw_8bit;
        note("job.optimizer.kind", "adamw_8bit", of_stack(), "bytes of optimizer states");
    }
    if (values.optimizer == OptimizerKind::adamw_8bit) {
        values.state = Dtype::int8;
    } else if (given.state != Dtype::fp32 && given.state != Dtype::bf16 &&
               given.state != Dtype::fp16 && given.state != Dtype::fp8 &&
               given.state != Dtype::int8) {
        return bad("job.optimizer.state",
                   fmt::format("optimizer states are not held in {}", name_of(given.state)),
                   "fp32, bf16, fp16, fp8 or int8");
    }
    return Done{};
}

Status Resolver::method() {
    const Job& job = scenario_.job;
    out_.values.method = job.method;
    if (job.method.kind != MethodKind::full && job.method.rank < 1) {
        return bad("job.method.rank", fmt::format("{} is no rank of adapters", job.method.rank),
                   "write a positive number, as in 16");
    }
    if (!(job.moe.imbalance >= 1.0) || !std::isfinite(job.moe.imbalance)) {
        return bad("job.moe.imbalance",
                   fmt::format("the busiest rank cannot receive {} of the mean", job.moe.imbalance),
                   "write 1 (balanced) or more");
    }
    if (!(job.moe.capacity >= 0.0) || !std::isfinite(job.moe.capacity)) {
        return bad("job.moe.capacity", fmt::format("{} is no capacity factor", job.moe.capacity),
                   "write 0 (dropless) or a factor such as 1.25");
    }
    out_.values.moe = job.moe;
    return Done{};
}

} // namespace

Result<ResolvedWithNotes> resolve(const Scenario& scenario) { return Resolver(scenario).run(); }

} // namespace shardplan::sim
