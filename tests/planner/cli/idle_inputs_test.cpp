#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::small_scenario;
using test::TemporaryFile;

/// Texts of the warnings "no-effect".
std::vector<std::string> idle(const Answer& answer) {
    std::vector<std::string> out;
    const sim::JsonValue warnings = *parsed(answer.out).find("warnings");
    for (std::size_t i = 0; i < warnings.size(); ++i) {
        const sim::JsonValue warning = warnings.at(i);
        if (*warning.find("id")->as_string() == "no-effect") {
            out.push_back(*warning.find("text")->as_string());
        }
    }
    return out;
}

std::vector<std::string> idle_in(const ScenarioOptions& scenario,
                                 const std::string& layout = "tp2,sp,mb1,zero1") {
    const Answer answer =
        run_verb(run_estimate, EstimateOptions{scenario, layout, ""}, {.json = true});
    EXPECT_EQ(answer.code, 0) << answer.err;
    return idle(answer);
}

using Texts = std::vector<std::string>;

TEST(IdleInputs, NamesASettingThatTheLayoutDoesNotRead) {
    ScenarioOptions scenario = small_scenario();
    scenario.sets = {"stack.time.pp_overlap.value=0.75"};
    EXPECT_EQ(idle_in(scenario),
              Texts{"--set stack.time.pp_overlap.value=0.75 changes no figure of this layout"});
    EXPECT_EQ(idle_in(scenario, "tp2,sp,pp2,mb1,zero1"), Texts{});
}

TEST(IdleInputs, NamesAFeatureThatIsOnAlready) {
    ScenarioOptions scenario = small_scenario();
    scenario.features = {"cudnn-attn"};
    EXPECT_EQ(idle_in(scenario), Texts{"--feature cudnn-attn changes no figure of this layout"});
    scenario.features = {"flash-attn-2"};
    EXPECT_EQ(idle_in(scenario), Texts{});
}

TEST(IdleInputs, NamesFlagsOfTheJobOnce) {
    ScenarioOptions scenario = small_scenario();
    scenario.job_fields.push_back({"--imbalance", "moe.imbalance", "1.5"});
    const Texts found = idle_in(scenario);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found.front().find("llama-3-8b has none"), std::string::npos) << found.front();
}

TEST(IdleInputs, LeavesDefaultsNamesAndOtherQuestionsAlone) {
    ScenarioOptions scenario = small_scenario("1e9");
    scenario.job_fields.push_back({"--precision", "precision.compute", "bf16"});
    scenario.job_fields.push_back({"--optimizer", "optimizer.kind", "adamw"});
    scenario.job_fields.push_back({"--tp", "constraints.tp", "2,4"});
    scenario.sets = {"stack.note=ours", "stack.time.launch.source=ours",
                     "cluster.node_groups[0].mean_time_to_failure=6000 h",
                     "job.precision.gradients=fp32"};
    EXPECT_EQ(idle_in(scenario), Texts{});
    scenario.job_fields = {{"--global-batch", "global_batch.sequences", "64"},
                           {"--sequence", "sequence.max", "8192"}};
    scenario.sets = {};
    EXPECT_EQ(idle_in(scenario), Texts{}) << "8192 is what the model's sequence is anyway";
}

TEST(IdleInputs, NamesTermsOfALayoutThatDoNothing) {
    const Texts found = idle_in(small_scenario(), "tp8,sp,dp2,mb1,zero1,order=tp-cp-ep-pp-dp");
    EXPECT_EQ(found, Texts{"term order changes no figure of this layout"});
    EXPECT_EQ(idle_in(small_scenario(), "tp2,sp,pp2,dp4,mb1,zero1,order=tp-cp-ep-pp-dp"), Texts{});
    EXPECT_EQ(idle_in(small_scenario(), "tp2,sp,mb1,zero1,rc=full:8"), Texts{});
}

TEST(IdleInputs, AreNamedForTheBestPlanToo) {
    PlanOptions options;
    options.scenario = small_scenario();
    options.scenario.sets = {"stack.time.cp_overlap.value=0.75",
                             "stack.capabilities.hybrid_shard=true"};
    options.scenario.job_fields.push_back({"--pp", "constraints.pp", "1"});
    options.top = 1;
    const Answer answer = run_verb(run_plan, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const std::string& text : idle(answer)) {
        EXPECT_NE(text.find("cp_overlap"), std::string::npos) << text;
    }
}

// --- what is calibrated -------------------------------------------------------------------------

constexpr std::string_view measured = R"({
  "id": "node-a", "date": "2026-11-01", "machine": "two nodes in the cellar",
  "entries": [{"path": "stack.time.gemm_efficiency", "subject": "", "value": 1.0,
               "residual": 0.01, "samples": 50, "source": "products timed on node-a"}]})";

TEST(Badge, SaysThatNothingIsCalibrated) {
    const Answer text =
        run_verb(run_estimate, EstimateOptions{small_scenario(), "tp2,sp,mb1,zero1", ""});
    EXPECT_NE(text.out.find("constants  uncalibrated: those of the data files"), std::string::npos)
        << text.out;
    EXPECT_NE(text.out.find("; compute ±"), std::string::npos) << text.out;
}

TEST(Badge, NamesTheCalibrationAndItsConstantsAndNarrowsTheBand) {
    const TemporaryFile file("node-a.json", std::string(measured));
    ScenarioOptions scenario = small_scenario();
    const auto sigma_of = [](const sim::JsonValue& json) {
        return *json.find("estimate")->find("sigma")->find("step")->as_double();
    };
    const sim::JsonValue before = parsed(
        run_verb(run_estimate, EstimateOptions{scenario, "tp2,sp,mb1,zero1", ""}, {.json = true})
            .out);
    EXPECT_FALSE(*before.find("calibration")->find("calibrated")->as_bool());
    scenario.calibration = file.path();
    const EstimateOptions options{scenario, "tp2,sp,mb1,zero1", ""};
    const sim::JsonValue after = parsed(run_verb(run_estimate, options, {.json = true}).out);
    const sim::JsonValue badge = *after.find("calibration");
    EXPECT_TRUE(*badge.find("calibrated")->as_bool());
    EXPECT_EQ(*badge.find("id")->as_string(), "node-a");
    EXPECT_EQ(*badge.find("constants")->at(0).as_string(), "stack.time.gemm_efficiency");
    EXPECT_TRUE(*after.find("estimate")->find("calibrated")->as_bool());
    EXPECT_LT(sigma_of(after), sigma_of(before));
    const std::string words =
        "constants  calibrated by node-a (2026-11-01, two nodes in the cellar): "
        "stack.time.gemm_efficiency "
        "measured here";
    EXPECT_NE(run_verb(run_estimate, options).out.find(words), std::string::npos);
    ExplainOptions explain;
    explain.scenario = scenario;
    explain.layout = "tp2,sp,mb1,zero1";
    EXPECT_NE(run_verb(run_explain, explain).out.find(words), std::string::npos);
    const sim::JsonValue tree = parsed(run_verb(run_explain, explain, {.json = true}).out);
    EXPECT_EQ(*tree.find("calibration")->find("id")->as_string(), "node-a");
}

} // namespace
} // namespace shardplan::plan::cli
