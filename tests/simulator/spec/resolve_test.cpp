#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "simulator/spec/scenario.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

using namespace shardplan::test;

Scenario usual() { return scenario(llama_3_8b(), dgx_h100(1), job(4096, 256)); }

Resolved values(const Scenario& given) {
    const Result<ResolvedWithNotes> out = resolve(given);
    EXPECT_TRUE(out.has_value()) << (out ? "" : to_text(out.error()));
    return out ? out->values : Resolved{};
}

/// The value of an assumption; empty if there is none of that path.
std::string assumed(const Scenario& given, std::string_view path) {
    const Result<ResolvedWithNotes> out = resolve(given);
    EXPECT_TRUE(out.has_value());
    const auto it = std::find_if(out->assumptions.begin(), out->assumptions.end(),
                                 [&](const Assumption& a) { return a.path == path; });
    return it == out->assumptions.end() ? std::string() : it->value;
}

Error refused(const Scenario& given) {
    const Result<ResolvedWithNotes> out = resolve(given);
    EXPECT_FALSE(out.has_value());
    return out ? Error{} : out.error();
}

TEST(Resolve, TakesTheUsualTrainingRecipeWhereNothingElseIsSaid) {
    const Resolved v = values(usual());
    EXPECT_EQ(v.sequence, 4096);
    EXPECT_EQ(v.sequence_mean_square, 4096.0 * 4096.0);
    EXPECT_EQ(v.global_batch, 256);
    EXPECT_EQ(v.compute, Dtype::bf16);
    EXPECT_EQ(v.parameter, Dtype::bf16);
    EXPECT_EQ(v.master, Dtype::fp32);
    EXPECT_EQ(v.gradient, Dtype::fp32);
    EXPECT_EQ(v.state, Dtype::fp32);
}

TEST(Resolve, RecordsWhatTheStackDecided) {
    Scenario given = usual();
    given.stack.memory.gradient = Dtype::bf16;
    EXPECT_EQ(assumed(given, "job.precision.gradients"), "bf16");
    EXPECT_EQ(assumed(given, "stack.attention"), "flash_2");
    EXPECT_EQ(assumed(given, "job.sequence.max"), "");
    given.job.precision.gradients = Dtype::fp32;
    EXPECT_EQ(assumed(given, "job.precision.gradients"), "");
    EXPECT_EQ(values(given).gradient, Dtype::fp32);
}

TEST(Resolve, RunsTheNewestAttentionKernelThatTheStackHolds) {
    Scenario given = usual();
    given.stack.newest_attention = AttentionImpl::flash_1;
    EXPECT_EQ(values(given).attention, AttentionImpl::flash_1);
    given.stack.attention = AttentionImpl::fused_softmax;
    EXPECT_EQ(values(given).attention, AttentionImpl::fused_softmax);
}

TEST(Resolve, TakesTheModelsPositionsForTheSequenceButNotAMillion) {
    Scenario given = usual();
    given.job.sequence.max = 0;
    given.model.max_positions = 4096;
    EXPECT_EQ(values(given).sequence, 4096);
    given.model.max_positions = 1048576;
    EXPECT_EQ(values(given).sequence, 8192);
    EXPECT_EQ(assumed(given, "job.sequence.max"), "8192");
}

TEST(Resolve, RefusesSequencesLongerThanLearnedPositions) {
    Scenario given = scenario(gpt3_175b(), dgx_h100(1), job(4096, 256));
    EXPECT_EQ(refused(given).where, "job.sequence.max");
    EXPECT_NE(refused(given).hint.find("2048"), std::string::npos);
    // Rotary positions only warn: people extend them.
    given = usual();
    given.job.sequence.max = 32768;
    const Resolved v = values(given);
    const auto warnings = layout_warnings(given, v, Layout{}, LayoutTables{});
    EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(),
                            [](const Warning& w) { return w.id == "sequence-beyond-positions"; }));
}

TEST(Resolve, RefusesMomentsOfASequenceThatCannotBe) {
    Scenario given = usual();
    given.job.sequence.mean = 1000.0;
    EXPECT_EQ(values(given).sequence_mean_square, 1e6);
    given.job.sequence.mean_square = 2e6;
    EXPECT_EQ(values(given).sequence_mean_square, 2e6);
    given.job.sequence.mean_square = 0.9e6; // below the square of the mean
    EXPECT_EQ(refused(given).where, "job.sequence.mean_square");
    given.job.sequence.mean_square = 4.2e6; // above mean x max
    EXPECT_EQ(refused(given).where, "job.sequence.mean_square");
    given.job.sequence.mean_square = 0.0;
    given.job.sequence.mean = 5000.0;
    EXPECT_EQ(refused(given).where, "job.sequence.mean");
}

TEST(Resolve, WantsTheBatchExactlyOnce) {
    Scenario given = usual();
    given.job.global_batch = {};
    EXPECT_NE(refused(given).what.find("not given"), std::string::npos);
    given.job.global_batch.tokens = 1048576;
    EXPECT_EQ(values(given).global_batch, 256);
    given.job.global_batch.tokens = 1000000;
    EXPECT_EQ(refused(given).hint, "write 999424 or 1003520");
    given.job.global_batch.sequences = 256;
    EXPECT_NE(refused(given).what.find("both"), std::string::npos);
}

TEST(Resolve, MultipliesInFp8AndKeepsTensorsInBf16) {
    Scenario given = usual();
    given.job.precision.recipe = Fp8Recipe::rowwise;
    EXPECT_EQ(values(given).compute, Dtype::fp8);
    EXPECT_EQ(values(given).parameter, Dtype::bf16);
    given = usual();
    given.job.precision.compute = Dtype::fp8;
    EXPECT_EQ(values(given).recipe, Fp8Recipe::tensorwise);
    EXPECT_EQ(assumed(given, "job.precision.recipe"), "tensorwise");
    given = usual();
    given.stack = with_features(given.stack, {Feature::float8_rowwise});
    EXPECT_EQ(values(given).recipe, Fp8Recipe::rowwise);
}

TEST(Resolve, RefusesFormatsTheDeviceHasNoUnitsFor) {
    Scenario given = scenario(llama_3_8b(), dgx_a100(1), job(4096, 256));
    given.job.precision.recipe = Fp8Recipe::tensorwise;
    const Error fp8 = refused(given);
    EXPECT_EQ(fp8.what, "device A100-SXM-80GB has no fp8 matrix units");
    EXPECT_NE(fp8.hint.find("bf16"), std::string::npos);
    given = usual();
    given.job.precision.recipe = Fp8Recipe::mxfp8;
    EXPECT_EQ(refused(given).what, "device H100-SXM-80GB has no mxfp8 matrix units");
    given.job.precision.recipe = Fp8Recipe::nvfp4;
    EXPECT_EQ(refused(given).what, "device H100-SXM-80GB has no fp4 matrix units");
    given = usual();
    given.devices[0].peak_dense.clear();
    EXPECT_EQ(refused(given).code, ErrorCode::unsupported);
}

TEST(Resolve, RefusesPrecisionsThatContradictOneAnother) {
    Scenario given = usual();
    given.job.precision.compute = Dtype::fp32;
    given.job.precision.recipe = Fp8Recipe::rowwise;
    EXPECT_EQ(refused(given).where, "job.precision");
    given.job.precision.recipe = Fp8Recipe::none;
    EXPECT_EQ(values(given).parameter, Dtype::fp32);
    EXPECT_EQ(values(given).gradient, Dtype::fp32);
    given.job.precision.compute = Dtype::nf4;
    EXPECT_NE(refused(given).hint.find("qlora"), std::string::npos);
}

TEST(Resolve, KnowsEightBitStatesFromTheJobOrTheStack) {
    Scenario given = usual();
    given.job.optimizer.kind = OptimizerKind::adamw_8bit;
    EXPECT_EQ(values(given).state, Dtype::int8);
    given = usual();
    given.stack = with_features(given.stack, {Feature::adamw_8bit});
    EXPECT_EQ(values(given).optimizer, OptimizerKind::adamw_8bit);
    EXPECT_EQ(assumed(given, "job.optimizer.kind"), "adamw_8bit");
    given = usual();
    given.job.optimizer.state = Dtype::nf4;
    EXPECT_EQ(refused(given).where, "job.optimizer.state");
}

TEST(Resolve, RunsTheAttentionKernelThatTheStackHasOnTheDevice) {
    sim::StackProfile stack = test::generic_stack();
    stack.attention = sim::AttentionImpl::cudnn;
    const auto kernel = [&](const sim::Cluster& cluster) {
        const auto resolved =
            sim::resolve(test::scenario(test::llama_3_8b(), cluster, test::job(4096, 64), stack));
        EXPECT_TRUE(resolved) << sim::to_text(resolved.error());
        return resolved->values.attention;
    };
    EXPECT_EQ(kernel(test::dgx_h100(1)), sim::AttentionImpl::cudnn);
    // Transformer Engine prefers FlashAttention 2 before compute capability 9.0.
    EXPECT_EQ(kernel(test::dgx_a100(1)), sim::AttentionImpl::flash_2);
    stack.attention = sim::AttentionImpl::unfused;
    EXPECT_EQ(kernel(test::dgx_h100(1)), sim::AttentionImpl::unfused);
    stack.tensors.one_kernel_softmax = true;
    EXPECT_EQ(kernel(test::dgx_h100(1)), sim::AttentionImpl::fused_softmax);
}

TEST(Resolve, RefusesLoadsAndRanksThatCannotBe) {
    Scenario given = usual();
    given.job.moe.imbalance = 0.5;
    EXPECT_EQ(refused(given).where, "job.moe.imbalance");
    given = usual();
    given.job.moe.capacity = -1.0;
    EXPECT_EQ(refused(given).where, "job.moe.capacity");
    given = usual();
    given.job.method = {MethodKind::lora, 0, LoraTargets::attention};
    EXPECT_EQ(refused(given).where, "job.method.rank");
}

} // namespace
} // namespace shardplan::sim
