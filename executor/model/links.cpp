#include "executor/model/links.hpp"

#include <numeric>

namespace shardplan::exec {

bool Links::experts_split_as_rest() const {
    return !share_->sp && share_->tp.parts > 1 && share_->etp == share_->tp &&
           of(sim::Group::etp).world_ranks() == of(sim::Group::tp).world_ranks();
}

Index Links::sum(std::span<const Index> counts) {
    return std::accumulate(counts.begin(), counts.end(), Index{0});
}

} // namespace shardplan::exec
