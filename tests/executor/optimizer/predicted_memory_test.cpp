#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/memory/memory.hpp"
#include "tests/executor/optimizer/shared_training.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

/// What the simulator expects each stage to hold through a step.
class Prediction {
public:
    Prediction(const SharedTraining& training, sim::Dtype stored)
        : scenario_(scenario(training.model, dgx_h100(1), job(tiny_sequence, 8), stack())) {
        resolved_ = sim::resolve(scenario_)->values;
        resolved_.parameter = stored;
        resolved_.gradient = resolved_.master = resolved_.state = sim::Dtype::fp32;
        if (training.optimizer.kind == OptimizerKind::sgd) {
            resolved_.optimizer = sim::OptimizerKind::sgd_momentum;
        }
        const sim::Layout layout = layout_of(training.layout, tables_);
        sim::MemoryCache cache;
        std::vector<sim::ClassMemory> classes;
        evaluate_memory({scenario_, resolved_, tables_}, layout, place(scenario_, layout, tables_),
                        cache, classes);
        for (const sim::ClassMemory& c : classes)
            stages.push_back(c.persistent);
    }
    std::vector<sim::BytesByKind> stages;

private:
    /// The memory rules of the executor's own profile.
    static sim::StackProfile stack() {
        sim::StackProfile stack = generic_stack();
        stack.capabilities.fully_sharded = false;
        stack.capabilities.vocab_multiple = 1;
        stack.memory.sharded_fp32_parameters = false;
        stack.states = {};
        stack.states.whole_pieces = true;
        return stack;
    }

    sim::Scenario scenario_;
    sim::Resolved resolved_;
    sim::LayoutTables tables_;
};

void expect_predicted(SharedTraining training) {
    constexpr std::array kinds = {
        sim::TensorKind::weights,          sim::TensorKind::gradients,
        sim::TensorKind::master_weights,   sim::TensorKind::buckets,
        sim::TensorKind::optimizer_states, sim::TensorKind::gathered_weights};
    training.steps = 1;
    training.offload_to = ::testing::TempDir();
    sim::LayoutTables tables;
    const bool by_unit =
        layout_of(training.layout, tables).shard == sim::Shard::optimizer_gradients;
    training.buckets = by_unit ? std::numeric_limits<std::uint16_t>::max() : 1; // as executed_input
    for (const Storage storage : {Storage::scalar, Storage::bf16}) {
        training.storage = storage;
        SCOPED_TRACE(training.layout + (storage == Storage::bf16 ? ", 16 bits" : ""));
        const Prediction predicted(training,
                                   storage == Storage::bf16 ? sim::Dtype::bf16 : sim::Dtype::fp32);
        Trained<float> trained;
        train(training, trained);
        for (const auto& rank : trained.ranks) {
            const auto stage = static_cast<std::size_t>(rank.share.stage);
            for (const sim::TensorKind kind : kinds) {
                EXPECT_EQ(static_cast<double>(rank.memory.now(kind)),
                          predicted.stages[stage][kind].value())
                    << sim::name_of(kind) << " on rank " << rank.share.rank;
            }
        }
    }
}

sim::ModelSpec of_six_blocks(sim::ModelSpec model) {
    model.parts[0].runs = {{0, 6}};
    return model;
}

TEST(PredictedMemory, IsThatOfTheAllocatorToTheByteForDenseModels) {
    for (const sim::ModelSpec& model : {tiny_gpt2(true), tiny_gpt2(false), tiny_llama()}) {
        for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
            for (const std::string layout :
                 {"dp1,mb1", "dp5,mb1", "dp4,mb1", "tp2,sp,dp2,mb1", "cp2,dp2,mb1", "pp3,dp2,mb1",
                  "pp3,v2,dp1,mb1", "pp2,v2,dp2,mb1,sched=zb-v", "pp2,v2,dp3,mb1,sched=dualpipe",
                  "tp2,pp2,dp1,mb1"}) {
                expect_predicted({.model = of_six_blocks(model), .layout = layout + shard});
            }
        }
    }
}

TEST(PredictedMemory, IsThatOfTheAllocatorToTheByteForExperts) {
    for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
        for (const std::string layout :
             {"dp5,mb1", "dp4,ep2,mb1", "dp4,ep4,mb1", "tp2,sp,dp2,ep2,mb1", "pp2,dp3,mb1"}) {
            expect_predicted({.model = of_six_blocks(tiny_mixtral()), .layout = layout + shard});
        }
    }
}

TEST(PredictedMemory, IsThatOfTheAllocatorToTheByteForAllThatABlockMayHave) {
    for (const sim::ModelSpec& model :
         {tiny_qwen3(), tiny_olmo2(), tiny_deepseek(), tiny_deepseek(0), tiny_qwen2_moe(),
          tiny_dropping(), tiny_parallel(true), tiny_gpt_oss()}) {
        for (const char* layout : {"dp1,mb1", "dp5,mb1,zero3", "tp2,sp,dp2,mb1,zero1",
                                   "tp4,dp1,mb1", "pp2,dp3,mb1,zero2"})
            expect_predicted({.model = of_six_blocks(model), .layout = layout});
    }
}

TEST(PredictedMemory, IsThatOfTheAllocatorToTheByteForShardGroupsWrapsAndOffload) {
    for (const char* layout :
         {"dp4,mb1,zero1:2", "dp4,mb1,zero3:2", "dp5,mb1,zero3,wrap=2blocks",
          "dp5,mb1,zero3,wrap=4blocks", "dp5,mb1,zero3,wrap=model",
          "pp2,v2,dp3,mb1,sched=dualpipe,zero3,wrap=2blocks", "dp5,mb1,zero1,off=opt:0.333:host",
          "dp5,mb1,zero3,off=opt:0.501:nvme", "dp5,mb1,zero3,off=opt:1.0:host,off=par:0.777:host",
          "dp1,mb1,off=opt:0.4:host", "dp1,mb1,zero3,off=par:0.4:host",
          "dp1,pp2,mb1,zero3,off=par:1.0:nvme,off=opt:0.7:nvme"}) {
        expect_predicted({.model = of_six_blocks(tiny_gpt2()), .layout = layout});
    }
    expect_predicted({.model = of_six_blocks(tiny_mixtral()), .layout = "dp4,ep2,mb1,zero3:2"});
    for (const char* layout :
         {"dp6,ep2,mb1,zero3:2", "dp6,ep2,mb1,zero2:2", "dp6,ep2,mb1,zero1:2"}) {
        expect_predicted({.model = of_six_blocks(tiny_mixtral()), .layout = layout});
    }
    SharedTraining sgd{.model = tiny_llama(), .layout = "dp5,mb1,zero3"};
    sgd.optimizer.kind = OptimizerKind::sgd;
    expect_predicted(sgd);
}

} // namespace
} // namespace shardplan::test
