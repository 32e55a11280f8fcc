#pragma once

#include <string>
#include <vector>

#include "planner/cli/console.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/io/json.hpp"

/// Estimates as people and programs read them; shared by plan, estimate and explain.
namespace shardplan::plan::cli {

/// One layout with what it costs.
struct Shown {
    std::string layout; ///< text form
    const sim::Estimate& estimate;
};

/// What is given: model with exact counts, cluster, job, stack. For screens without an estimate.
void print_given(const Console& console, const sim::Evaluator& evaluator);
/// What fits on one screen: model with exact counts, cluster, job, stack, layout, verdict with its
/// margin, the three largest memory terms, step time with its band, speed, and MFU with its peak.
void print_first_screen(const Console& console, const sim::Evaluator& evaluator,
                        const Shown& shown);
/// Memory of each rank class by kind of tensor, in GiB. Where there are many classes, the first,
/// the last, the deciding one and a few between.
void print_memory(const Console& console, const sim::Estimate& estimate);
/// Where the step goes, and what hides behind compute.
void print_time(const Console& console, const sim::Estimate& estimate);
/// Bytes one device sends by dimension.
void print_links(const Console& console, const sim::Estimate& estimate);
/// Assumptions of the scenario and of the evaluation, each once.
std::vector<sim::Assumption> all_assumptions(const sim::Evaluator& evaluator);
/// Warnings about a legal layout and its estimate, each once.
std::vector<sim::Warning> all_warnings(const sim::Evaluator& evaluator, const sim::Layout& layout,
                                       const sim::Estimate& estimate);

/// Whether constants measured on the machine took part, which calibration they are of, and which
/// they are.
std::string calibration_words(const sim::Scenario& scenario);

Style style_of(sim::Verdict verdict);

/// The member "calibration" of the object that is open: the same.
void write_calibration(sim::JsonWriter& json, const sim::Scenario& scenario);
/// Members of the object that is open: what print_first_screen says about the scenario.
void write_scenario_summary(sim::JsonWriter& json, const sim::Evaluator& evaluator);
/// One estimate as an object: verdict, memory by class, time by kind, speed, cost, links.
void write_estimate(sim::JsonWriter& json, const Shown& shown);
void write_notes(sim::JsonWriter& json, const std::vector<sim::Assumption>& assumptions,
                 const std::vector<sim::Warning>& warnings);
void write_refusals(sim::JsonWriter& json, const std::vector<sim::Refusal>& refusals);

} // namespace shardplan::plan::cli
