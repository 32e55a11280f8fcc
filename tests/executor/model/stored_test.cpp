#include <string>

#include <gtest/gtest.h>

#include "simulator/compute/op_list.hpp"
#include "tests/executor/model/parallel_run.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

/// Bytes that a block keeps from its forward to its backward pass, as the simulator counts them.
double priced_bytes(const sim::ModelSpec& model, const sim::Layout& layout,
                    const ModelOptions& options) {
    sim::Resolved resolved;
    resolved.sequence = options.sequence;
    resolved.sequence_mean_square = static_cast<double>(options.sequence * options.sequence);
    resolved.compute = resolved.parameter = sim::Dtype::fp32;
    // as the stack that describes this executor has it
    sim::StackProfile stack = generic_stack();
    stack.tensors.norm = sim::NormImpl::fused;
    stack.tensors.rope = sim::RopeImpl::fused;
    stack.tensors.packed_qkv = false;
    double bytes = 0.0;
    for (const sim::Op& op : block_ops(model.block_kinds[0], model.parts[0].hidden, model, resolved,
                                       stack, sim::sharding_of(layout))) {
        for (const sim::StoredTensor& tensor : op.stored) {
            if (tensor.keep != sim::Keep::only_by_selective) bytes += tensor.bytes;
        }
    }
    return bytes;
}

void expect_stored(const sim::ModelSpec& model, const std::string& text) {
    SCOPED_TRACE(text);
    sim::LayoutTables tables;
    const sim::Layout layout = sim::parse_layout(text, "layout", tables)->layout;
    ModelOptions options;
    options.sequence = parallel_sequence;
    options.micro_batch = layout.micro_batch;
    const double priced = priced_bytes(model, layout, options);
    const auto outcome =
        run_ranks(static_cast<int>(sim::rank_count(layout)), [&](Communicator& world) -> Status {
            auto rank = rank_model<float>(world, model, layout, tables, options);
            if (!rank) return rank.error();
            Model<float>& trained = *rank->model;
            Pass<float> pass;
            trained.embed(parallel_tokens(options, rank->share.dp.part).tokens, pass);
            const Index before = trained.arena().bytes_in_use();
            trained.forward(0, pass, true);
            // the output is the next block's input, which takes the place of this one's
            EXPECT_EQ(static_cast<double>(trained.arena().bytes_in_use() - before), priced);
            return trained.failure();
        });
    EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
}

TEST(ModelMemory, OfABlockBetweenItsPassesIsWhatTheSimulatorCounts) {
    sim::ModelSpec gpt2 = tiny_gpt2();
    gpt2.embedding.position_rows = parallel_sequence;
    for (const char* layout :
         {"dp1,mb2", "tp2,dp1,mb2", "tp4,sp,dp1,mb1", "cp2,dp1,mb2", "cp3:allgather,dp1,mb1",
          "cp2:a2a,dp1,mb2", "tp2,sp,cp2:a2a,dp1,mb1"})
        expect_stored(gpt2, layout);
    for (const char* layout :
         {"dp1,mb2", "tp2,dp1,mb2", "tp2,sp,dp1,mb2", "cp4,dp1,mb1", "tp2,cp2,dp1,mb1"})
        expect_stored(tiny_llama(), layout);
    // the same key head on several ranks
    for (const char* layout : {"cp4:a2a,dp1,mb2", "tp2,cp2:a2a,dp1,mb1"})
        expect_stored(tiny_llama(), layout);
}

TEST(ModelMemory, OfNormsOfHeadsLatentsAndDroppedValuesIsWhatTheSimulatorCounts) {
    sim::ModelSpec latent = tiny_deepseek();
    std::swap(latent.block_kinds[0], latent.block_kinds[1]); // the dense block first
    latent.parts[0].runs = {{0, 2}};
    sim::ModelSpec whole = latent;
    whole.block_kinds[0].attention.q_rank = 0;
    for (const sim::ModelSpec& model : {tiny_qwen3(), tiny_olmo2(), latent, whole, tiny_dropping(),
                                        tiny_parallel(true), tiny_parallel(false)}) {
        for (const char* layout :
             {"dp1,mb2", "tp2,dp1,mb2", "tp2,sp,dp1,mb2", "cp2,dp1,mb1", "cp4:a2a,dp1,mb2"})
            expect_stored(model, layout);
    }
}

} // namespace
} // namespace shardplan::test
