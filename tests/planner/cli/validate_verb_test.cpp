#include <gtest/gtest.h>

#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::TemporaryFile;

/// One line of a run record; `extra` goes before the last bracket.
std::string record(const std::string& id, const std::string& extra) {
    return R"({"id": ")" + id +
           R"(", "group": "made-up", "usable_for": ["time", "memory", "fit"], )"
           R"("model": {"name": "small", "layers": 8, "hidden": 1024, "heads": 8, "kv_heads": 2, )"
           R"("ffn_hidden": 4096, "vocab": 32000, "seq_len": 2048, "gated_mlp": true, )"
           R"("activation": "swiglu", "norm": "rmsnorm", "biases": "none", "positions": "rope", )"
           R"("attention": "gqa", "tied_embeddings": false}, )"
           R"("cluster": {"device": "H100-SXM-80GB", "gpus": 8, "gpus_per_node": 8, )"
           R"("intra_kind": "nvswitch", "intra_GBps_per_gpu_per_direction": 450}, )"
           R"("stack": {"name": "megatron-core", "features": [], "features_assumed": []}, )"
           R"("layout": {"dp": 4, "tp": 2, "pp": 1, "cp": 1, "zero_stage": 1, "micro_batch": 1, )"
           R"("global_batch": 32, "recompute": "none", "precision": "bf16", )"
           R"("flash_attention": true, "sequence_parallel": true})" +
           extra + "}\n";
}

TEST(ValidateVerb, JsonHasARowForEachRecordWithTheAgreedKeys) {
    const TemporaryFile runs(
        "runs.jsonl", record("first", R"(, "measured": {"step_time_s": 1.0})") +
                          record("second", R"(, "essentials_missing": ["layout.recompute"])"));
    const Answer answer =
        run_verb(run_validate, ValidateOptions{runs.path(), {}, false}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_EQ(json.keys(), (std::vector<std::string>{"groups", "rows"}));
    const sim::JsonValue rows = *json.find("rows");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows.at(0).keys(),
              (std::vector<std::string>{"id", "step_time_s", "step_time_low_s", "step_time_high_s",
                                        "memory", "verdict"}));
    const sim::JsonValue memory = *rows.at(0).find("memory");
    EXPECT_EQ(memory.keys(),
              (std::vector<std::string>{"allocated_gib", "reserved_gib", "process_gib"}));
    EXPECT_EQ(memory.find("reserved_gib")->keys(),
              (std::vector<std::string>{"first", "last", "max"}));
    EXPECT_EQ(*rows.at(0).find("verdict")->as_string(), "fits");
    EXPECT_EQ(rows.at(1).keys(), (std::vector<std::string>{"id", "skipped"}));
}

TEST(ValidateVerb, ReportShowsFiguresVerdictsAndWhatWasSkipped) {
    const TemporaryFile runs(
        "runs.jsonl", record("first", R"(, "measured": {"step_time_s": 1.0})") +
                          record("second", R"(, "essentials_missing": ["layout.recompute"])"));
    const Answer answer = run_verb(run_validate, ValidateOptions{runs.path(), {"stack"}, false});
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const char* words : {"2 records, 1 predicted, 1 skipped", "megatron-core", "step time",
                              "Verdict", "missing: layout.recompute"}) {
        EXPECT_NE(answer.out.find(words), std::string::npos) << words << answer.out;
    }
}

TEST(ValidateVerb, BrokenLinesAreWarningsAndTheOthersCount) {
    const TemporaryFile runs("runs.jsonl", record("first", "") + "{broken\n");
    const Answer answer =
        run_verb(run_validate, ValidateOptions{runs.path(), {}, false}, {.json = true});
    EXPECT_EQ(answer.code, 0);
    EXPECT_NE(answer.err.find(":2"), std::string::npos) << answer.err;
    EXPECT_EQ(parsed(answer.out).find("rows")->size(), 1U);
}

TEST(ValidateVerb, FileThatIsNotThereIsBadInput) {
    const Answer answer = run_verb(run_validate, ValidateOptions{"no-such-file", {}, false});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("no-such-file"), std::string::npos);
    EXPECT_TRUE(answer.out.empty());
}

/// A product, with `extra` before the last bracket.
std::string kernel(const std::string& id, const std::string& extra) {
    return R"({"id": ")" + id + R"(", "op": "gemm", "device": "A100-SXM-80GB", "dtype": "bf16", )" +
           R"("m": 4096, "n": 4096, "k": 4096, "tflops": 250)" + extra + "}\n";
}

TEST(ValidateVerb, KernelsAreComparedRowByRowInTheOrderOfTheFile) {
    const TemporaryFile file("kernels.jsonl",
                             kernel("open", "") + kernel("known", R"(, "scorable": true)"));
    ValidateOptions options;
    options.kernels = file.path();
    const Answer answer = run_verb(run_validate, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    const sim::JsonValue rows = *json.find("rows");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows.at(0).keys(), (std::vector<std::string>{"id", "skipped"}));
    EXPECT_EQ(rows.at(1).keys(), (std::vector<std::string>{"id", "time_us", "measured_us"}));
    EXPECT_NEAR(*rows.at(1).find("measured_us")->as_double(), 549.8, 0.1);
    const Answer table = run_verb(run_validate, options);
    for (const char* words : {"2 kernel records, 1 predicted, 1 skipped", "A100-SXM-80GB / gemm",
                              "known", "549.8 us", "not stated"}) {
        EXPECT_NE(table.out.find(words), std::string::npos) << words << table.out;
    }
}

TEST(ValidateVerb, KernelsHaveGroupingsOfTheirOwn) {
    const TemporaryFile file("kernels.jsonl", kernel("known", R"(, "scorable": true)"));
    ValidateOptions options;
    options.kernels = file.path();
    options.by = {"stack"};
    const Answer answer = run_verb(run_validate, options);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("stack"), std::string::npos) << answer.err;
    options.by = {"device"};
    EXPECT_EQ(run_verb(run_validate, options).code, 0);
}

} // namespace
} // namespace shardplan::plan::cli
