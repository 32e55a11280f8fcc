#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "tests/simulator/estimate/estimated.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

std::vector<sim::Warning> warnings_of(const sim::Scenario& scenario, std::string_view layout) {
    return estimated(scenario, layout).warnings;
}

/// The text of the only warning of an id; empty where there is none.
std::string told(const std::vector<sim::Warning>& warnings, std::string_view id) {
    std::string out;
    for (const sim::Warning& warning : warnings) {
        if (warning.id != id) continue;
        EXPECT_TRUE(out.empty()) << id << " twice";
        out = warning.text;
    }
    return out;
}

TEST(Warnings, SaysWhereCommunicationIsWaitedFor) {
    const std::string text =
        told(warnings_of(llama_8b(generic_stack()), "tp16,mb1,zero1"), "exposed-communication");
    EXPECT_NE(text.find("% of the step waits for communication"), std::string::npos) << text;
    EXPECT_NE(text.find("% for that of tp"), std::string::npos) << text;
}

TEST(Warnings, DoubtsMoreThanThreeQuartersOfThePeakAndNamesIt) {
    sim::Scenario given = llama_8b();
    given.stack.time.gemm_efficiency.value = 1.0;
    given.stack.time.attention_efficiency.value = 1.0;
    given.stack.time.elementwise_passes.value = 0.1;
    const std::string text = told(warnings_of(given, "tp2,sp,mb1,zero1"), "mfu-high");
    EXPECT_NE(text.find("bf16 peak"), std::string::npos) << text;
}

TEST(Warnings, TurnsTheMfuOfANarrowPeakIntoThatOfSixteenBits) {
    sim::Scenario given = llama_8b();
    given.job.precision.compute = sim::Dtype::fp8;
    const std::string text = told(warnings_of(given, "tp2,sp,mb1,zero1"), "mfu-peak");
    EXPECT_NE(text.find("dense fp8 peak of H100-SXM-80GB, 1.98 PFLOP/s"), std::string::npos)
        << text;
    EXPECT_NE(text.find("16-bit peak, 989 TFLOP/s"), std::string::npos) << text;
}

TEST(Warnings, SaysThatAStepIsBoundByLaunches) {
    sim::Scenario given = llama_8b();
    given.stack.time.launch.value = 4e-3;
    const std::string text = told(warnings_of(given, "tp2,sp,mb1,zero1"), "launch-bound");
    EXPECT_NE(text.find("CUDA graphs"), std::string::npos) << text;
}

TEST(Warnings, NamesExpertSettingsOfADenseModel) {
    sim::Scenario given = llama_8b();
    given.job.moe.capacity = 1.25;
    EXPECT_NE(told(warnings_of(given, "tp2,sp,mb1,zero1"), "no-effect").find("has none"),
              std::string::npos);
    sim::Scenario moe =
        scenario(mixtral_8x7b(), dgx_h100(8), job(4096, 1024), megatron_core_stack());
    moe.job.moe.capacity = 1.25;
    EXPECT_EQ(told(warnings_of(moe, "tp2,sp,pp4,ep8,etp1,mb1,zero1"), "no-effect"), "");
}

TEST(Warnings, NamesAdapterSettingsOfFullTraining) {
    sim::Scenario given = llama_8b();
    given.job.method.rank = 64;
    EXPECT_NE(told(warnings_of(given, "tp2,sp,mb1,zero1"), "no-effect").find("adapters"),
              std::string::npos);
    given.job.method.kind = sim::MethodKind::lora;
    EXPECT_EQ(told(warnings_of(given, "tp2,sp,mb1,zero1"), "no-effect"), "");
}

TEST(Warnings, SaysThatTheGlobalBatchIsHeldEitherWay) {
    sim::Scenario given = llama_8b();
    given.job.global_batch.held = false;
    EXPECT_NE(told(warnings_of(given, "tp2,sp,mb1,zero1"), "no-effect").find("stays 64 sequences"),
              std::string::npos);
}

TEST(Warnings, NamesShardingThatHasNothingToSplit) {
    EXPECT_NE(told(warnings_of(llama_8b(), "tp8,sp,pp2,mb1,zero1"), "no-effect")
                  .find("zero1 splits states over dp x cp and that is 1"),
              std::string::npos);
    EXPECT_EQ(told(warnings_of(llama_8b(), "tp8,sp,cp2,mb1,zero1"), "no-effect"), "");
    // where the stack cannot do without, nothing was chosen
    sim::Scenario one = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), fsdp2_stack());
    EXPECT_EQ(told(warnings_of(one, "tp8,sp,mb1,zero3"), "no-effect"), "");
}

TEST(Warnings, LeavesOrdinaryGoodPlansAlone) {
    const std::vector<std::pair<sim::Scenario, const char*>> plans = {
        {llama_8b(), "tp2,sp,mb1,zero1"},
        {llama_8b(fsdp2_stack()), "mb1,zero3"},
        {scenario(gpt3_175b(), dgx_a100(128), job(2048, 1536), megatron_core_stack()),
         "tp8,sp,pp16,mb1,zero1,rc=selective"},
        {scenario(mixtral_8x7b(), dgx_h100(8), job(4096, 1024), megatron_core_stack()),
         "tp2,sp,pp4,ep8,etp1,mb1,zero1"},
    };
    for (const auto& [given, layout] : plans) {
        const auto warnings = warnings_of(given, layout);
        for (const char* id :
             {"mfu-high", "mfu-peak", "no-effect", "launch-bound", "host-memory"}) {
            EXPECT_EQ(told(warnings, id), "") << layout;
        }
    }
    EXPECT_EQ(told(warnings_of(llama_8b(fsdp2_stack()), "mb1,zero3"), "exposed-communication"), "");
}

} // namespace
} // namespace shardplan::test
