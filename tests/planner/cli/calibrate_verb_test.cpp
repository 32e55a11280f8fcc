#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/file.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::TemporaryFile;

/// Three runs of a dense model on H100, whose products decide the step.
std::string three_runs(const std::string& group, double pace) {
    std::string lines;
    for (const int micro_batch : {1, 2, 4}) {
        lines +=
            R"({"id": ")" + group + std::to_string(micro_batch) + R"(", "group": ")" + group +
            R"(", "source": ")" + group +
            R"(", "usable_for": ["time"], )"
            R"("model": {"name": "m", "layers": 16, "hidden": 4096, "heads": 32, "kv_heads": 8, )"
            R"("ffn_hidden": 16384, "vocab": 32000, "seq_len": 2048, "gated_mlp": true, )"
            R"("activation": "swiglu", "norm": "rmsnorm", "biases": "none", "positions": "rope", )"
            R"("attention": "gqa", "tied_embeddings": false}, )"
            R"("cluster": {"device": "H100-SXM-80GB", "gpus": 8, "gpus_per_node": 8, )"
            R"("intra_kind": "nvswitch", "intra_GBps_per_gpu_per_direction": 450}, )"
            R"("stack": {"name": "megatron-core"}, "layout": {"dp": 4, "tp": 2, "pp": 1, "cp": 1, )"
            R"("zero_stage": 1, "micro_batch": )" +
            std::to_string(micro_batch) +
            R"(, "global_batch": 64, "recompute": "none", "precision": "bf16", )"
            R"("flash_attention": true, "sequence_parallel": true}, )"
            R"("measured": {"step_time_s": )" +
            std::to_string(pace) + "}}\n";
    }
    return lines;
}

TEST(CalibrateVerb, ReportNamesConstantsMeaningsAndErrorsOfGroupsLeftOut) {
    const TemporaryFile runs("runs.jsonl", three_runs("one", 1.3) + three_runs("two", 1.4));
    const Answer answer = run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {}, ""});
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const char* words : {"6 step times of 2 groups", "device.compute.matrix_efficiency",
                              "architectures/hopper.json", "leaving one out", "not fitted",
                              "left out", "elsewhere", "mean of groups", "informed by one, two"}) {
        EXPECT_NE(answer.out.find(words), std::string::npos) << words << answer.out;
    }
}

TEST(CalibrateVerb, FileHasNoDateAndIsTheSameEachTimeAndWhereverTheRunsLie) {
    const std::string lines = three_runs("one", 1.3) + three_runs("two", 1.4);
    const TemporaryFile runs("runs.jsonl", lines);
    const Answer first = run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {}, "-"});
    const Answer second = run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {}, "-"});
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(first.out, second.out);
    const sim::JsonValue json = parsed(first.out);
    EXPECT_EQ(*json.find("date")->as_string(), "");
    const std::string input = *json.find("input")->as_string();
    EXPECT_EQ(input.find('/'), std::string::npos) << input;
    EXPECT_NE(input.find("runs.jsonl "), std::string::npos) << input;
    EXPECT_EQ(json.find("groups")->text(), R"(["one","two"])");
    const TemporaryFile file("constants.json", first.out);
    const auto loaded = sim::load_calibration(file.path());
    ASSERT_TRUE(loaded) << to_text(loaded.error());
    EXPECT_FALSE(loaded->entries.empty());
}

TEST(CalibrateVerb, WritesTheFileItIsAskedForAndSaysHowToUseIt) {
    const TemporaryFile runs("runs.jsonl", three_runs("one", 1.3));
    const TemporaryFile target("constants.json", "");
    const Answer answer =
        run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {}, target.path()});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("--calibration " + target.path()), std::string::npos);
    EXPECT_TRUE(sim::load_calibration(target.path()));
}

TEST(CalibrateVerb, AttachesToAPlanWhichThenIsACalibrationToo) {
    const TemporaryFile runs("runs.jsonl", three_runs("one", 1.3));
    EstimateOptions estimate;
    estimate.scenario.model = "llama-3-8b";
    estimate.scenario.cluster = "dgx-h100";
    estimate.scenario.gpus = 8;
    estimate.layout = "tp2,sp,mb1,zero1";
    estimate.output = "-";
    const TemporaryFile plan("plan.json", run_verb(run_estimate, estimate).out);
    CalibrateVerbOptions options{runs.path(), {}, ""};
    options.attach = plan.path();
    const Answer answer = run_verb(run_calibrate, options);
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("Attached to " + plan.path()), std::string::npos) << answer.out;

    estimate.scenario.calibration = plan.path();
    const TemporaryFile again("again.json", run_verb(run_estimate, estimate).out);
    const auto before = sim::read_document_file(plan.path());
    const auto after = sim::read_document_file(again.path());
    ASSERT_TRUE(before && after);
    ASSERT_EQ(1U, before->calibrations.size());
    EXPECT_EQ(before->calibrations[0], after->scenario.calibration);
    EXPECT_NE(before->plans[0].headline.step_time, after->plans[0].headline.step_time);

    options.attach = runs.path();
    EXPECT_EQ(run_verb(run_calibrate, options).code, 2) << "runs are no plan";
}

TEST(CalibrateVerb, JsonHasConstantsAndGroups) {
    const TemporaryFile runs("runs.jsonl", three_runs("one", 1.3) + three_runs("two", 1.4));
    const Answer answer =
        run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {"two"}, ""}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_EQ(json.keys(), (std::vector<std::string>{"rows", "constants", "groups", "excluded"}));
    EXPECT_EQ(*json.find("rows")->as_int(), 3);
    EXPECT_EQ(json.find("excluded")->text(), R"(["two"])");
    EXPECT_FALSE(json.find("groups")->at(0).find("left_out"));
}

TEST(CalibrateVerb, MissingFilesUnknownGroupsAndTargetsAreBadInput) {
    Answer answer = run_verb(run_calibrate, CalibrateVerbOptions{"no-such-file", {}, ""});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("no-such-file"), std::string::npos);
    const TemporaryFile odd("odd.jsonl", "these are no records\n");
    answer = run_verb(run_calibrate, CalibrateVerbOptions{odd.path(), {}, ""});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find(odd.path()), std::string::npos) << answer.err;
    const TemporaryFile runs("runs.jsonl", three_runs("one", 1.3));
    answer = run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {"ones"}, ""});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("did you mean \"one\""), std::string::npos) << answer.err;
    answer = run_verb(run_calibrate, CalibrateVerbOptions{runs.path(), {"one"}, ""});
    EXPECT_EQ(answer.code, 2);
    answer = run_verb(run_calibrate,
                      CalibrateVerbOptions{runs.path(), {}, "/no/such/folder/constants.json"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_TRUE(answer.out.empty());
}

} // namespace
} // namespace shardplan::plan::cli
