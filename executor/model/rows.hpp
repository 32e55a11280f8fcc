#pragma once

#include <span>
#include <vector>

#include "executor/model/share.hpp"

namespace shardplan::exec {

/// Consecutive tokens of a sample that lie on one rank.
struct Piece {
    Index first = 0; ///< position in the sample
    Index length = 0;

    friend bool operator==(const Piece&, const Piece&) = default;
};

/// The tokens of a sample on a context-parallel rank, in this order: consecutive ones where heads
/// are exchanged for tokens, else one piece from the front and one from the back, so that causal
/// work is even. Source: Llama 3 (arXiv 2407.21783), section 3.3.2.
std::vector<Piece> pieces_of(Index sequence, PartOf cp, sim::CpKind kind);

/// Which rows of a micro-batch a rank has; a row is a token. Samples lie one after another, each
/// with its pieces.
struct RowShare {
    std::vector<Piece> pieces;
    std::vector<Index> positions; ///< in the sample, of the rank's tokens of one
    Index all = 0;   ///< rows of the context-parallel rank: in attention and split maps
    Index first = 0; ///< of these, those that the rank has between the split maps: with sequence
                     ///< parallelism a part, else all
    Index own = 0;

    [[nodiscard]] Index length() const { return static_cast<Index>(positions.size()); }
    /// Of the tokens of a whole micro-batch those in `all`.
    [[nodiscard]] std::vector<Token> pick(std::span<const Token> tokens, Index sequence) const;
    /// Of the rank's own rows: sample x sequence + position, samples counted from a number.
    [[nodiscard]] std::vector<Index> own_places(Index sequence, Index first_sample) const;
};

/// Errors: a sequence that does not go into equal pieces.
sim::Result<RowShare> row_share(const RankShare& share, Index sequence, Index micro_batch);

} // namespace shardplan::exec
