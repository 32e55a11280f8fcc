#include "simulator/compute/op_list.hpp"

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Collective;
using sim::Op;
using sim::OpKind;
using sim::OpList;

sim::Resolved resolved(std::int64_t sequence) {
    sim::Resolved r;
    r.sequence = sequence;
    r.sequence_mean_square = static_cast<double>(sequence) * static_cast<double>(sequence);
    r.global_batch = 8;
    return r;
}

sim::ShardingKey tensor_parallel(int tp, bool sp) {
    sim::ShardingKey key;
    key.tp = tp;
    key.etp = tp;
    key.sp = sp;
    return key;
}

OpList block(const sim::ModelSpec& model, const sim::Resolved& r, const sim::ShardingKey& key,
             const sim::StackProfile& stack = generic_stack()) {
    return block_ops(model.block_kinds[0], model.parts[0].hidden, model, r, stack, key);
}

const Op& op_named(const OpList& ops, std::string_view name) {
    for (const Op& op : ops) {
        if (op.name == name) return op;
    }
    ADD_FAILURE() << "no operator " << name;
    return ops.front();
}

double weights(const OpList& ops) {
    double sum = 0.0;
    for (const Op& op : ops)
        sum += op.weights;
    return sum;
}

double sent(const OpList& ops, Collective op, bool forward) {
    double bytes = 0.0;
    for (const Op& entry : ops) {
        for (const sim::CommOp& comm : forward ? entry.comm_forward : entry.comm_backward) {
            if (comm.op == op) bytes += comm.bytes * comm.count;
        }
    }
    return bytes;
}

TEST(OpList, HoldsEveryParameterOfALlamaBlockOnce) {
    EXPECT_EQ(weights(block(llama_3_8b(), resolved(8192), {})), 218112000.0);
}

TEST(OpList, SplitsMatricesByTensorParallelAndKeepsNormsWhole) {
    const OpList ops = block(llama_3_8b(), resolved(8192), tensor_parallel(2, true));
    EXPECT_EQ(weights(ops), (218112000.0 - 2 * 4096) / 2 + 2 * 4096);
    EXPECT_EQ(op_named(ops, "qkv").gemm, (sim::Gemm{8192, 3072, 4096, 1}));
    EXPECT_EQ(op_named(ops, "mlp_down").gemm, (sim::Gemm{8192, 4096, 7168, 1}));
}

TEST(OpList, CopiesKeyValueHeadsThatAreFewerThanTheRanks) {
    const OpList ops = block(llama_3_8b(), resolved(8192), tensor_parallel(16, false));
    // two query heads, and one key and one value head of which every second rank has a copy
    EXPECT_EQ(op_named(ops, "qkv").gemm.n, (2 + 1 + 1) * 128);
}

TEST(OpList, AllReducesTwiceForwardAndTwiceBackwardUnderTensorParallelism) {
    const OpList ops = block(llama_3_8b(), resolved(8192), tensor_parallel(2, false));
    const double message = 8192.0 * 4096.0 * 2.0;
    EXPECT_EQ(message, 67108864.0);
    EXPECT_EQ(sent(ops, Collective::all_reduce, true), 2.0 * message);
    EXPECT_EQ(sent(ops, Collective::all_reduce, false), 2.0 * message);
}

TEST(OpList, GathersInputsAgainInTheBackwardPassUnderSequenceParallelism) {
    const OpList ops = block(llama_3_8b(), resolved(8192), tensor_parallel(2, true));
    const double message = 8192.0 * 4096.0 * 2.0;
    EXPECT_EQ(sent(ops, Collective::all_gather, true), 2.0 * message);
    EXPECT_EQ(sent(ops, Collective::reduce_scatter, true), 2.0 * message);
    EXPECT_EQ(sent(ops, Collective::reduce_scatter, false), 2.0 * message);
    EXPECT_EQ(sent(ops, Collective::all_gather, false), 4.0 * message);
}

TEST(OpList, KeepsGatheredInputsWhereTheStackDoes) {
    sim::StackProfile stack = generic_stack();
    stack.tensors.keeps_gathered_input = true;
    const OpList ops = block(llama_3_8b(), resolved(8192), tensor_parallel(2, true), stack);
    const double message = 8192.0 * 4096.0 * 2.0;
    EXPECT_EQ(sent(ops, Collective::all_gather, true), 2.0 * message);
    EXPECT_EQ(sent(ops, Collective::all_gather, false), 2.0 * message);
}

TEST(OpList, BringsWeightsIntoNarrowFormatsForEveryMicroBatch) {
    sim::Resolved r = resolved(8192);
    r.compute = sim::Dtype::fp8;
    sim::StackProfile stack = generic_stack();
    // 4096 x 6144 weights and 8192 x 4096 inputs: 2 bytes in, one copy of each orientation out
    const double elements = 4096.0 * 6144.0 + 8192.0 * 4096.0;
    const auto traffic = [&] {
        return op_named(block(llama_3_8b(), r, {}, stack), "qkv").traffic_forward;
    };
    EXPECT_EQ(traffic(), elements * 4.0);
    stack.features.push_back(sim::Feature::float8_tensorwise); // the largest value is found first
    EXPECT_EQ(traffic(), elements * 6.0);
    stack.features.back() = sim::Feature::float8_rowwise; // for rows and for columns
    EXPECT_EQ(traffic(), elements * 10.0);
}

TEST(OpList, MovesMoreForNormsWrittenInPasses) {
    sim::StackProfile stack = generic_stack();
    const auto traffic = [&](sim::NormImpl norm) {
        stack.tensors.norm = norm;
        return op_named(block(llama_3_8b(), resolved(8192), {}, stack), "ffn_norm")
                   .traffic_forward /
               (8192.0 * 4096.0);
    };
    EXPECT_EQ(traffic(sim::NormImpl::fused), 4.0);
    EXPECT_EQ(traffic(sim::NormImpl::native), 14.0);
    EXPECT_EQ(traffic(sim::NormImpl::upcast), 36.0);
}

TEST(OpList, LeavesComplexRotaryPositionsEager) {
    sim::StackProfile stack = generic_stack();
    stack.tensors.rope = sim::RopeImpl::fused;
    const auto traffic = [&] {
        return op_named(block(llama_3_8b(), resolved(8192), {}, stack), "rope").traffic_forward /
               (8192.0 * 40.0 * 128.0); // of 32 query and 8 key heads
    };
    EXPECT_EQ(traffic(), 4.0);
    stack.tensors.complex_rope = true;
    EXPECT_EQ(traffic(), 20.0);
}

TEST(OpList, AddsUpThePiecesOfARing) {
    sim::ShardingKey key;
    key.cp = 4;
    const Op op = op_named(block(llama_3_8b(), resolved(8192), key), "core_attention");
    EXPECT_EQ(op.attention_edges, 4.0);
    EXPECT_EQ(op.sum_forward, 3.0 * 2048.0 * 32.0 * 128.0 * 10.0);
    key.cp_kind = sim::CpKind::all_to_all;
    EXPECT_EQ(op_named(block(llama_3_8b(), resolved(8192), key), "core_attention").sum_forward,
              0.0);
}

TEST(OpList, RunsExpertsAsTheStackDoes) {
    sim::StackProfile stack = generic_stack();
    const auto expert = [&] {
        return op_named(block(mixtral_8x7b(), resolved(4096), {}, stack), "expert_up");
    };
    EXPECT_EQ(expert().at_once, 1);
    EXPECT_EQ(expert().kernels_forward, 8);
    stack.features.push_back(sim::Feature::grouped_gemm);
    EXPECT_EQ(expert().at_once, 8);
    EXPECT_EQ(expert().kernels_forward, 1);
    stack.features.push_back(sim::Feature::te); // four streams of single products
    EXPECT_EQ(expert().at_once, 4);
    EXPECT_EQ(expert().kernels_forward, 8);
}

TEST(OpList, CountsHalfOfTheScoresInFlashAttentionAndAllOfThemWhereTheyAreWrittenOut) {
    sim::Resolved r = resolved(4096);
    const double whole = 2.0 * 4096.0 * 4096.0 * 32.0 * (128.0 + 128.0);
    EXPECT_EQ(op_named(block(llama_3_8b(), r, {}), "core_attention").flops_forward, whole / 2.0);
    r.attention = sim::AttentionImpl::unfused;
    EXPECT_EQ(op_named(block(llama_3_8b(), r, {}), "core_attention").flops_forward, whole);
}

TEST(OpList, LetsAWindowBoundTheKeysOfAQuery) {
    sim::ModelSpec model = llama_3_8b();
    model.block_kinds[0].attention.window = 1024;
    const Op op = op_named(block(model, resolved(8192), {}), "core_attention");
    const double pairs = 8192.0 * 1024.0 - 1024.0 * 1024.0 / 2.0;
    EXPECT_EQ(op.flops_forward, 2.0 * pairs * 32.0 * 256.0);
}

TEST(OpList, DoesFiveProductsInTheBackwardOfFlashAttentionForTwoInTheForward) {
    const Op op = op_named(block(llama_3_8b(), resolved(8192), {}), "core_attention");
    EXPECT_EQ(op.flops_backward, 2.5 * op.flops_forward);
}

TEST(OpList, SplitsTheSequenceOverContextParallelRanks) {
    sim::ShardingKey key;
    key.cp = 4;
    const OpList ops = block(llama_3_8b(), resolved(8192), key);
    EXPECT_EQ(op_named(ops, "mlp_up").gemm.m, 2048);
    const Op& core = op_named(ops, "core_attention");
    const Op whole = op_named(block(llama_3_8b(), resolved(8192), {}), "core_attention");
    EXPECT_EQ(core.flops_forward, whole.flops_forward / 4.0);
    // three steps of the ring, each with keys and values of 2048 tokens and 8 heads
    ASSERT_EQ(core.comm_forward.size(), 1U);
    EXPECT_EQ(core.comm_forward[0].count, 3);
    EXPECT_EQ(core.comm_forward[0].bytes, 2048.0 * 8 * 256 * 2.0);
}

TEST(OpList, SendsTheSameTokensThroughTheExpertsOfARankWhateverTheExpertDegree) {
    sim::ShardingKey key;
    const OpList alone = block(mixtral_8x7b(), resolved(4096), key);
    key.ep = 8;
    const OpList spread = block(mixtral_8x7b(), resolved(4096), key);
    EXPECT_EQ(op_named(alone, "expert_up").flops_forward,
              op_named(spread, "expert_up").flops_forward);
    EXPECT_EQ(op_named(alone, "expert_up").gemm.count, 8);
    EXPECT_EQ(op_named(spread, "expert_up").gemm.count, 1);
    // dispatch and combine, forward and backward
    const double routed = 4096.0 * 2.0 * 4096.0 * 2.0;
    EXPECT_EQ(sent(spread, Collective::all_to_all, true), 2.0 * routed);
    EXPECT_EQ(sent(spread, Collective::all_to_all, false), 2.0 * routed);
    EXPECT_EQ(sent(alone, Collective::all_to_all, true), 0.0);
}

TEST(OpList, GivesTheBusiestExpertRankItsImbalance) {
    sim::Resolved r = resolved(4096);
    const Op even = op_named(block(mixtral_8x7b(), r, {}), "expert_up");
    r.moe.imbalance = 1.5;
    EXPECT_EQ(op_named(block(mixtral_8x7b(), r, {}), "expert_up").flops_forward,
              1.5 * even.flops_forward);
}

TEST(OpList, TrainsOnlyTheAdaptersUnderLora) {
    sim::Resolved r = resolved(4096);
    r.method.kind = sim::MethodKind::lora;
    r.method.rank = 16;
    const OpList ops = block(llama_3_8b(), r, {});
    double trained = 0.0;
    for (const Op& op : ops) {
        if (!op.frozen) trained += op.weights;
    }
    // (in + out) x rank for each of query, key, value, output, gate, up and down map
    EXPECT_EQ(trained, 16.0 * (3 * 4096 + 6144 + 4096 + 4096 + 2 * 4096 + 28672 + 14336 + 4096));
    const Op& up = op_named(ops, "mlp_up");
    EXPECT_EQ(up.flops_backward, up.flops_forward);
}

TEST(OpList, CompressesKeysAndValuesOfLatentAttention) {
    sim::ModelSpec model = llama_3_8b();
    sim::Attention& a = model.block_kinds[0].attention;
    a.kind = sim::AttentionKind::mla;
    a.heads = a.kv_heads = 128;
    a.qk_head_dim = 192;
    a.v_head_dim = 128;
    a.rope_dim = 64;
    a.q_rank = 1536;
    a.kv_rank = 512;
    const OpList ops = block(model, resolved(4096), tensor_parallel(8, true));
    // down-projections are whole on every rank and see its own tokens
    EXPECT_EQ(op_named(ops, "kv_down").gemm, (sim::Gemm{512, 576, 4096, 1}));
    EXPECT_EQ(op_named(ops, "kv_up").gemm, (sim::Gemm{4096, 16 * 256, 512, 1}));
    EXPECT_EQ(op_named(ops, "q_up").gemm, (sim::Gemm{4096, 16 * 192, 1536, 1}));
}

TEST(OpList, ReducesOnceWhereAttentionAndNetworkReadTheSameVector) {
    sim::ModelSpec model = llama_3_8b();
    model.block_kinds[0].norms.parallel = true;
    model.block_kinds[0].norms.pre_ffn = false;
    const OpList ops = block(model, resolved(8192), tensor_parallel(2, false));
    EXPECT_EQ(sent(ops, Collective::all_reduce, true), 67108864.0);
    EXPECT_EQ(sent(ops, Collective::all_reduce, false), 67108864.0);
}

TEST(OpList, PadsAndSplitsTheVocabularyOfTheHead) {
    sim::Resolved r = resolved(8192);
    r.vocab_multiple = 128;
    const OpList ops = head_ops(llama_3_8b(), r, megatron_core_stack(), tensor_parallel(8, true));
    EXPECT_EQ(op_named(ops, "head").gemm, (sim::Gemm{8192, 129024 / 8, 4096, 1}));
    EXPECT_EQ(op_named(ops, "cross_entropy").comm_forward[0].count, 3);
}

TEST(OpList, MovesLessForALossThatIsOneKernel) {
    const Op eager =
        op_named(head_ops(llama_3_8b(), resolved(8192), generic_stack(), {}), "cross_entropy");
    const Op fused =
        op_named(head_ops(llama_3_8b(), resolved(8192),
                          with_features(generic_stack(), {sim::Feature::fused_ce}), {}),
                 "cross_entropy");
    EXPECT_EQ(fused.traffic_forward, 2.0 * 2.0 * 8192.0 * 128256.0);
    EXPECT_GT(eager.traffic_forward, 3.0 * fused.traffic_forward);
}

TEST(OpList, GathersTheLogitsWhereTheLossIsNotSplit) {
    sim::StackProfile stack = generic_stack();
    stack.tensors.vocab_parallel_loss = false;
    const OpList ops = head_ops(llama_3_8b(), resolved(8192), stack, tensor_parallel(2, false));
    const Op& loss = op_named(ops, "cross_entropy");
    ASSERT_EQ(loss.comm_forward.size(), 1U);
    EXPECT_EQ(loss.comm_forward[0].op, Collective::all_gather);
    EXPECT_EQ(loss.comm_forward[0].bytes, 8192.0 * 128256.0 * 2.0);
}

TEST(OpList, RunsCoreAttentionAgainUnderMegatronsSelectivePolicy) {
    for (const Op& op : block(llama_3_8b(), resolved(8192), {})) {
        EXPECT_EQ(op.selective_share, op.kind == OpKind::attention ? 1.0 : 0.0) << op.name;
    }
}

TEST(OpList, RunsEverySecondProductAgainUnderThePolicyPerOperator) {
    sim::StackProfile stack = generic_stack();
    stack.tensors.selective = sim::SelectivePolicy::per_operator;
    const OpList ops = block(llama_3_8b(), resolved(8192), {}, stack);
    EXPECT_EQ(op_named(ops, "core_attention").selective_share, 0.0);
    EXPECT_EQ(op_named(ops, "attention_norm").selective_share, 1.0);
    // of 32 query, 8 key and 8 value heads the keys; of gate and up the latter
    EXPECT_DOUBLE_EQ(op_named(ops, "qkv").selective_share, 8.0 / 48.0);
    EXPECT_EQ(op_named(ops, "mlp_up").selective_share, 0.5);
    EXPECT_EQ(op_named(ops, "mlp_down").selective_share, 0.0);
}

TEST(OpList, LooksTokensUpWithoutProducts) {
    const OpList ops = embedding_ops(gpt3_175b(), resolved(2048), generic_stack(), {});
    EXPECT_EQ(ops.at(0).kind, OpKind::embedding);
    EXPECT_EQ(ops.at(0).flops_forward, 0.0);
    EXPECT_EQ(ops.at(0).weights, (51200.0 + 2048.0) * 12288.0);
}

} // namespace
} // namespace shardplan::test
