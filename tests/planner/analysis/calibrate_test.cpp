#include "planner/analysis/calibrate.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/timed_rows.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/io/json.hpp"
#include "tests/planner/analysis/record_builder.hpp"

namespace shardplan::plan {
namespace {

constexpr const char* efficiency = "device.compute.matrix_efficiency";

/// A run large enough that nothing but products and their rate decides its step.
sim::RunRecord large_run(const std::string& group, std::int64_t micro_batch) {
    sim::RunRecord record = test::small_run();
    record.group = group;
    record.source = group;
    record.id = group + std::to_string(micro_batch);
    record.model.hidden = 4096;
    record.model.ffn_hidden = 16384;
    record.model.heads = 32;
    record.model.kv_heads = 8;
    record.model.layers = 16;
    record.layout.micro_batch = micro_batch;
    record.layout.num_microbatches = 16 / micro_batch;
    return record;
}

/// Records whose step times are those the model predicts with another efficiency of products.
std::vector<sim::RunRecord> runs_at(double value, const std::vector<std::string>& groups) {
    auto reproducer = Reproducer::make();
    EXPECT_TRUE(reproducer);
    std::vector<sim::RunRecord> records;
    for (const std::string& group : groups) {
        for (const std::int64_t micro_batch : {1, 2, 4}) {
            sim::RunRecord record = large_run(group, micro_batch);
            auto run = reproducer->reproduce_as_run(record);
            EXPECT_TRUE(run) << to_text(run.error());
            for_each_fitted(run->scenario, [&](const std::string& path, const sim::FieldMeta&,
                                               sim::Constant& constant) {
                constant.value = path == efficiency ? value : constant.value;
            });
            const auto evaluator = sim::Evaluator::make(run->scenario, run->tables);
            EXPECT_TRUE(evaluator);
            sim::Workspace workspace;
            record.measured.step_time_s =
                evaluator->score(run->layout, workspace).step_time.value();
            records.push_back(record);
        }
    }
    return records;
}

const ConstantFit& fit_of(const RunCalibration& result, const std::string& path) {
    for (const ConstantFit& fit : result.constants) {
        if (fit.constant.path == path && fit.fitted) {
            return fit;
        }
    }
    ADD_FAILURE() << path << " is not fitted";
    return result.constants.front();
}

TEST(Calibrate, FindsTheValueThatTheRunsWereMadeWith) {
    for (const double value : {0.68, 0.75}) {
        const auto result = calibrate_runs(runs_at(value, {"one", "two"}), {});
        ASSERT_TRUE(result) << to_text(result.error());
        const ConstantFit& fit = fit_of(*result, efficiency);
        const double step = (fit.constant.constant.hi - fit.constant.constant.lo) / grid_steps;
        // The others are fitted too, and may take a step of it.
        EXPECT_NEAR(fit.value, value, 2.0 * step);
        EXPECT_EQ(fit.rows, 6);
        EXPECT_FALSE(fit.unconfirmed());
    }
}

TEST(Calibrate, AGroupLeftOutIsPredictedFromTheOthersAlone) {
    std::vector<sim::RunRecord> records = runs_at(0.68, {"one", "two"});
    const std::vector<sim::RunRecord> odd = runs_at(0.76, {"odd"});
    records.insert(records.end(), odd.begin(), odd.end());
    const auto result = calibrate_runs(records, {});
    ASSERT_TRUE(result);
    ASSERT_EQ(result->groups.size(), 3U);
    const HeldOut& held = result->groups[2];
    EXPECT_EQ(held.group, "odd");
    EXPECT_TRUE(held.family_elsewhere);
    // Its products run at 0.76; what the others say, 0.68, makes the step too long.
    EXPECT_GT(held.held_out.bias, 0.05);
    EXPECT_LT(held.held_out.bias, 0.76 / 0.68 - 1.0);
    EXPECT_LT(result->groups[0].held_out.median, held.held_out.median);
    const ConstantFit& fit = fit_of(*result, efficiency);
    EXPECT_LT(fit.lowest, fit.highest);
}

TEST(Calibrate, SameBytesOnAnyNumberOfThreads) {
    const std::vector<sim::RunRecord> records = runs_at(0.72, {"one", "two"});
    std::vector<std::string> files;
    for (const std::size_t threads : {1U, 2U, 7U}) {
        CalibrateOptions options;
        options.threads = threads;
        const auto result = calibrate_runs(records, options);
        ASSERT_TRUE(result);
        files.push_back(write_described(calibration_of(*result, "tool", "input")));
    }
    EXPECT_EQ(files[0], files[1]);
    EXPECT_EQ(files[0], files[2]);
}

TEST(Calibrate, ExcludedGroupsChangeNothing) {
    const std::vector<sim::RunRecord> records = runs_at(0.68, {"one", "two"});
    std::vector<sim::RunRecord> more = records;
    const std::vector<sim::RunRecord> odd = runs_at(0.79, {"odd"});
    more.insert(more.end(), odd.begin(), odd.end());
    CalibrateOptions options;
    options.exclude = {"odd"};
    auto without = calibrate_runs(more, options);
    ASSERT_TRUE(without);
    EXPECT_EQ(without->excluded, options.exclude);
    without->excluded.clear();
    EXPECT_EQ(*without, *calibrate_runs(records, {}));
}

TEST(Calibrate, WhatOneGroupSaysIsUnconfirmedAndAsWideAsItsRange) {
    const auto result = calibrate_runs(runs_at(0.7, {"only"}), {});
    ASSERT_TRUE(result);
    const ConstantFit& fit = fit_of(*result, efficiency);
    EXPECT_TRUE(fit.unconfirmed());
    EXPECT_EQ(result->groups.front().held_out.rows, 0);
    const sim::Calibration file = calibration_of(*result, "tool", "input");
    const sim::Constant& c = fit.constant.constant;
    bool seen = false;
    for (const sim::CalibrationEntry& entry : file.entries) {
        if (entry.path == efficiency) {
            seen = true;
            EXPECT_TRUE(entry.unconfirmed);
            EXPECT_NEAR(entry.residual * entry.value, (c.hi - c.lo) / std::sqrt(12.0), 1e-12);
        }
    }
    EXPECT_TRUE(seen);
}

TEST(Calibrate, FileChangesScenariosThatReadTheConstant) {
    const auto result = calibrate_runs(runs_at(0.68, {"one", "two"}), {});
    ASSERT_TRUE(result);
    const sim::Calibration file = calibration_of(*result, "tool", "input");
    auto reproducer = Reproducer::make();
    ASSERT_TRUE(reproducer);
    const auto run = reproducer->reproduce(large_run("one", 1));
    ASSERT_TRUE(run);
    const auto with = sim::assemble_scenario(run->scenario.model, run->scenario.cluster,
                                             run->scenario.job, run->scenario.stack, file);
    ASSERT_TRUE(with) << to_text(with.error());
    const sim::Constant& constant = with->devices.front().compute.matrix_efficiency;
    EXPECT_EQ(constant.value, fit_of(*result, efficiency).value);
    EXPECT_EQ(constant.origin, sim::Origin::fitted_to_runs);
    EXPECT_LT(constant.lo, constant.value);
}

TEST(Calibrate, UnknownGroupsAreRefusedWithTheNearest) {
    CalibrateOptions options;
    options.exclude = {"onne"};
    const auto result = calibrate_runs(runs_at(0.7, {"one"}), options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().where, "--exclude");
    EXPECT_NE(result.error().hint.find("\"one\""), std::string::npos) << result.error().hint;
}

TEST(Calibrate, NothingToFitIsAnError) {
    std::vector<sim::RunRecord> records = runs_at(0.7, {"one"});
    CalibrateOptions options;
    options.exclude = {"one"};
    auto result = calibrate_runs(records, options);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().what.find("no step time"), std::string::npos);
    // Two rows tell nothing that could not be an accident of them.
    records.resize(2);
    result = calibrate_runs(records, {});
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().what.find("tell no constant"), std::string::npos)
        << result.error().what;
}

TEST(FittedConstants, AreFewHaveAMeaningAndAPlausibleRange) {
    const auto constants = fitted_constants();
    ASSERT_TRUE(constants) << to_text(constants.error());
    EXPECT_FALSE(constants->empty());
    for (const FittedConstant& one : *constants) {
        const sim::Constant& c = one.constant;
        EXPECT_FALSE(one.meaning.empty()) << one.path;
        EXPECT_FALSE(one.files.empty()) << one.path;
        EXPECT_FALSE(one.subjects.empty()) << one.path;
        EXPECT_LT(c.lo, c.hi) << one.path;
        EXPECT_LE(c.lo, c.value) << one.path;
        EXPECT_LE(c.value, c.hi) << one.path;
        EXPECT_FALSE(c.source.empty()) << one.path;
    }
}

TEST(FittedConstants, UnconfirmedOnesCarryTheSpreadOfTheirRange) {
    const auto constants = fitted_constants();
    ASSERT_TRUE(constants);
    int unconfirmed = 0;
    for (const FittedConstant& one : *constants) {
        if (one.constant.unconfirmed) {
            ++unconfirmed;
            // Spreads are written with two digits.
            EXPECT_GE(one.constant.sigma,
                      0.99 * unconfirmed_sigma(one.constant, one.constant.value))
                << one.path << " of " << one.files.front();
        }
    }
    EXPECT_GT(unconfirmed, 0);
}

TEST(FittedConstants, TooManyAreRefusedWithTheFileThatGoesBeyond) {
    FittedLimits limits;
    limits.per_stack = 1;
    auto constants = fitted_constants(limits);
    ASSERT_FALSE(constants);
    EXPECT_NE(constants.error().where.find("topologies/stacks/"), std::string::npos);
    limits = {};
    limits.per_generation = 2;
    constants = fitted_constants(limits);
    ASSERT_FALSE(constants);
    EXPECT_EQ(constants.error().where, "topologies/architectures/hopper.json");
    limits = {};
    limits.in_all = 3;
    constants = fitted_constants(limits);
    ASSERT_FALSE(constants);
    EXPECT_NE(constants.error().what.find("at most 3"), std::string::npos);
}

TEST(FittedConstants, OneThatProfilesShareIsOne) {
    const auto constants = fitted_constants();
    ASSERT_TRUE(constants);
    for (std::size_t i = 0; i < constants->size(); ++i) {
        const FittedConstant& one = (*constants)[i];
        EXPECT_EQ(index_of(*constants, one.path, one.constant), i);
    }
}

TEST(TimedRows, GridRunsFromEndToEndOfTheRangeInValuesOfFourDigits) {
    const sim::Constant c{0.7, "", sim::Origin::fitted_to_runs, "", "", 0.64, 0.8, 0.05};
    EXPECT_DOUBLE_EQ(grid_value(c, 0), 0.64);
    EXPECT_DOUBLE_EQ(grid_value(c, grid_middle), 0.72);
    EXPECT_DOUBLE_EQ(grid_value(c, grid_steps), 0.8);
    EXPECT_DOUBLE_EQ(grid_value({1, "", c.origin, "", "", 0.0, 1.0 / 3.0, 0}, 1), 0.008333);
}

} // namespace
} // namespace shardplan::plan
