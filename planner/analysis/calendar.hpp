#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/vary.hpp"
#include "simulator/units/constant.hpp"

/// From a step to the whole run: tokens, steps, days with losses, cost, energy.
namespace shardplan::plan {

/// Figures about running a cluster where nobody says otherwise: one data file.
struct Operations {
    std::string name;
    std::string note;
    sim::Constant stops;          ///< unplanned stops per second and node
    sim::Constant restart;        ///< seconds from a stop to the first new step
    sim::Constant save_per_node;  ///< bytes per second that one node writes to shared storage
    sim::Constant power_overhead; ///< energy of the building over that of the devices

    friend bool operator==(const Operations&, const Operations&) = default;
};
void describe(sim::FieldVisitor& v, Operations& x);

/// The built-in file "topologies/operations/NAME.json", or a file by path.
sim::Result<Operations> load_operations(const std::string& name_or_path = "typical");

/// What the user says about losses; absent: the cluster's, else that of Operations.
struct Losses {
    std::optional<double> mean_time_to_failure_s; ///< of one node
    std::optional<double> save_s;                 ///< training stands still for one checkpoint
    std::optional<double> interval_s;             ///< between checkpoints; absent: the best
    std::optional<double> restart_s;              ///< from a stop to the first new step
    double requeue_s = 0.0;                       ///< waiting for nodes after a stop
    double queue_s = 0.0;                         ///< waiting before the first step
    double planned = 0.0; ///< share of the wall time for maintenance, evaluation, experiments
    std::optional<double> power_overhead;
};

/// A line of the calendar.
struct LossLine {
    std::string name; ///< "work lost at stops"
    double seconds = 0.0;
    std::string how; ///< with its numbers
};

struct Calendar {
    double tokens = 0.0;
    double tokens_per_step = 0.0;
    double steps = 0.0;
    double step_s = 0.0;
    double pure_s = 0.0; ///< steps x step time
    double nodes = 0.0;  ///< in use
    double devices = 0.0;
    double mean_time_to_stop_s = 0.0; ///< of the job; 0: it does not stop
    double stops = 0.0;               ///< expected
    double checkpoint_bytes = 0.0;
    double save_s = 0.0;
    double interval_s = 0.0; ///< training between two checkpoints, whole steps
    double steps_per_checkpoint = 0.0;
    std::vector<LossLine> losses; ///< with `pure_s` they add up to `total_s`
    double total_s = 0.0;
    double total_low_s = 0.0; ///< at the ends of the band of the step time
    double total_high_s = 0.0;
    double goodput = 0.0; ///< pure over total
    double device_hours = 0.0;
    double money = 0.0; ///< 0: no price is known
    std::string currency;
    double kilowatt_hours = 0.0; ///< devices at board power x overhead; 0: unknown
    double power_overhead = 1.0;
    std::vector<sim::Assumption> assumptions;
};

/// The best time between two checkpoints for a blocking time d and a mean time M between stops:
/// sqrt(2 d M) (1 + sqrt(d/2M)/3 + d/18M) - d, or M where d >= 2 M.
/// Source: Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps.
double daly_interval(double save_s, double mean_time_s);

/// Expected wall time per second of training with stops at random times, checkpoints of `save_s`
/// after every `interval_s` of training, and `restart_s` after each stop:
/// M/t e^(R/M) (e^((t+d)/M) - 1). Source: the same, its complete model.
double expected_stretch(double interval_s, double save_s, double restart_s, double mean_time_s);

/// Bytes of one checkpoint: trained weights, master weights and moments.
double checkpoint_bytes(const sim::Scenario& scenario, const sim::Resolved& resolved);

/// The whole run. Errors: tokens_to_train is not given; the layout does not fit; the losses leave
/// no time to train, or are negative.
sim::Result<Calendar> calendar(const sim::Scenario& scenario, const sim::Estimate& estimate,
                               const Losses& losses, const Operations& operations);

} // namespace shardplan::plan
