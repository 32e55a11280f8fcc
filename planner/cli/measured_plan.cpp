#include "planner/cli/measured_plan.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/vary.hpp"
#include "simulator/io/apply_calibration.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/measurement.hpp"

namespace shardplan::plan::cli {
namespace {

sim::Status calibrate(sim::Scenario& scenario, const std::string& file) {
    if (file.empty()) {
        return sim::Done{};
    }
    auto calibration = sim::read_calibration_file(file);
    if (!calibration) {
        return calibration.error();
    }
    scenario.calibration = std::move(*calibration);
    return sim::apply_calibration(scenario);
}

sim::Result<MeasuredPlan> plan_of(sim::Measurement measurement, const std::string& file,
                                  const std::string& plan, const std::string& calibration) {
    const std::string from = plan.empty() ? measurement.plan : plan;
    if (from.empty()) {
        return sim::Error{sim::ErrorCode::bad_input, "--plan",
                          "the measurement does not say which plan was run",
                          "name the plan: --plan plan.shardplan.json"};
    }
    auto document = sim::read_document_file(from);
    if (!document) {
        sim::Error error = document.error();
        if (plan.empty()) {
            error.hint = fmt::format("{} was run from this file; name the plan with --plan", file);
        }
        return error;
    }
    const std::string& text = measurement.layout;
    const bool held =
        std::any_of(document->plans.begin(), document->plans.end(),
                    [&](const sim::PlanEntry& entry) { return entry.layout == text; });
    if (!held) {
        return sim::Error{sim::ErrorCode::bad_input, from,
                          fmt::format("it holds no plan with the layout that ran, {}", text),
                          "name the plan that was run"};
    }
    const bool changed = sim::plan_hash(document->scenario, text) != measurement.plan_hash;
    if (const auto status = calibrate(document->scenario, calibration); !status) {
        return status.error();
    }
    sim::LayoutTables tables;
    const auto layout = layout_for(text, file, document->scenario, tables);
    if (!layout) {
        return layout.error();
    }
    auto evaluator = sim::Evaluator::make(std::move(document->scenario), std::move(tables));
    if (!evaluator) {
        return evaluator.error();
    }
    const auto refusals = sim::check_layout(evaluator->scenario(), evaluator->resolved(), *layout,
                                            evaluator->tables());
    if (!refusals.empty()) {
        return sim::Error{sim::ErrorCode::bad_input, from,
                          fmt::format("the layout that ran is not legal for its stack: {}",
                                      refusals.front().rule),
                          "plan with --stack shardplan-cpu"};
    }
    auto comparison = compare_measurement(*evaluator, *layout, measurement);
    if (!comparison) {
        sim::Error error = std::move(comparison).error();
        error.where = file;
        return error;
    }
    return MeasuredPlan{std::move(measurement), std::move(*evaluator), *layout,
                        std::move(*comparison), changed};
}

} // namespace

sim::Result<std::vector<MeasuredPlan>> measured_plans(const std::vector<std::string>& files,
                                                      const std::string& plan,
                                                      const std::string& calibration) {
    std::vector<MeasuredPlan> out;
    for (const std::string& file : files) {
        auto measurements = sim::read_measurements_file(file);
        if (!measurements) {
            return measurements.error();
        }
        for (sim::Measurement& measurement : *measurements) {
            auto one = plan_of(std::move(measurement), file, plan, calibration);
            if (!one) {
                return one.error();
            }
            out.push_back(std::move(*one));
        }
    }
    return out;
}

void print_changed(const Console& console, const MeasuredPlan& plan) {
    if (plan.changed) {
        console.err << "note: the plan says other things than the one that ran, of the same "
                       "layout\n";
    }
}

} // namespace shardplan::plan::cli
