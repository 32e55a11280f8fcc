#pragma once

#include <array>
#include <memory>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "simulator/estimate/kinds.hpp"
#include "simulator/spec/layout.hpp"

namespace shardplan::exec {

/// The ranks of `rank`'s group, in ascending order: those whose collectives the simulator prices.
std::vector<int> group_members(const sim::Layout& layout, sim::Group group, int rank);

/// A communicator of this rank for every group of a layout, named after the group.
class LayoutGroups {
public:
    /// Every rank of `world` calls it. Errors: the layout has another number of ranks.
    static Result<LayoutGroups> make(Communicator& world, const sim::Layout& layout);

    [[nodiscard]] Communicator& operator[](sim::Group group) const {
        return *groups_[static_cast<std::size_t>(group)];
    }

private:
    std::array<std::unique_ptr<Communicator>, sim::group_count> groups_;
};

} // namespace shardplan::exec
