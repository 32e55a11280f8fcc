#pragma once

#include <vector>

#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Parameters that one rank holds before data-parallel sharding, in elements. A double because a
/// split need not come out even; whole numbers wherever it does.
struct RankParameters {
    double dense = 0.0;         ///< trained, shared by the dp x cp ranks
    double expert = 0.0;        ///< trained, shared by the ranks that hold the same experts
    double frozen = 0.0;        ///< base weights under LoRA
    double frozen_matrix = 0.0; ///< the part of `frozen` that QLoRA quantizes

    RankParameters& operator+=(const RankParameters& other) {
        dense += other.dense;
        expert += other.expert;
        frozen += other.frozen;
        frozen_matrix += other.frozen_matrix;
        return *this;
    }
    friend RankParameters operator*(double count, RankParameters p) {
        p.dense *= count;
        p.expert *= count;
        p.frozen *= count;
        p.frozen_matrix *= count;
        return p;
    }
    [[nodiscard]] double trained() const { return dense + expert; }
    friend bool operator==(const RankParameters&, const RankParameters&) = default;
};

/// One block of `kind`: matrices split by tp (K and V replicated where tp exceeds the KV heads),
/// norms and down-projections replicated, experts split by ep and etp.
RankParameters block_on_rank(const BlockKind& kind, std::int64_t hidden, const Resolved& resolved,
                             const Layout& layout);

/// Token table (padded, split by tp) and learned positions on the first stage; the final norm and
/// the output table on the last. A tied table stands on both ends of a pipeline.
RankParameters embedding_on_rank(const ModelSpec& model, const Resolved& resolved,
                                 const Layout& layout);
RankParameters head_on_rank(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                            bool with_embedding);

/// Multi-token prediction modules, which stand with the head; without the token table on the same
/// stage they hold a copy of it. Source: DeepSeek-V3 (arXiv 2412.19437, section 2.2).
RankParameters prediction_modules_on_rank(const ModelSpec& model, const Resolved& resolved,
                                          const Layout& layout, bool with_embedding);

/// What of them is not in their blocks: maps, norms, and the copy of the token table.
RankParameters prediction_joints_on_rank(const ModelSpec& model, const Resolved& resolved,
                                         const Layout& layout, bool with_embedding);

/// Everything on a stage.
RankParameters stage_on_rank(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                             const Stage& stage);

/// Ranks that share a sharded state of dense and of expert parameters.
/// Source: Megatron-Core, expert data parallel = world / (etp x ep x pp).
struct ShardDegrees {
    double dense = 1.0;
    double expert = 1.0;
};
ShardDegrees shard_degrees(const Layout& layout);

} // namespace shardplan::sim
