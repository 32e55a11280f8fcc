#include "executor/comm/layout_groups.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "simulator/network/group_path.hpp"

namespace shardplan::exec {

std::vector<int> group_members(const sim::Layout& layout, sim::Group group, int rank) {
    const std::vector<sim::StridedRanks> runs = sim::ranks_of(layout, group);
    std::int64_t lowest = rank;
    for (const sim::StridedRanks& run : runs) {
        lowest -= rank / run.stride % run.size * run.stride;
    }
    std::vector<int> members = {static_cast<int>(lowest)};
    for (const sim::StridedRanks& run : runs) {
        const std::size_t inner = members.size();
        for (std::int64_t step = 1; step < run.size; ++step) {
            for (std::size_t i = 0; i < inner; ++i) {
                members.push_back(members[i] + static_cast<int>(step * run.stride));
            }
        }
    }
    std::sort(members.begin(), members.end());
    return members;
}

Result<LayoutGroups> LayoutGroups::make(Communicator& world, const sim::Layout& layout) {
    if (sim::rank_count(layout) != world.size()) {
        return Error{ErrorCode::bad_input, "layout",
                     fmt::format("the layout has {} ranks, the run {}", sim::rank_count(layout),
                                 world.size()),
                     fmt::format("start {} ranks", sim::rank_count(layout))};
    }
    LayoutGroups made;
    for (std::size_t i = 0; i < sim::group_count; ++i) {
        const auto group = static_cast<sim::Group>(i);
        const int lowest = group_members(layout, group, world.rank()).front();
        auto part = world.split(lowest, world.rank(), std::string(sim::name_of(group)));
        if (!part) return part.error();
        made.groups_[i] = std::move(*part);
    }
    return made;
}

} // namespace shardplan::exec
