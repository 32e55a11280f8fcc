// Activation memory of GPT models as published by Korthikanti et al. 2022 (arXiv 2205.05198),
// figures 1 and 7: unfused attention, dropout masks, tensor and sequence parallelism, selective and
// full recomputation. The paper counts tensors of whole size only, no statistics of norms.
#include <algorithm>

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/memory/profile.hpp"
#include "simulator/memory/rank_parameters.hpp"
#include "simulator/schedule/pass_order.hpp"
#include "simulator/spec/parameters.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

struct Published {
    std::string name;
    std::int64_t layers, hidden, heads, pp, chunks, micro_batch, micro_batches;
    double states_gib; ///< 18 bytes per element of block matrices, first stage
    double plain_gib;  ///< activations of the first stage, tensor parallelism alone
    double sequence_selective_gib;
    double percent[4]; ///< of plain: sequence, selective, both, full recomputation
};

const Published published[] = {
    {"22B", 48, 6144, 64, 1, 1, 4, 1, 45.5625, 59.25, 9.5625, {66.84, 49.42, 16.18, 7.64}},
    {"175B",
     96,
     12288,
     96,
     8,
     3,
     1,
     64,
     45.5625,
     66.84375,
     12.3515625,
     {62.04, 56.53, 18.49, 8.71}},
    {"530B",
     105,
     20480,
     128,
     35,
     3,
     1,
     280,
     31.640625,
     114.0234375,
     23.076171875,
     {58.31, 62.04, 20.27, 9.42}},
    {"1T",
     128,
     25600,
     160,
     64,
     1,
     1,
     512,
     32.958984375,
     131.25,
     26.5625,
     {58.31, 62.04, 20.27, 9.42}},
};

constexpr std::int64_t tp = 8;

ModelSpec model_of(const Published& p) {
    ModelSpec model = test::gpt3_175b();
    Part& trunk = model.parts.front();
    trunk.hidden = p.hidden;
    trunk.runs = {{0, p.layers}};
    BlockKind& kind = model.block_kinds.front();
    kind.attention.heads = p.heads;
    kind.attention.kv_heads = p.heads;
    kind.attention.qk_head_dim = p.hidden / p.heads;
    kind.attention.v_head_dim = p.hidden / p.heads;
    kind.ffn.width = 4 * p.hidden;
    return model;
}

StackProfile megatron_of_2022() {
    auto stack = load_stack("megatron-lm");
    EXPECT_TRUE(stack) << to_text(stack.error());
    return with_features(*stack, {Feature::fused_softmax});
}

/// Stored bytes of one block and micro-batch on one rank, statistics left out.
double block_bytes(const Published& p, bool sequence_parallel, Recompute recompute) {
    const ModelSpec model = model_of(p);
    Job job = test::job(2048, p.micro_batch * p.micro_batches);
    job.precision.compute = Dtype::fp16;
    const Scenario scenario = test::scenario(model, test::dgx_a100(p.pp), job, megatron_of_2022());
    const auto resolved = resolve(scenario);
    EXPECT_TRUE(resolved) << to_text(resolved.error());
    ShardingKey key;
    key.micro_batch = p.micro_batch;
    key.tp = static_cast<std::int32_t>(tp);
    key.sp = sequence_parallel;
    OpList ops = block_ops(model.block_kinds.front(), p.hidden, model, resolved->values,
                           scenario.stack, key);
    for (Op& op : ops) {
        for (StoredTensor& t : op.stored) {
            t.bytes = t.name == "statistics" ? 0.0 : t.bytes;
        }
    }
    const double residual = 2.0 * 2048.0 * static_cast<double>(p.micro_batch * p.hidden) /
                            (sequence_parallel ? static_cast<double>(tp) : 1.0);
    return profile_unit(ops, recompute, scenario.stack.tensors, residual, residual).stored_bytes;
}

/// Activations of the first stage: layers of a chunk for each chunk pass in flight.
double first_stage_gib(const Published& p, double bytes) {
    std::int64_t alive = 0;
    std::int64_t most = 0;
    const auto kind = p.chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    for (const Pass& pass : pass_order(kind, p.pp, 0, p.chunks, p.micro_batches)) {
        alive += pass.forward ? 1 : -1;
        most = std::max(most, alive);
    }
    const double layers = static_cast<double>(p.layers) / static_cast<double>(p.pp * p.chunks);
    return bytes * layers * static_cast<double>(most) / 0x1p30;
}

TEST(PublishedActivations, StatesOfBlockMatricesTakeEighteenBytesEach) {
    for (const Published& p : published) {
        const BlockParameters block = block_parameters(model_of(p).block_kinds.front(), p.hidden);
        const double elements = static_cast<double>(block.attention_matrices + block.ffn_matrices) /
                                static_cast<double>(tp) * static_cast<double>(p.layers) /
                                static_cast<double>(p.pp);
        EXPECT_EQ(18.0 * elements / 0x1p30, p.states_gib) << p.name;
    }
}

TEST(PublishedActivations, FirstStageHoldsExactlyWhatThePaperSays) {
    for (const Published& p : published) {
        EXPECT_DOUBLE_EQ(first_stage_gib(p, block_bytes(p, false, Recompute::none)), p.plain_gib)
            << p.name;
        EXPECT_DOUBLE_EQ(first_stage_gib(p, block_bytes(p, true, Recompute::selective)),
                         p.sequence_selective_gib)
            << p.name;
    }
}

TEST(PublishedActivations, EachTechniqueSavesWhatTheChartShows) {
    for (const Published& p : published) {
        const double plain = block_bytes(p, false, Recompute::none);
        const double found[4] = {100.0 * block_bytes(p, true, Recompute::none) / plain,
                                 100.0 * block_bytes(p, false, Recompute::selective) / plain,
                                 100.0 * block_bytes(p, true, Recompute::selective) / plain,
                                 100.0 * block_bytes(p, false, Recompute::full) / plain};
        for (std::size_t i = 0; i < 4; ++i) {
            EXPECT_NEAR(found[i], p.percent[i], 0.2) << p.name << " technique " << i;
        }
    }
}

} // namespace
} // namespace shardplan::sim
