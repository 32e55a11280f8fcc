#pragma once

#include <cstdint>
#include <vector>

#include "simulator/schedule/schedule.hpp"

namespace shardplan::exec {

/// One task of a stage, and whom it deals with.
struct StageTask {
    std::uint32_t id = 0;   ///< number in the Schedule
    std::int32_t peer = -1; ///< of messages: the stage at the other end
    int tag = 0;            ///< of messages: the same at both ends
    /// A pass begins with what this chunk of the same stage has left; -1: it does not.
    std::int32_t handed_on_by = -1;

    friend bool operator==(const StageTask&, const StageTask&) = default;
};

/// The tasks of a stage in an order in which one thread can do them all: that of their ids. Since
/// sends are started and not waited for, and the passes of no schedule wait for themselves, no two
/// stages wait for each other.
std::vector<StageTask> stage_program(const sim::Schedule& schedule, std::int32_t stage);

} // namespace shardplan::exec
