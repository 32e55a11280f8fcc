#include <gtest/gtest.h>

#include "planner/cli/inputs.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::small_scenario;
using test::TemporaryFile;

TEST(CalendarVerb, EstimateAndPlanShowTheWholeRunWhenTokensAreGiven) {
    const Answer estimate =
        run_verb(run_estimate, EstimateOptions{small_scenario("1e12"), "tp2,sp,mb1,zero1", ""});
    EXPECT_NE(estimate.out.find("The whole run"), std::string::npos) << estimate.out;
    const Answer planned = run_verb(run_plan, PlanOptions{small_scenario("1e12"), 1, "", ""});
    EXPECT_NE(planned.out.find("The whole run"), std::string::npos) << planned.out;
    const Answer without =
        run_verb(run_estimate, EstimateOptions{small_scenario(), "tp2,sp,mb1,zero1", ""});
    EXPECT_EQ(without.out.find("The whole run"), std::string::npos) << without.out;
}

TEST(CalendarVerb, JsonOfTheEstimateHoldsItOrNull) {
    const auto calendar_in = [](const char* tokens) {
        const Answer answer =
            run_verb(run_estimate, EstimateOptions{small_scenario(tokens), "tp2,sp,mb1,zero1", ""},
                     {.json = true});
        return *parsed(answer.out).find("calendar");
    };
    EXPECT_TRUE(calendar_in("").is_null());
    EXPECT_EQ(*calendar_in("1e12").find("tokens")->as_double(), 1e12);
}

TEST(CalendarVerb, PlanFileTakesTokensAndLossesFromFlags) {
    const TemporaryFile file("calendar.shardplan.json", "");
    ASSERT_EQ(run_verb(run_plan, PlanOptions{small_scenario(), 1, "", file.path()}).code, 0);
    CalendarOptions options;
    options.document = file.path();
    EXPECT_EQ(run_verb(run_calendar, options).code, 2) << "no tokens";
    options.scenario.job_fields = {{"--tokens", "tokens_to_train", "1e12"}};
    options.losses.queue = "10 h";
    options.losses.planned = "10%";
    const Answer answer = run_verb(run_calendar, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue losses = *parsed(answer.out).find("calendar")->find("losses");
    const sim::JsonValue last = losses.at(losses.size() - 1);
    EXPECT_EQ(*last.find("name")->as_string(), "queueing");
    EXPECT_EQ(*last.find("seconds")->as_double(), 36000.0);
}

TEST(CalendarVerb, FlagsThatThePlanFileAnswersAreRefusedAndNotIgnored) {
    const TemporaryFile file("calendar-2.shardplan.json", "");
    ASSERT_EQ(run_verb(run_plan, PlanOptions{small_scenario("1e12"), 1, "", file.path()}).code, 0);
    CalendarOptions options;
    options.document = file.path();
    options.scenario.stack = "pytorch-fsdp2";
    const Answer answer = run_verb(run_calendar, options);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("--stack"), std::string::npos) << answer.err;
}

TEST(CalendarVerb, LayoutThatDoesNotFitIsNotTimed) {
    CalendarOptions options;
    options.scenario = small_scenario("1e12");
    options.scenario.model = "llama-3-70b";
    options.layout = "mb1,zero1";
    const Answer answer = run_verb(run_calendar, options);
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(answer.out.empty()) << answer.out;
}

TEST(CalendarVerb, LossesWithoutTokensAndBadLossesAreRefused) {
    EstimateOptions estimate{small_scenario(), "tp2,sp,mb1,zero1", "", {}};
    estimate.losses.restart = "5 min";
    EXPECT_EQ(run_verb(run_estimate, estimate).code, 2);
    CalendarOptions options;
    options.scenario = small_scenario("1e12");
    options.losses.mean_time_to_failure = "10";
    const Answer answer = run_verb(run_calendar, options);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("--mttf"), std::string::npos) << answer.err;
}

} // namespace
} // namespace shardplan::plan::cli
