#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::TemporaryFile;

constexpr const char* two_rows =
    R"({"id": "a", "system": "s", "collective": "all_reduce", "device": "H100-SXM-80GB", )"
    R"("nodes": 1, "gpus": 8, "ranks_per_node": 8, "intra_kind": "nvswitch", )"
    R"("size_bytes": 268435456, "time_us": 1110, "quality": "measured", "scorable": true})"
    "\n"
    R"({"id": "b", "system": "s", "collective": "all_reduce", "device": null, "gpus": 8, )"
    R"("size_bytes": 1024, "time_us": 14})"
    "\n";

ValidateOptions of(const std::string& path) {
    ValidateOptions options;
    options.collectives = path;
    return options;
}

TEST(ValidateCollectivesVerb, JsonHasARowForEachRecordWithATimeOrAReason) {
    const TemporaryFile file("c.jsonl", two_rows);
    const Answer answer = run_verb(run_validate, of(file.path()), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue rows = *parsed(answer.out).find("rows");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(*rows.at(0).find("id")->as_string(), "a");
    EXPECT_NEAR(*rows.at(0).find("time_us")->as_double(), 1110.0, 150.0);
    EXPECT_EQ(rows.at(1).keys(), (std::vector<std::string>{"id", "skipped"}));
}

TEST(ValidateCollectivesVerb, ShowsFiguresBySystemCollectiveAndSize) {
    const TemporaryFile file("c.jsonl", two_rows);
    const Answer answer = run_verb(run_validate, of(file.path()));
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("2 records, 1 predicted, 1 skipped"), std::string::npos);
    EXPECT_NE(answer.out.find(">= 16 MiB"), std::string::npos);
    EXPECT_NE(answer.out.find("1 skipped"), std::string::npos);
}

TEST(ValidateCollectivesVerb, ALogHasARowForEachTimingInItsOrder) {
    ValidateOptions options = of(SHARDPLAN_SOURCE_DIR "/samples/machine/p5-all_reduce.log");
    options.timing.machine.cluster = "p5";
    const Answer answer = run_verb(run_validate, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue rows = *parsed(answer.out).find("rows");
    ASSERT_EQ(rows.size(), 26U);
    std::vector<double> times;
    for (std::size_t i = 0; i < rows.size(); i += 2) { // out of place, then in place
        EXPECT_EQ(*rows.at(i).find("time_us")->as_double(),
                  *rows.at(i + 1).find("time_us")->as_double());
        times.push_back(*rows.at(i).find("time_us")->as_double());
    }
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(ValidateCollectivesVerb, RowsOfALogThatCannotBeTrustedAreFlagged) {
    ValidateOptions options =
        of(SHARDPLAN_SOURCE_DIR "/tests/data/inputs/nccl_tests_rank_prefix.log");
    options.timing.machine.cluster = "dgx-h100";
    const Answer answer = run_verb(run_validate, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.err.find("the bandwidth falls"), std::string::npos) << answer.err;
    const sim::JsonValue rows = *parsed(answer.out).find("rows");
    ASSERT_EQ(rows.size(), 6U);
    EXPECT_EQ(rows.at(0).find("flag"), std::nullopt);
    EXPECT_NE(rows.at(5).find("flag")->as_string()->find("cliff"), std::string::npos);
}

TEST(ValidateCollectivesVerb, ValidateReadsTheTimingsThatAreNamedInPlaceOfRuns) {
    const TemporaryFile file("c.jsonl", two_rows);
    const Answer answer = run_verb(run_validate, of(file.path()));
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(answer.out, run_verb(run_validate_collectives, of(file.path())).out);
}

TEST(ValidateCollectivesVerb, RefusesAFileThatHoldsNone) {
    const TemporaryFile file("c.jsonl", "hello\n");
    EXPECT_EQ(run_verb(run_validate, of(file.path())).code, 2);
}

} // namespace
} // namespace shardplan::plan::cli
