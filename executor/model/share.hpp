#pragma once

#include <vector>

#include "executor/kernels/kernels.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/model.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Which of the equal parts of something a rank has.
struct PartOf {
    Index part = 0;
    Index parts = 1;

    friend bool operator==(const PartOf&, const PartOf&) = default;
};

/// Which key heads a tensor-parallel rank has: a part of them, or where there are fewer heads than
/// ranks one that its neighbours have too. The ranks are a multiple of the heads, or divide them.
PartOf key_part(PartOf tp, Index kv_heads);
/// Heads of keys and values: where they come from compressed vectors, as many as of queries.
Index key_heads(const sim::Attention& attention);

/// Consecutive blocks of a stage, with the ends of the model where they lie there.
struct ChunkShare {
    Index first = 0; ///< number of the first block in the model
    Index count = 0;
    bool embeds = false;   ///< begins with the tables of tokens and positions
    bool has_head = false; ///< ends with the final norm, the head and the loss

    friend bool operator==(const ChunkShare&, const ChunkShare&) = default;
};

/// What one rank of a layout holds of a model. Order of ranks: that of `sim::coordinates_of`.
struct RankShare {
    Index rank = 0;
    Index stage = 0;
    Index stages = 1;
    PartOf tp, cp;
    PartOf ep;  ///< which experts
    PartOf etp; ///< which part of each of them
    PartOf dp;  ///< which samples
    bool sp = false;
    sim::CpKind cp_kind = sim::CpKind::ring;
    std::vector<ChunkShare> chunks; ///< in the numbers that the schedule gives them
    /// The tied table stands on another stage too: gradients of both are to be added up.
    bool table_on_two_stages = false;
    /// Stage i and stage stages - 1 - i hold the same parameters (dualpipe).
    bool mirrored = false;

    friend bool operator==(const RankShare&, const RankShare&) = default;
};

/// All of the model on one rank.
RankShare whole_model(const sim::ModelSpec& model);

/// Of a model that `check_model` accepts. Errors: sizes that the degrees do not divide, by field.
sim::Result<RankShare> share_of(const sim::ModelSpec& model, const sim::Layout& layout,
                                const sim::LayoutTables& tables, Index rank);

} // namespace shardplan::exec
