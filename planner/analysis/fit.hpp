#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/vary.hpp"

/// The smallest machine that holds a job, and which single change turns its verdict.
namespace shardplan::plan {

/// The best layout on one size of the cluster, or the one that comes nearest.
struct Machine {
    std::int64_t devices = 0;
    bool has_layout = false; ///< false: no layout is legal, `why` says so
    std::string why;
    std::string layout;
    sim::Verdict verdict = sim::Verdict::does_not_fit;
    sim::TensorKind deciding = sim::TensorKind::weights;
    double margin_bytes = 0.0; ///< negative: short by
    double step_s = 0.0;
    double tokens_per_s_per_device = 0.0;
    double mfu = 0.0;

    [[nodiscard]] bool fits() const { return has_layout && verdict == sim::Verdict::fits; }
};

/// One way to train, on growing machines.
struct MethodFit {
    std::string name;
    std::vector<Machine> tried;          ///< by devices
    std::optional<std::size_t> smallest; ///< index into `tried` of the first that fits
    std::int64_t most_devices = 0;       ///< where the search ended
};

/// A change of one thing, and what becomes of the verdict.
struct Flip {
    std::string change; ///< "optimizer states in host memory"
    std::string how;    ///< flag or term that does it: "off=opt:1.0:host"
    std::string layout;
    bool planned_anew =
        false; ///< the layout is the best under the change, else the base's, changed
    sim::Verdict verdict = sim::Verdict::does_not_fit;
    double margin_bytes = 0.0;
    double step_s = 0.0;
    double step_change = 0.0; ///< relative to the base
    double device_time_change =
        0.0;            ///< of devices x time per token, relative to the base: its price
    bool turns = false; ///< the verdict is another one than that of the base
};

struct Flips {
    Machine base;
    /// Those that turn the verdict first, by price; then the nearest to it.
    std::vector<Flip> flips;
};

struct FitRequest {
    std::string layout; ///< the base of flips(); empty: the best, or the nearest to fitting
    sim::Objective objective = sim::Objective::time;
    std::int64_t most_devices = 16384; ///< of a cluster that can grow
};

/// The best layout of a scenario, or the one that comes nearest. Errors: it does not resolve.
sim::Result<Machine> best_machine(const sim::Scenario& scenario, sim::Objective objective);

/// Grows the machine until the job fits: parts of a node by powers of two, then whole nodes,
/// doubling, and back to the smallest number between. `base` has the whole cluster.
sim::Result<MethodFit> smallest_machine(std::string name, const sim::Scenario& base,
                                        const VaryRules& rules, const FitRequest& request);

/// What single changes do: to the layout (micro-batch, recomputation, sharding, offload, degrees),
/// and to the job and the machine (optimizer, sequence, method, devices, the loss), each of which
/// is planned anew unless a layout is given. Where the base fits: which changes break it. Errors:
/// the layout cannot be read or is not legal.
sim::Result<Flips> flips(const sim::Scenario& scenario, const VaryRules& rules,
                         const FitRequest& request);

} // namespace shardplan::plan
