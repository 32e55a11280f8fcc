#include <gtest/gtest.h>

#include "planner/analysis/fit.hpp"
#include "tests/planner/cli/run_verb.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;

FitOptions fit_options(const std::string& model, const std::string& method = "") {
    FitOptions options;
    options.scenario.model = model;
    options.scenario.cluster = "dgx-h100";
    options.scenario.job_fields = {{"--sequence", "sequence.max", "4096"}};
    if (!method.empty()) {
        options.scenario.job_fields.push_back({"--method", "method.kind", method});
    }
    return options;
}

std::int64_t smallest(const sim::JsonValue& method) {
    const auto machine = method.find("smallest");
    return machine && !machine->is_null() ? *machine->find("gpus")->as_int() : 0;
}

const sim::JsonValue* find_change(const std::vector<sim::JsonValue>& changes,
                                  const std::string& how) {
    for (const sim::JsonValue& change : changes) {
        if (*change.find("how")->as_string() == how) {
            return &change;
        }
    }
    return nullptr;
}

std::vector<sim::JsonValue> changes_of(const sim::JsonValue& json) {
    const sim::JsonValue list = *json.find("verdict")->find("changes");
    std::vector<sim::JsonValue> out;
    for (std::size_t i = 0; i < list.size(); ++i) {
        out.push_back(list.at(i));
    }
    return out;
}

TEST(FitVerb, AdaptersNeedFewerDevicesThanFullTraining) {
    const Answer answer = run_verb(run_fit, fit_options("llama-3-70b"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue methods = *parsed(answer.out).find("methods");
    ASSERT_EQ(methods.size(), 4U);
    const std::int64_t full = smallest(methods.at(0));
    const std::int64_t lora = smallest(methods.at(2));
    const std::int64_t qlora = smallest(methods.at(3));
    EXPECT_GE(full, 8); // with states on the host, 70.6 G parameters x 6 B exceed 4 x 80 GB
    EXPECT_LE(smallest(methods.at(1)), full);
    EXPECT_LT(lora, full);
    EXPECT_LE(qlora, lora);
    EXPECT_GE(qlora, 1);
}

TEST(FitVerb, MachineBelowTheSmallestDoesNotFit) {
    const Answer answer = run_verb(run_fit, fit_options("llama-3-70b", "full"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue method = parsed(answer.out).find("methods")->at(0);
    const std::int64_t least = smallest(method);
    const sim::JsonValue tried = *method.find("tried");
    ASSERT_GE(tried.size(), 2U);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < tried.size(); ++i) {
        const std::int64_t gpus = *tried.at(i).find("gpus")->as_int();
        EXPECT_GT(gpus, before);
        before = gpus;
        if (gpus < least && tried.at(i).find("verdict")) {
            EXPECT_NE(*tried.at(i).find("verdict")->as_string(), "fits") << gpus;
        }
    }
}

TEST(FitVerb, ChangesThatTurnTheVerdictStandFirstByPrice) {
    FitOptions options = fit_options("llama-3-8b", "full");
    options.scenario.gpus = 8;
    options.scenario.job_fields[0].value = "8192";
    options.layout = "zero3,mb4";
    const Answer answer = run_verb(run_fit, options, {.json = true});
    EXPECT_EQ(answer.code, 1) << answer.out;
    const auto changes = changes_of(parsed(answer.out));
    ASSERT_FALSE(changes.empty());
    EXPECT_TRUE(*changes.front().find("turns_verdict")->as_bool());
    bool turned = true;
    double price = -10.0;
    for (const sim::JsonValue& change : changes) {
        const bool turns = *change.find("turns_verdict")->as_bool();
        EXPECT_TRUE(turned || !turns) << "one that turns stands behind one that does not";
        turned = turns;
        if (turns) {
            EXPECT_GE(*change.find("device_time_change")->as_double(), price);
            price = *change.find("device_time_change")->as_double();
        }
    }
    const sim::JsonValue* micro_batch = find_change(changes, "mb1");
    const sim::JsonValue* recompute = find_change(changes, "rc=full");
    ASSERT_NE(micro_batch, nullptr);
    ASSERT_NE(recompute, nullptr);
    EXPECT_EQ(*micro_batch->find("layout")->as_string(), "dp8,mb1,zero3");
    EXPECT_GT(*recompute->find("step_change")->as_double(), 0.1); // a forward pass more
    const sim::JsonValue* devices = find_change(changes, "--gpus 16");
    ASSERT_NE(devices, nullptr);
    EXPECT_NEAR(*devices->find("step_change")->as_double(), -0.5, 0.05);
}

TEST(FitVerb, WhereItFitsTheChangesThatBreakItAreNamed) {
    FitOptions options = fit_options("llama-3-8b", "full");
    options.scenario.gpus = 8;
    options.layout = "zero3,mb1";
    const Answer answer = run_verb(run_fit, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.out;
    const auto changes = changes_of(parsed(answer.out));
    EXPECT_NE(find_change(changes, "mb2"), nullptr);
    EXPECT_EQ(find_change(changes, "mb1"), nullptr) << "it is 1 already";
    EXPECT_NE(find_change(changes, "--sequence 16384"), nullptr);
}

TEST(FitVerb, NothingUpToTheLimitIsANo) {
    FitOptions options = fit_options("llama-3.1-405b", "full");
    options.max_gpus = 16;
    const Answer answer = run_verb(run_fit, options);
    EXPECT_EQ(answer.code, 1) << answer.out;
    EXPECT_NE(answer.out.find("none up to 16"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("off=opt:1.0:host"), std::string::npos) << answer.out;
}

TEST(FitVerb, IllegalLayoutAndBadLimitsAreRefused) {
    FitOptions options = fit_options("llama-3-8b", "full");
    options.scenario.gpus = 8;
    options.layout = "tp3,mb1";
    EXPECT_EQ(run_verb(run_fit, options).code, 2);
    options = fit_options("llama-3-8b", "full");
    options.max_gpus = 0;
    EXPECT_EQ(run_verb(run_fit, options).code, 2);
    options = fit_options("llama-3-8b", "full");
    options.scenario.gpus = 12;
    EXPECT_EQ(run_verb(run_fit, options).code, 2); // one node and a half
}

TEST(Fit, ClusterThatCannotGrowEndsTheSearch) {
    sim::Cluster cluster = test::dgx_h100(2);
    cluster.scalable = false;
    cluster.node_groups.front().node.host.memory = sim::Bytes(0.0); // nothing can be offloaded
    cluster.node_groups.front().node.host.nvme = sim::Bytes(0.0);
    const sim::Scenario base =
        test::scenario(test::gpt3_175b(), cluster, test::job(2048, 1536), test::generic_stack());
    const auto fit = smallest_machine("full", base, {}, {});
    ASSERT_TRUE(fit) << sim::to_text(fit.error());
    EXPECT_FALSE(fit->smallest.has_value()); // 2.8 TB of states on 16 x 80 GB
    EXPECT_EQ(fit->most_devices, 16);
    ASSERT_FALSE(fit->tried.empty());
    EXPECT_EQ(fit->tried.back().devices, 16);
}

} // namespace
} // namespace shardplan::plan::cli
