#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What the flags of each verb turn into. Plain values: the file that parses flags is the only one
/// that knows how, and tests fill these by hand.
namespace shardplan::plan::cli {

/// A flag of the job and the field of the job it sets.
struct JobFlag {
    std::string_view flag; ///< "--sequence"
    std::string_view path; ///< "sequence.max"
    std::string_view doc;
    bool is_switch = false; ///< takes no value, and sets the field to true
};

/// Short names for the fields of a job that people change most. Any other field is `--set
/// job.PATH`.
std::span<const JobFlag> job_flags();

/// A value given by a flag that sets one field.
struct FieldValue {
    std::string flag; ///< as typed, for messages
    std::string path;
    std::string value;
};

/// What is added to a cluster file of a foreign format, which seldom says everything.
struct ImportOptions {
    std::string device; ///< what the devices are
    std::string node;   ///< a cluster whose node fills in what the file lacks
    std::string nodes;  ///< nodes that exist, as a host list
};

/// Everything a scenario is made of.
struct ScenarioOptions {
    std::string model;
    std::string cluster;
    std::optional<std::int64_t> gpus;
    std::string job;
    std::string stack;
    std::string calibration;
    std::vector<std::string> features;
    std::vector<FieldValue> job_fields; ///< from job_flags()
    std::vector<std::string> sets;      ///< "job.sequence.max=8192"
    std::string device_peak;            ///< "989 TFLOP/s", of the compute format
    std::string device_memory;
    std::string device_bandwidth;
    ImportOptions import = {};
};

struct ModelOptions {
    std::string model;
    std::vector<std::string> sets;
};

struct ClusterOptions {
    std::string cluster;
    std::optional<std::int64_t> gpus;
    std::vector<std::string> sets;
    ImportOptions import = {};
    std::string between = {}; ///< "0,9": the way between two devices
};

struct ListOptions {
    std::string what; ///< models, clusters, devices, stacks, jobs, features
};

/// Losses of a whole run, as typed; empty: the cluster's or the usual ones.
struct LossOptions {
    std::string mean_time_to_failure; ///< "6000 h", of one node
    std::string checkpoint_time;      ///< "30 s"
    std::string checkpoint_interval;  ///< "1 h"
    std::string restart;              ///< "10 min"
    std::string requeue;
    std::string queue;
    std::string planned;        ///< "5%"
    std::string power_overhead; ///< "1.2"
};

struct EstimateOptions {
    ScenarioOptions scenario;
    std::string layout;
    std::string output; ///< document to write; "-": standard output; empty: none
    LossOptions losses = {};
};

struct PlanOptions {
    ScenarioOptions scenario;
    std::int64_t top = 10;
    std::string objective; ///< empty: the job's
    std::string output;
    LossOptions losses = {};
};

struct ExplainOptions {
    std::string document;  ///< a plan file; or empty, and scenario and layout are given
    std::int64_t plan = 1; ///< which plan of the document, from 1
    ScenarioOptions scenario;
    std::string layout;
    std::string term = "memory";
    std::int64_t depth = 0; ///< levels shown; 0 = all
};

struct DiffOptions {
    std::string a;           ///< plan file
    std::string b;           ///< plan file; empty: another plan of `a`
    std::int64_t plan_a = 1; ///< which plan of `a`, from 1
    std::int64_t plan_b = 0; ///< which plan of `b`; 0: the first, or the second of one file
};

struct SweepOptions {
    std::string document; ///< a plan file; or empty, and the scenario is given
    std::int64_t plan = 1;
    ScenarioOptions scenario;
    std::string over;   ///< "gpus=64..4096,job.sequence=4096,8192"
    std::string layout; ///< of every point; "plan": that of the file; empty: planned at each
    bool csv = false;
    std::string report; ///< HTML file to write
};

struct SensitivityOptions {
    std::string document; ///< a plan file; or empty, and the scenario is given
    std::int64_t plan = 1;
    ScenarioOptions scenario;
    std::string layout; ///< empty: that of the file, or the best one
    std::string by = "10%";
    std::string target;     ///< "mfu=0.5"
    std::string efficiency; ///< "0.8": the same as a target efficiency=0.8
    std::string solve;      ///< the input a target is solved for; empty: every one
    bool all = false;       ///< every row
};

struct FitOptions {
    ScenarioOptions scenario; ///< gpus: the machine whose verdict is looked into
    std::string layout;       ///< the base of single changes
    std::int64_t max_gpus = 16384;
};

struct CalendarOptions {
    std::string document; ///< a plan file; or empty, and the scenario is given
    std::int64_t plan = 1;
    ScenarioOptions scenario;
    std::string layout; ///< empty: that of the file, or the best one
    LossOptions losses = {};
};

struct SimulateVerbOptions {
    std::string document; ///< a plan file; or empty, and the scenario is given
    std::int64_t plan = 1;
    ScenarioOptions scenario;
    std::string layout;                    ///< empty: that of the file, or the best one
    std::vector<std::string> what_if = {}; ///< changes of the step it is compared with
    std::string trace;                     ///< Chrome trace file to write
    std::string html;                      ///< page to write
    std::string over;                      ///< measurement to lay over it
    bool every_rank = false;
    std::string stragglers; ///< spread of the ranks' speed, "2%"; empty: none
    std::int64_t seed = 1;
    std::int64_t most_events = 1'000'000'000;
};

struct RunVerbOptions {
    std::string document;
    std::int64_t plan = 1;
    std::string backend = "threads";
    std::optional<std::int64_t> ranks = {}; ///< absent: those of the plan
    std::string hostfile = {};              ///< of mpirun
    /// Flags of the program that trains, with their values, as typed: it checks them.
    std::vector<std::string> passed = {};
};

/// What somebody adds to timings of collectives.
struct TimingOptions {
    ClusterOptions machine = {}; ///< where they were taken; cluster empty: not given
    std::string collective = {}; ///< that was timed
    std::string system = {};     ///< the only one of their systems that is looked at; empty: all
};

struct ValidateOptions {
    std::string runs;
    std::vector<std::string> by;
    bool notes = false;           ///< also what was assumed for each record
    bool sweeps = false;          ///< every sweep, not only the groups
    std::string kernels = {};     ///< kernel records, in place of runs
    std::string collectives = {}; ///< timings of collectives, in place of runs
    TimingOptions timing = {};
    std::string calibration = {}; ///< applied to collectives, or to the plan of a measurement
    std::vector<std::string> measurements = {}; ///< of runs on this machine, in place of runs
    std::string plan = {}; ///< of the measurements; empty: the files they were run from
};

struct CalibrateVerbOptions {
    std::string runs;
    std::vector<std::string> exclude;
    std::string output;                        ///< "-": standard output, in place of the report
    std::vector<std::string> collectives = {}; ///< files of timings, in place of runs
    TimingOptions timing = {};
    bool match_mistuned = false; ///< also constants of systems far below their links are written
    std::string attach = {};     ///< plan file that the calibration is added to
};

} // namespace shardplan::plan::cli
