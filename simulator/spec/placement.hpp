#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Position of one rank along each dimension (ep is derived from dp x cp x tp).
struct Coordinates {
    std::int64_t tp = 0, cp = 0, dp = 0, pp = 0;
    friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

/// Blocks of one pipeline stage, chunk by chunk. With v chunks, chunk c of stage i holds the c-th
/// slice of the model that falls on stage i (Megatron's assignment).
struct Stage {
    struct Slice {
        std::int64_t first = 0; ///< index of the first block in the trunk
        std::int64_t count = 0;
        friend bool operator==(const Slice&, const Slice&) = default;
    };
    std::vector<Slice> chunks;
    bool has_embedding = false;
    bool has_head = false;
    friend bool operator==(const Stage&, const Stage&) = default;
};

/// `count` consecutive blocks of one kind.
struct KindCount {
    std::int64_t kind = 0;
    std::int64_t count = 0;
    friend bool operator==(const KindCount&, const KindCount&) = default;
};
/// The kinds of the blocks of a slice, in order, neighbours of one kind together.
std::vector<KindCount> kinds_in(const Part& part, const Stage::Slice& slice);

/// Ranks that cost the same: same stage on the same kind of node.
struct RankClass {
    std::int64_t stage = 0;
    std::int64_t node_group = 0;
    std::int64_t count = 0;        ///< ranks in the class
    std::int64_t example_rank = 0; ///< the lowest one
    friend bool operator==(const RankClass&, const RankClass&) = default;
};

/// Where a layout's ranks sit. Rank r is device r of the cluster in node order.
struct Placement {
    std::array<Dim, 5> order{};
    std::vector<Stage> stages;
    std::vector<RankClass> classes; ///< by stage, then node group
    std::int64_t devices_per_node = 0;
    std::int64_t nodes = 0;

    friend bool operator==(const Placement&, const Placement&) = default;
};

/// Blocks of every stage for a layout, from its stage map or else as `partition` cuts them. Even
/// stages put the remainder on the middle ones, so that the stages of the embedding and the head
/// are never the longer ones. Under zb-v the chunks of a stage lie mirrored in the model, under
/// dualpipe stage i holds slices i and pp - 1 - i of pp.
std::vector<Stage> stages_of(const ModelSpec& model, const Layout& layout,
                             const LayoutTables& tables,
                             StagePartition partition = StagePartition::even);

/// Ranks by stage, then node group. Reads the degrees and the rank order of a layout.
std::vector<RankClass> rank_classes_of(const Scenario& scenario, const Layout& layout);

/// Cuts the model of a legal layout and groups its ranks, in time that does not grow with them on a
/// cluster of one node group.
Placement place(const Scenario& scenario, const Layout& layout, const LayoutTables& tables);

/// Stride between neighbours of `dim` in rank numbers, under the layout's order. Experts split the
/// tp x cp x dp ranks anew, into etp, ep and the ranks that hold the same experts, in the same
/// order (Megatron); the stride of ep is that of its first neighbours.
std::int64_t rank_stride(const Layout& layout, Dim dim);
Coordinates coordinates_of(const Layout& layout, std::int64_t rank);
std::int64_t rank_of(const Layout& layout, const Coordinates& at);

} // namespace shardplan::sim
