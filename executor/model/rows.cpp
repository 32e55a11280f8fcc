#include "executor/model/rows.hpp"

#include <string>

namespace shardplan::exec {

std::vector<Piece> pieces_of(Index sequence, PartOf cp, sim::CpKind kind) {
    if (cp.parts == 1 || kind == sim::CpKind::all_to_all) {
        const Index length = sequence / cp.parts;
        return {{cp.part * length, length}};
    }
    const Index length = sequence / (2 * cp.parts);
    return {{cp.part * length, length}, {(2 * cp.parts - 1 - cp.part) * length, length}};
}

std::vector<Token> RowShare::pick(std::span<const Token> tokens, Index sequence) const {
    std::vector<Token> out;
    out.reserve(static_cast<std::size_t>(all));
    for (Index sample = 0; sample < all / length(); ++sample) {
        for (const Index position : positions) {
            out.push_back(tokens[static_cast<std::size_t>(sample * sequence + position)]);
        }
    }
    return out;
}

std::vector<Index> RowShare::own_places(Index sequence, Index first_sample) const {
    std::vector<Index> out;
    out.reserve(static_cast<std::size_t>(own));
    for (Index row = first; row < first + own; ++row) {
        const Index sample = first_sample + row / length();
        out.push_back(sample * sequence + positions[static_cast<std::size_t>(row % length())]);
    }
    return out;
}

sim::Result<RowShare> row_share(const RankShare& share, Index sequence, Index micro_batch) {
    const auto refuse = [&](const char* by, Index parts) {
        return sim::Error{sim::ErrorCode::bad_input, "options/sequence",
                          std::string(by) + " cuts a sequence into " + std::to_string(parts) +
                              " parts, into which " + std::to_string(sequence) +
                              " tokens do not go",
                          "use a multiple of " + std::to_string(parts)};
    };
    const bool halves = share.cp.parts > 1 && share.cp_kind != sim::CpKind::all_to_all;
    const Index pieces = share.cp.parts * (halves ? 2 : 1);
    if (sequence % pieces != 0) return refuse("cp", pieces);
    RowShare rows;
    rows.pieces = pieces_of(sequence, share.cp, share.cp_kind);
    for (const Piece& piece : rows.pieces) {
        for (Index i = 0; i < piece.length; ++i) {
            rows.positions.push_back(piece.first + i);
        }
    }
    rows.all = micro_batch * rows.length();
    rows.own = rows.all;
    if (!share.sp) return rows;
    if (rows.length() % share.tp.parts != 0) return refuse("sp", share.cp.parts * share.tp.parts);
    rows.own = rows.all / share.tp.parts;
    rows.first = share.tp.part * rows.own;
    return rows;
}

} // namespace shardplan::exec
