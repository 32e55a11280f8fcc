#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/spec/assumption.hpp"
#include "simulator/spec/calibration.hpp"
#include "simulator/spec/cluster.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/spec/fabric_profile.hpp"
#include "simulator/spec/job.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/model.hpp"
#include "simulator/spec/stack.hpp"

namespace shardplan::sim {

/// Rings through the devices of a node that share no link of its graph; see ring_search.hpp.
struct MeshRings {
    std::int64_t node_group = 0;
    std::int64_t used = 0;   ///< devices of the node that the layout uses
    std::int64_t stride = 1; ///< between the ranks of a group
    std::int64_t size = 2;   ///< ranks of a group in the node
    std::int64_t count = 0;  ///< of the group that has the fewest
    bool relayed = false;    ///< a device passes messages on for two others

    friend bool operator==(const MeshRings&, const MeshRings&) = default;
};

/// What is given: everything an estimate depends on besides the layout, already loaded.
struct Scenario {
    ModelSpec model;
    Cluster cluster;
    Job job;
    StackProfile stack;
    Calibration calibration;
    std::vector<Device> devices;        ///< the products the cluster's node groups name, same order
    std::vector<FabricProfile> fabrics; ///< the kinds the cluster uses
    std::vector<Assumption> assumptions; ///< defaults taken while loading
    /// Found while loading where node groups state links between devices; not in files.
    std::vector<MeshRings> mesh_rings;

    friend bool operator==(const Scenario&, const Scenario&) = default;
};

void describe(FieldVisitor& v, Assumption& x);
void describe(FieldVisitor& v, Scenario& x);

/// A layout that cannot run, or cannot fit: a normal result, not an error.
struct Refusal {
    std::string rule;  ///< one sentence with its numbers: "tp 3 does not divide 32 heads"
    std::string field; ///< layout field in the user's terms: "tp"
    std::vector<double> numbers;
    std::vector<std::string> nearest; ///< legal values nearby, as terms of the text form
    std::string id;                   ///< stable name of the rule, "tp-divides-heads"

    friend bool operator==(const Refusal&, const Refusal&) = default;
};

/// Something a user should know about an estimate.
struct Warning {
    std::string id;   ///< stable name, "tp-across-nodes"
    std::string text; ///< one sentence with its numbers

    friend bool operator==(const Warning&, const Warning&) = default;
};

/// Job over Stack, with the defaults recorded: the only place that reads raw Job and Stack fields.
/// Cost code sees this and the Layout.
struct Resolved {
    std::int64_t sequence = 0;         ///< tokens of one (padded) sample
    double sequence_mean_square = 0.0; ///< tokens^2
    std::int64_t global_batch = 0;     ///< sequences per step
    Dtype compute = Dtype::bf16;
    Dtype parameter = Dtype::bf16; ///< stored compute copy of weights
    Dtype master = Dtype::fp32;
    Dtype gradient = Dtype::fp32; ///< accumulation
    Dtype state = Dtype::fp32;    ///< moments
    OptimizerKind optimizer = OptimizerKind::adamw;
    Method method;
    Fp8Recipe recipe = Fp8Recipe::none;
    MoeLoad moe;
    AttentionImpl attention = AttentionImpl::flash_2;
    std::int64_t vocab_multiple = 0;
    Bytes memory_cap; ///< per device; 0 = none

    friend bool operator==(const Resolved&, const Resolved&) = default;
};

struct ResolvedWithNotes {
    Resolved values;
    std::vector<Assumption> assumptions;
};

/// Applies Job over Stack. Fails on contradictions (fp8 recipe on a device without fp8, batch given
/// twice or not at all, sequence longer than learned positions).
Result<ResolvedWithNotes> resolve(const Scenario& scenario);

/// Micro-batches per pipeline pass for a layout; 0 if the global batch does not divide.
std::int64_t micro_batches(const Resolved& resolved, const Layout& layout);

/// Every rule the layout breaks, first the ones a user should mend first; empty = legal.
std::vector<Refusal> check_layout(const Scenario& scenario, const Resolved& resolved,
                                  const Layout& layout, const LayoutTables& tables);
/// True as `check_layout(...).empty()`, without building text; for the search.
bool is_legal(const Scenario& scenario, const Resolved& resolved, const Layout& layout,
              const LayoutTables& tables);
/// Legal but unusual: tensor parallelism across nodes, interleaving with m not a multiple of pp.
std::vector<Warning> layout_warnings(const Scenario& scenario, const Resolved& resolved,
                                     const Layout& layout, const LayoutTables& tables);

} // namespace shardplan::sim
