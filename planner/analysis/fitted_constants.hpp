#pragma once

#include <string>
#include <vector>

#include "simulator/io/catalogue.hpp"
#include "simulator/spec/constants.hpp"
#include "simulator/units/result.hpp"

/// The Constants of the cost model that were estimated from whole training runs. They are found by
/// walking the fields of every profile; no list of them stands anywhere.
namespace shardplan::plan {

/// How many Constants may be fitted to runs: a model with more of them describes the runs, and not
/// what makes them slow.
struct FittedLimits {
    std::size_t per_stack = 4;      ///< stated by one stack profile
    std::size_t per_generation = 3; ///< stated by one architecture and its devices
    std::size_t in_all = 30;
};

/// One Constant of origin fitted_to_runs. Profiles that state the same one (same path, value,
/// source and range) share it.
struct FittedConstant {
    std::string path;    ///< "stack.time.launch", "device.compute.matrix_efficiency", "fabric.NAME"
    std::string meaning; ///< one sentence
    sim::Constant constant;
    std::vector<std::string> files;    ///< that state it, below the data folder
    std::vector<std::string> subjects; ///< stacks, devices or networks that read it

    friend bool operator==(const FittedConstant&, const FittedConstant&) = default;
};

/// Shows every Constant fitted to runs that a scenario reads, with its path as above.
void for_each_fitted(sim::Scenario& scenario, const sim::ConstantLook& look);

/// All of them: stacks by name, then devices, then networks. Errors: broken data files; more of
/// them than the limits allow, with the file that goes beyond.
sim::Result<std::vector<FittedConstant>> fitted_constants(const FittedLimits& limits = {});

/// Index of the Constant that stands at `path` of a scenario; `constants.size()` if it is none.
std::size_t index_of(const std::vector<FittedConstant>& constants, const std::string& path,
                     const sim::Constant& constant);

} // namespace shardplan::plan
