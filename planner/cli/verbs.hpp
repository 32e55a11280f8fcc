#pragma once

#include "planner/cli/console.hpp"
#include "planner/cli/options.hpp"
#include "simulator/io/run_record.hpp"

/// The verbs of the program. Each writes its answer to the console and returns the exit code.
namespace shardplan::plan::cli {

/// What a model file or name says: exact parameter counts, the shape, what was assumed.
int run_model(const ModelOptions& options, const Console& console);
/// What a cluster file or name says: nodes, devices with their figures, links, fabric.
int run_cluster(const ClusterOptions& options, const Console& console);
/// The built-ins of a kind.
int run_list(const ListOptions& options, const Console& console);
/// One layout, every term. "No": it is not legal or does not fit.
int run_estimate(const EstimateOptions& options, const Console& console);
/// Ranked layouts. "No": none fits.
int run_plan(const PlanOptions& options, const Console& console);
/// The tree under one figure.
int run_explain(const ExplainOptions& options, const Console& console);
/// Two plans term by term.
int run_diff(const DiffOptions& options, const Console& console);
/// One or two inputs varied. "No": no point fits.
int run_sweep(const SweepOptions& options, const Console& console);
/// Swings of every input, or what an input must be for a target. "No": the target is out of reach.
int run_sensitivity(const SensitivityOptions& options, const Console& console);
/// The smallest machine per method, and what turns the verdict. "No": the job does not fit on the
/// devices named, or on any.
int run_fit(const FitOptions& options, const Console& console);
/// Days, losses, cost and energy of the whole run. "No": the layout does not fit.
int run_calendar(const CalendarOptions& options, const Console& console);
/// One step played event by event. "No": the layout does not fit.
int run_simulate(const SimulateVerbOptions& options, const Console& console);
/// Trains under a plan, in a program of its own, and compares the step with the estimate.
int run_run(const RunVerbOptions& options, const Console& console);
/// Published runs predicted and compared.
int run_validate(const ValidateOptions& options, const Console& console);
/// Constants fitted to published runs, those of networks to timings of collectives, or those of a
/// machine to sweeps of it.
int run_calibrate(const CalibrateVerbOptions& options, const Console& console);

/// Lines of a file of run records that were lost or doubted, as warnings.
void print_problems(const Console& console, const sim::RunRecords& runs);
/// The same of single kernels: what `run_validate` does with `kernels`.
int run_validate_kernels(const ValidateOptions& options, const Console& console);
/// The same of collectives: what `run_validate` does with `collectives`.
int run_validate_collectives(const ValidateOptions& options, const Console& console);
/// Runs and their plans, how far off and which is best, one alone term by term: what it does with
/// `measurements`.
int run_validate_measurements(const ValidateOptions& options, const Console& console);
/// What `run_calibrate` does with files of timings of collectives.
int run_calibrate_collectives(const CalibrateVerbOptions& options, const Console& console);
/// The same with sweeps, which the first line of a file tells from timings.
int run_calibrate_sweeps(const CalibrateVerbOptions& options, const Console& console);

} // namespace shardplan::plan::cli
