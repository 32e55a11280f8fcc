// Predicted against measured memory and fit, over every published run in data/. The bars are those
// the project promises; the whole report is printed, so that a failure shows where it stands.
#include <algorithm>
#include <cmath>
#include <iostream>

#include <gtest/gtest.h>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/validate.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/spec/parameters.hpp"
#include "tests/validation/runs_path.hpp"

namespace shardplan::plan {
namespace {

/// Records with their predictions, read once.
struct Runs {
    std::vector<sim::RunRecord> records;
    std::vector<RunPrediction> predictions;
};

const Runs& runs() {
    static const Runs all = [] {
        Runs out;
        auto records = sim::read_run_records(test::runs_path());
        EXPECT_TRUE(records) << (records ? "" : sim::to_text(records.error()));
        if (!records) {
            return out;
        }
        auto predictions = predict_runs(records->records);
        EXPECT_TRUE(predictions) << (predictions ? "" : sim::to_text(predictions.error()));
        if (predictions) {
            out.records = std::move(records->records);
            out.predictions = std::move(*predictions);
        }
        return out;
    }();
    return all;
}

/// One scored memory figure.
struct Figure {
    std::string id;
    double measured = 0.0; ///< GiB
    double error = 0.0;    ///< relative, with its sign
};

/// Scored entries of a kind of the records that `take` accepts.
template <class Take>
std::vector<Figure> figures(const std::string& kind, Take take) {
    std::vector<Figure> out;
    for (std::size_t i = 0; i < runs().records.size(); ++i) {
        const sim::RunRecord& record = runs().records[i];
        const RunPrediction& prediction = runs().predictions[i];
        if (!prediction.skipped.empty() || !sim::usable_for(record, "memory") || !take(record)) {
            continue;
        }
        for (const sim::RunMemory& entry : scored_entries(record)) {
            if (entry.kind == kind) {
                out.push_back(
                    {record.id, entry.gib, memory_error(predicted_gib(prediction, entry), entry)});
            }
        }
    }
    return out;
}

std::vector<double> sizes(const std::vector<Figure>& figures) {
    std::vector<double> out;
    for (const Figure& figure : figures) {
        out.push_back(std::abs(figure.error));
    }
    return out;
}

bool is_real_size(const sim::RunRecord& record) {
    return record.group == "megatron-tests" && record.model.hidden.value_or(0) >= 4096;
}

bool is_small(const sim::RunRecord& record) {
    return record.group == "megatron-tests" && !is_real_size(record);
}

TEST(Validation, ReportOfEveryPublishedRun) {
    const cli::Console console{std::cout, std::cerr};
    EXPECT_EQ(cli::run_validate({test::runs_path(), {"group"}, false}, console), 0);
}

TEST(Validation, EveryCompleteRunIsPredicted) {
    for (std::size_t i = 0; i < runs().records.size(); ++i) {
        if (runs().records[i].complete) {
            EXPECT_EQ(runs().predictions[i].skipped, "") << runs().records[i].id;
        }
    }
    EXPECT_EQ(runs().records.size(), 1515U);
}

TEST(Validation, ReproducedModelsHaveTheRecordedParameters) {
    std::int64_t compared = 0;
    for (const sim::RunRecord& record : runs().records) {
        if (!record.complete || !record.model.params_computed) {
            continue;
        }
        std::vector<sim::Assumption> notes;
        const auto model = model_of(record, sim::StackProfile{}, notes);
        ASSERT_TRUE(model) << record.id << ": " << sim::to_text(model.error());
        EXPECT_EQ(sim::count_parameters(*model).total, *record.model.params_computed) << record.id;
        ++compared;
    }
    EXPECT_GT(compared, 1000);
}

TEST(Validation, AllocatedMemoryOfModelsOfRealSize) {
    const auto rows = figures("allocated", [](const sim::RunRecord& r) {
        return r.group == "simumax-b200" || is_real_size(r);
    });
    EXPECT_EQ(rows.size(), 31U);
    EXPECT_LE(median_of(sizes(rows)), 0.02);
    EXPECT_LE(percentile_of(sizes(rows), 0.95), 0.06);
}

TEST(Validation, AllocatedMemoryOfSmallModels) {
    const auto rows = figures("allocated", is_small);
    EXPECT_GE(rows.size(), 60U);
    EXPECT_LE(median_of(sizes(rows)), 0.06);
    // 15 % or 150 MiB, whichever is more, for 95 of 100 rows.
    const auto far_off = std::count_if(rows.begin(), rows.end(), [](const Figure& row) {
        return std::abs(row.error) > std::max(0.15, 150.0 / 1024.0 / row.measured);
    });
    EXPECT_LE(static_cast<double>(far_off), 0.05 * static_cast<double>(rows.size()));
    for (const Figure& row : rows) {
        if (std::abs(row.error) > 0.15) {
            std::cout << "  " << row.id << ": " << row.measured << " GiB, error "
                      << 100.0 * row.error << " %\n";
        }
    }
}

TEST(Validation, ReservedMemory) {
    const auto rows = figures("reserved", [](const sim::RunRecord& r) {
        return r.group == "torchtitan" || r.group == "simumax-b200";
    });
    EXPECT_EQ(rows.size(), 36U);
    EXPECT_LE(median_of(sizes(rows)), 0.10);
}

TEST(Validation, FitVerdictOfTheGridWithBothOutcomes) {
    for (const GroupFigures& group :
         score_predictions(runs().records, runs().predictions, {"group"})) {
        if (group.name != "aleph-alpha") {
            continue;
        }
        const FitFigures& fit = group.fit;
        EXPECT_EQ(fit.rows(), 422);
        EXPECT_GE(static_cast<double>(fit.right),
                  0.90 * static_cast<double>(fit.right + fit.wrong));
        EXPECT_LE(static_cast<double>(fit.borderline), 0.15 * static_cast<double>(fit.rows()));
        return;
    }
    FAIL() << "there is no such group";
}

} // namespace
} // namespace shardplan::plan
