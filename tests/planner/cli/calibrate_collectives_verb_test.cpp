#include <gtest/gtest.h>

#include "simulator/io/file.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::TemporaryFile;

const std::string samples = SHARDPLAN_SOURCE_DIR "/samples/machine/";

CalibrateVerbOptions of_p5(const std::string& output = "") {
    CalibrateVerbOptions options;
    options.collectives = {samples + "p5-all_reduce.log"};
    options.timing.machine.cluster = "p5";
    options.output = output;
    return options;
}

std::string text_of(const std::string& path) {
    const auto text = sim::read_file(path);
    EXPECT_TRUE(text) << path;
    return text ? *text : std::string();
}

/// What `estimate` says with a calibration, on 16 devices of a p5.
sim::JsonValue estimated(const std::string& calibration) {
    EstimateOptions options;
    options.scenario = test::small_scenario();
    options.scenario.cluster = "p5";
    options.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "16"},
                                   {"--sequence", "sequence.max", "1024"}};
    options.scenario.calibration = calibration;
    options.layout = "zero3,mb1";
    const Answer answer = run_verb(run_estimate, options, {.json = true});
    EXPECT_EQ(answer.code, 0) << answer.err;
    return parsed(answer.out);
}

TEST(CalibrateCollectives, TellsEachConstantBeforeAndAfterAndTheErrorsThatRemain) {
    const Answer answer = run_verb(run_calibrate, of_p5());
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const char* words : {"26 timings, one network fitted", "2 x 8", "error before", "after",
                              "fabric.efa.tree.bandwidth_efficiency"}) {
        EXPECT_NE(answer.out.find(words), std::string::npos) << words << '\n' << answer.out;
    }
    const Answer json = run_verb(run_calibrate, of_p5(), {.json = true});
    const sim::JsonValue fit = parsed(json.out).find("fits")->at(0);
    EXPECT_EQ(*fit.find("fabric")->as_string(), "efa");
    EXPECT_LT(*fit.find("after")->find("median")->as_double(),
              *fit.find("before")->find("median")->as_double());
    EXPECT_GT(fit.find("constants")->size(), 3U);
}

TEST(CalibrateCollectives, TheFileMakesAnEstimateCalibratedAndItsBandNarrower) {
    const TemporaryFile file("mine.json", "");
    ASSERT_EQ(run_verb(run_calibrate, of_p5(file.path())).code, 0);
    EXPECT_NE(text_of(file.path()).find("p5-1 and p5-2"), std::string::npos);

    EstimateOptions options;
    options.scenario = test::small_scenario();
    options.scenario.cluster = "p5";
    options.scenario.calibration = file.path();
    options.layout = "zero3,mb1";
    const Answer text = run_verb(run_estimate, options);
    EXPECT_NE(text.out.find("calibrated by collectives of p5 (p5-1 and p5-2): fabric.efa."),
              std::string::npos)
        << text.out;

    const auto band = [](const sim::JsonValue& answer) {
        const sim::JsonValue estimate = *answer.find("estimate");
        return *estimate.find("sigma")->find("communication")->as_double();
    };
    EXPECT_LT(band(estimated(file.path())), band(estimated("")));
}

TEST(CalibrateCollectives, TheSameTimingsGiveTheSameBytesWhereverTheFileLies) {
    const TemporaryFile a("a.json", "");
    const TemporaryFile b("b.json", "");
    ASSERT_EQ(run_verb(run_calibrate, of_p5(a.path())).code, 0);
    ASSERT_EQ(run_verb(run_calibrate, of_p5(b.path())).code, 0);
    EXPECT_EQ(text_of(a.path()), text_of(b.path()));
    EXPECT_EQ(text_of(a.path()), run_verb(run_calibrate, of_p5("-")).out);
    EXPECT_EQ(text_of(a.path()).find("samples/machine"), std::string::npos);
}

TEST(CalibrateCollectives, ValidateAppliesTheFile) {
    const TemporaryFile file("mine.json", "");
    ASSERT_EQ(run_verb(run_calibrate, of_p5(file.path())).code, 0);
    ValidateOptions options;
    options.collectives = samples + "p5-all_reduce.log";
    options.timing.machine.cluster = "p5";
    const auto median_of_middle = [&](const std::string& calibration) {
        options.calibration = calibration;
        const Answer answer = run_verb(run_validate, options, {.json = true});
        EXPECT_EQ(answer.code, 0) << answer.err;
        return *parsed(answer.out).find("groups")->at(1).find("median")->as_double();
    };
    EXPECT_LT(median_of_middle(file.path()), 0.5 * median_of_middle(""));
}

TEST(CalibrateCollectives, AMistunedSystemIsFlaggedAndNotWritten) {
    std::string slow = text_of(samples + "p5-all_reduce.log");
    std::string rows;
    for (std::int64_t bytes = 1 << 24; bytes <= std::int64_t{1} << 32; bytes *= 4) {
        const double time = 1e-4 * static_cast<double>(bytes);
        rows += std::to_string(bytes) + " " + std::to_string(bytes / 4) + " float sum -1 " +
                std::to_string(time) + " 10.00 18.75 0 " + std::to_string(time) +
                " 10.00 18.75 0\n";
    }
    const std::size_t table = slow.find("        1024 ");
    ASSERT_NE(table, std::string::npos);
    const TemporaryFile log("slow.log", slow.substr(0, table) + rows);
    const TemporaryFile file("mine.json", "untouched");
    CalibrateVerbOptions options = of_p5(file.path());
    options.collectives = {log.path()};
    const Answer refused = run_verb(run_calibrate, options);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("--match-mistuned"), std::string::npos) << refused.err;
    EXPECT_EQ(text_of(file.path()), "untouched");
    options.match_mistuned = true;
    const Answer matched = run_verb(run_calibrate, options);
    EXPECT_EQ(matched.code, 0) << matched.err;
    EXPECT_NE(matched.out.find("mistuned?"), std::string::npos) << matched.out;
    EXPECT_NE(text_of(file.path()), "untouched");
}

TEST(CalibrateCollectives, BadInputSaysWhatToWrite) {
    const auto error = [](const CalibrateVerbOptions& options) {
        const Answer answer = run_verb(run_calibrate, options);
        EXPECT_EQ(answer.code, 2) << answer.out;
        EXPECT_EQ(answer.out, "");
        return answer.err;
    };
    CalibrateVerbOptions options = of_p5();
    options.timing.system = "p4";
    EXPECT_NE(error(options).find("p5"), std::string::npos);
    options = of_p5();
    options.timing.collective = "all_reduces";
    EXPECT_NE(error(options).find("all_reduce,"), std::string::npos);
    options = of_p5();
    options.timing.machine.cluster = "";
    options.timing.machine.import.node = "p5";
    EXPECT_NE(error(options).find("--cluster"), std::string::npos);
    options.timing.machine.import = {"H100-SXM-80G", "", ""};
    EXPECT_NE(error(options).find("H100-SXM-80GB"), std::string::npos);
    options = of_p5();
    options.timing.machine.gpus = 1;
    EXPECT_NE(error(options).find("two ranks"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan::cli
