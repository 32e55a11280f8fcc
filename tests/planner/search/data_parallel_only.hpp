#pragma once

#include "tests/support/builders.hpp"

namespace shardplan::plan {

/// Llama 3 8B on eight H100 that may only be replicated, which do not hold it, with host memory for
/// all of it.
inline sim::Scenario data_parallel_only() {
    sim::Scenario given =
        test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(4096, 32));
    given.job.constraints.tp = {1};
    given.job.constraints.pp = {1};
    given.job.constraints.cp = {1};
    given.stack.capabilities.shards = {sim::Shard::none};
    for (sim::NodeGroup& group : given.cluster.node_groups) {
        group.node.host.memory = sim::Bytes(2e12);
    }
    return given;
}

} // namespace shardplan::plan
