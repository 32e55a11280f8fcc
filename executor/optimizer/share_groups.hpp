#pragma once

#include <memory>
#include <vector>

#include "executor/comm/layout_groups.hpp"
#include "executor/model/parameters.hpp"
#include "executor/model/share.hpp"
#include "simulator/spec/layout.hpp"

namespace shardplan::exec {

/// The ranks that hold the same parameters, as rows and columns: along `parts` each keeps another
/// piece, along `copies` the same. Null: this rank alone.
struct Sharers {
    Communicator* parts = nullptr;
    Communicator* copies = nullptr;

    [[nodiscard]] PartOf part() const { return place_in(parts); }
    [[nodiscard]] PartOf copy() const { return place_in(copies); }

private:
    static PartOf place_in(const Communicator* group) {
        if (group == nullptr) return {};
        return {group->rank(), group->size()};
    }
};

/// Whom a rank shares parameters with, of one kind of holders each, and beside them.
struct ShareGroups {
    Communicator* world = nullptr;
    Sharers dense;
    Sharers expert;
    Communicator* tp = nullptr;
    Communicator* table = nullptr;                  ///< the two stages with the tied table
    Communicator* mirror = nullptr;                 ///< the two stages that hold the same
    std::vector<std::unique_ptr<Communicator>> own; ///< that are not of the layout

    [[nodiscard]] const Sharers& of(Holders holders) const {
        return holders == Holders::dense ? dense : expert;
    }

    /// Every rank calls it. Experts are split over as many ranks as dense parameters, or where the
    /// ranks that hold them do not go into such groups over the most below that.
    static Result<ShareGroups> make(Communicator& world, const LayoutGroups& groups,
                                    const RankShare& share, const sim::Layout& layout);
};

} // namespace shardplan::exec
