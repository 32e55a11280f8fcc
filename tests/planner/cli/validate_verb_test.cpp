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
        run_verb(run_validate, ValidateOptions{runs.path(), {}, false, false}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_EQ(json.keys(), (std::vector<std::string>{"groups", "rows", "ranking"}));
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
    const Answer answer =
        run_verb(run_validate, ValidateOptions{runs.path(), {"stack"}, false, false});
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const char* words : {"2 records, 1 predicted, 1 skipped", "megatron-core", "step time",
                              "Verdict", "missing: layout.recompute"}) {
        EXPECT_NE(answer.out.find(words), std::string::npos) << words << answer.out;
    }
}

TEST(ValidateVerb, SweepsAndPublishedBestsAreRanked) {
    std::string lines;
    for (const char* seconds : {"1.0", "1.1", "1.2", "1.3"}) {
        std::string line = record(
            "run-" + std::string(seconds),
            R"(, "sweep": "case", "flags": ["best-of-search"], "measured": {"step_time_s": )" +
                std::string(seconds) + "}");
        const std::string usable = R"("memory", "fit")";
        line.replace(line.find(usable), usable.size(), R"("ranking")");
        lines += line;
    }
    const TemporaryFile runs("runs.jsonl", lines);
    ValidateOptions options{runs.path(), {}, false, true};
    const Answer text = run_verb(run_validate, options);
    for (const char* words :
         {"Order of step times", "Sweeps", "Best of a search", "median tau", "among our first 5"}) {
        EXPECT_NE(text.out.find(words), std::string::npos) << words << text.out;
    }
    const Answer answer = run_verb(run_validate, options, {.json = true});
    const sim::JsonValue ranking = *parsed(answer.out).find("ranking");
    EXPECT_EQ(ranking.keys(), (std::vector<std::string>{"groups", "sweeps", "grids"}));
    const sim::JsonValue sweep = ranking.find("sweeps")->at(0);
    EXPECT_EQ(*sweep.find("rows")->as_int(), 4);
    // All four are one layout, so that the first is chosen, and it was the best.
    EXPECT_EQ(*sweep.find("chosen")->as_string(), "run-1.0");
    EXPECT_EQ(*sweep.find("regret")->as_double(), 0.0);
    EXPECT_EQ(ranking.find("grids")->size(), 4U);
}

TEST(ValidateVerb, SaysHowManyMeasurementsLieInsideTheBand) {
    const TemporaryFile runs("runs.jsonl",
                             record("first", R"(, "measured": {"step_time_s": 1000.0})"));
    const Answer text = run_verb(run_validate, ValidateOptions{runs.path(), {}, false});
    EXPECT_NE(text.out.find("in 1 sigma"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("0 %"), std::string::npos) << text.out;
    const Answer json =
        run_verb(run_validate, ValidateOptions{runs.path(), {}, false}, {.json = true});
    const sim::JsonValue time = *parsed(json.out).find("groups")->at(0).find("time");
    EXPECT_DOUBLE_EQ(*time.find("within_one_sigma")->as_double(), 0.0);
    EXPECT_DOUBLE_EQ(*time.find("within_two_sigmas")->as_double(), 0.0);
}

/// A record with one piece of its text replaced.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = record("changed", "");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(ValidateVerb, LayoutsThatDoNotMultiplyToTheGpusAreWarnings) {
    const TemporaryFile runs("runs.jsonl", changed(R"("gpus": 8)", R"("gpus": 16)"));
    const Answer answer = run_verb(run_validate, ValidateOptions{runs.path(), {}, false});
    EXPECT_TRUE(answer.err.starts_with(
        "warning: changed: tp 2 x pp 1 x cp 1 x dp 4 is 8 ranks, but there are 16 GPUs\n"))
        << answer.err;
    const TemporaryFile good("good.jsonl", record("good", ""));
    EXPECT_EQ(run_verb(run_validate, ValidateOptions{good.path(), {}, false}).err, "");
}

TEST(ValidateVerb, CountsTheBatchesThatWereChanged) {
    const TemporaryFile runs("runs.jsonl",
                             changed(R"("global_batch": 32)", R"("global_batch": 30)"));
    const Answer answer = run_verb(run_validate, ValidateOptions{runs.path(), {}, false});
    EXPECT_NE(answer.out.find("1 with the global batch rounded up"), std::string::npos)
        << answer.out;
    const TemporaryFile good("good.jsonl", record("good", ""));
    EXPECT_EQ(
        run_verb(run_validate, ValidateOptions{good.path(), {}, false}).out.find("rounded up"),
        std::string::npos);
}

TEST(ValidateVerb, AFileOfAnotherKindIsNoAnswer) {
    const TemporaryFile kernels(
        "kernels.jsonl", R"({"op": "gemm", "device": "H100-SXM-80GB", "m": 1, "n": 1, "k": 1})"
                         "\n");
    const Answer answer = run_verb(run_validate, ValidateOptions{kernels.path(), {}, false});
    EXPECT_EQ(answer.code, 1);
    EXPECT_NE(answer.err.find("file of another kind"), std::string::npos) << answer.err;
}

TEST(ValidateVerb, BrokenLinesAreWarningsAndTheOthersCount) {
    const TemporaryFile runs("runs.jsonl", record("first", "") + "{broken\n");
    const Answer answer =
        run_verb(run_validate, ValidateOptions{runs.path(), {}, false, false}, {.json = true});
    EXPECT_EQ(answer.code, 0);
    EXPECT_NE(answer.err.find(":2"), std::string::npos) << answer.err;
    EXPECT_EQ(parsed(answer.out).find("rows")->size(), 1U);
}

TEST(ValidateVerb, FileThatIsNotThereIsBadInput) {
    const Answer answer = run_verb(run_validate, ValidateOptions{"no-such-file", {}, false, false});
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

TEST(ValidateVerb, OfAFileOfAnotherKindTheFirstTenLinesAreNamedAndTheRestCounted) {
    std::string lines;
    for (int i = 0; i < 25; ++i) {
        lines += "this is no record\n";
    }
    lines += record("first", R"(, "measured": {"step_time_s": 1.0})");
    const TemporaryFile file("notes.txt", lines);
    const Answer answer = run_verb(run_validate, ValidateOptions{file.path(), {}, false, false});
    EXPECT_EQ(answer.code, 0);
    EXPECT_NE(answer.err.find("notes.txt:10:"), std::string::npos) << answer.err;
    EXPECT_EQ(answer.err.find("notes.txt:11:"), std::string::npos) << answer.err;
    EXPECT_NE(answer.err.find("and 15 more lines"), std::string::npos) << answer.err;
}

} // namespace
} // namespace shardplan::plan::cli
