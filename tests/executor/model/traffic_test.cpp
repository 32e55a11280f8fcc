#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "simulator/compute/op_list.hpp"
#include "tests/executor/model/parallel_run.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

/// Bytes of buffers by group and what is done with them.
using Traffic = std::map<std::string, double>;

/// What a collective of a plan is called where it is executed.
std::string_view executed_name(sim::Group group, sim::Collective op) {
    // parts of experts' rows differ in size: one call for each rank's part
    if (group == sim::Group::etp && op == sim::Collective::all_gather) return "broadcast";
    if (group == sim::Group::etp && op == sim::Collective::reduce_scatter) return "reduce";
    if (op == sim::Collective::send_recv) return "send";
    return sim::name_of(op);
}

/// Of the micro-batches of all ranks, forward and backward, as the simulator prices them.
Traffic priced_traffic(const sim::ModelSpec& model, const sim::Layout& layout,
                       const ModelOptions& options) {
    sim::Resolved resolved;
    resolved.sequence = options.sequence;
    resolved.sequence_mean_square = static_cast<double>(options.sequence * options.sequence);
    resolved.compute = resolved.parameter =
        options.storage == Storage::bf16 ? sim::Dtype::bf16 : sim::Dtype::fp32;
    sim::StackProfile stack = generic_stack();
    stack.tensors.loss_rows = options.loss_chunk;
    const sim::ShardingKey sharding = sim::sharding_of(layout);
    const auto ranks = static_cast<double>(sim::rank_count(layout));
    Traffic traffic;
    const auto add = [&](const sim::OpList& ops) {
        for (const sim::Op& op : ops) {
            for (const auto* list : {&op.comm_forward, &op.comm_backward}) {
                for (const sim::CommOp& comm : *list) {
                    const std::string name = std::string(sim::name_of(comm.group)) + " " +
                                             std::string(executed_name(comm.group, comm.op));
                    traffic[name] += comm.bytes * comm.count * ranks;
                }
            }
        }
    };
    add(embedding_ops(model, resolved, stack, sharding));
    const sim::Part& trunk = model.parts[0];
    for (Index i = 0; i < sim::block_count(trunk); ++i) {
        const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
        add(block_ops(model.block_kinds[kind], trunk.hidden, model, resolved, stack, sharding));
    }
    add(head_ops(model, resolved, stack, sharding));
    return traffic;
}

/// The same as executed.
Traffic executed_traffic(const sim::ModelSpec& model, const sim::Layout& layout,
                         const sim::LayoutTables& tables, const ModelOptions& options) {
    Traffic traffic;
    std::mutex mutex;
    const auto body = [&](Communicator& world) -> Status {
        auto rank = rank_model<float>(world, model, layout, tables, options);
        if (!rank) return rank.error();
        Model<float>& trained = *rank->model;
        for (std::size_t i = 0; i < sim::group_count; ++i) {
            const auto count = [&](const CommCall& call) {
                if (call.operation == "receive") return;
                const std::lock_guard lock(mutex);
                traffic[std::string(call.group) + " " + std::string(call.operation)] +=
                    static_cast<double>(call.bytes);
            };
            (*rank->groups)[static_cast<sim::Group>(i)].set_hooks({count, {}});
        }
        const TinyBatch batch = parallel_tokens(options, rank->share.dp.part);
        const auto loss = trained.train(batch.tokens, batch.targets, {0.1, 1.0});
        return loss ? Status(sim::Done{}) : Status(loss.error());
    };
    const auto outcome = run_ranks(static_cast<int>(sim::rank_count(layout)), body);
    EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
    return traffic;
}

/// `beyond`: bytes of a rank beyond the plan's.
void expect_priced(const sim::ModelSpec& model, const std::string& text, const Traffic& beyond,
                   Storage storage) {
    SCOPED_TRACE(text + (storage == Storage::bf16 ? ", 16 bits" : ""));
    sim::LayoutTables tables;
    const sim::Layout layout = sim::parse_layout(text, "layout", tables)->layout;
    ModelOptions options;
    options.sequence = parallel_sequence;
    options.micro_batch = layout.micro_batch;
    options.storage = storage;
    Traffic want = priced_traffic(model, layout, options);
    for (const auto& [name, bytes] : beyond) {
        want[name] += bytes * static_cast<double>(sim::rank_count(layout));
    }
    EXPECT_EQ(executed_traffic(model, layout, tables, options), want);
}

void expect_priced(const sim::ModelSpec& model, const std::string& text, const Traffic& beyond) {
    for (const Storage storage : {Storage::scalar, Storage::bf16})
        expect_priced(model, text, beyond, storage);
}

TEST(ModelTraffic, OfTensorParallelLayersIsWhatTheSimulatorPrices) {
    sim::ModelSpec gpt2 = tiny_gpt2();
    gpt2.embedding.position_rows = parallel_sequence;
    for (const char* layout : {"tp2,dp1,mb2", "tp4,dp1,mb1", "tp2,sp,dp1,mb2", "tp4,sp,dp1,mb1"})
        expect_priced(gpt2, layout, {});
}

TEST(ModelTraffic, OfContextParallelLayersIsWhatTheSimulatorPrices) {
    const Traffic loss = {{"cp all_reduce", 8.0}};
    for (const char* layout :
         {"cp2,dp1,mb2", "cp4,dp1,mb1", "cp3:allgather,dp1,mb1", "cp2:a2a,dp1,mb2"})
        expect_priced(tiny_llama(), layout, loss);
}

TEST(ModelTraffic, OfHeadsThatSeveralRanksGetIsWhatTheSimulatorPrices) {
    const Traffic loss = {{"cp all_reduce", 8.0}};
    for (const char* layout : {"cp4:a2a,dp1,mb2", "tp2,cp2:a2a,dp1,mb1"})
        expect_priced(tiny_llama(), layout, loss);
}

TEST(ModelTraffic, OfNormsOfHeadsAndCompressedKeysIsWhatTheSimulatorPrices) {
    sim::ModelSpec latent = tiny_deepseek();
    latent.parts[0].runs = {{1, 2}}; // dense blocks
    for (const sim::ModelSpec& model : {tiny_qwen3(), tiny_olmo2(), latent, tiny_dropping(),
                                        tiny_parallel(true), tiny_parallel(false)}) {
        for (const char* layout : {"tp2,dp1,mb2", "tp4,dp1,mb1", "tp2,sp,dp1,mb1"})
            expect_priced(model, layout, {});
        expect_priced(model, "cp4:a2a,dp1,mb2", {{"cp all_reduce", 8.0}});
    }
}

TEST(ModelTraffic, OfExpertParallelLayersIsWhatTheSimulatorPrices) {
    const double blocks = 2.0;
    const double tokens = 2.0 * parallel_sequence;
    const double counts = blocks * 4.0 * 8.0;           // of rows for each expert
    const double weights = blocks * tokens * 2.0 * 4.0; // of the choices
    // beside the rows: weights to the experts in the backward pass, their gradients back
    const Traffic beyond = {{"ep all_to_all", counts + 2.0 * weights}};
    expect_priced(tiny_mixtral(), "dp2,ep2,mb2", beyond);
    expect_priced(tiny_mixtral(), "dp4,ep4,mb2", beyond);
    // experts that are split give these gradients in parts
    expect_priced(tiny_mixtral(), "tp2,dp2,ep2,mb2",
                  {{"ep all_to_all", counts + 2.0 * weights}, {"etp all_reduce", weights}});
    // the gate of shared experts: its gradient is a sum of what the ranks find
    const double gate = blocks * tokens * 4.0;
    expect_priced(tiny_qwen2_moe(), "tp2,dp2,ep2,mb2",
                  {{"ep all_to_all", counts + 2.0 * weights},
                   {"etp all_reduce", weights},
                   {"tp all_reduce", gate}});
    // what the load-balance loss sums, and the head's gather
    const double sums = blocks * 2.0 * 4.0 * 8.0;
    expect_priced(tiny_mixtral(), "tp2,sp,dp1,mb2",
                  {{"tp all_reduce", sums},
                   {"etp all_gather", 2.0 * counts},
                   {"etp broadcast", weights},
                   {"etp reduce", weights}});
    // experts that are not split: each tensor-parallel rank sends a part of the tokens
    expect_priced(tiny_mixtral(), "tp2,ep2,etp1,dp1,mb2",
                  {{"ep all_to_all", counts + weights}, {"tp all_gather", weights}});
}

} // namespace
} // namespace shardplan::test
