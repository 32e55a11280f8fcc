#include "executor/model/rows.hpp"

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using namespace exec;

RankShare cut(Index tp, Index cp, Index rank, sim::CpKind kind, bool sp) {
    RankShare share;
    share.tp = {rank % tp, tp};
    share.cp = {rank / tp, cp};
    share.cp_kind = kind;
    share.sp = sp;
    return share;
}

TEST(RowShare, OfARingHasAPieceFromTheFrontAndOneFromTheBack) {
    const auto rows = row_share(cut(1, 2, 1, sim::CpKind::ring, false), 8, 2);
    EXPECT_EQ(rows->pieces, (std::vector<Piece>{{2, 2}, {4, 2}}));
    EXPECT_EQ(rows->all, 8);
    std::vector<Token> tokens(16);
    for (Token i = 0; i < 16; ++i)
        tokens[static_cast<std::size_t>(i)] = i;
    EXPECT_EQ(rows->pick(tokens, 8), (std::vector<Token>{2, 3, 4, 5, 10, 11, 12, 13}));
}

TEST(RowShare, OfExchangedHeadsHasConsecutiveTokens) {
    const auto rows = row_share(cut(1, 2, 1, sim::CpKind::all_to_all, false), 6, 1);
    EXPECT_EQ(rows->pieces, (std::vector<Piece>{{3, 3}}));
}

TEST(RowShare, EachCausalPairOfARingIsSeenByAsManyQueriesOnEveryRank) {
    for (const Index cp : {2, 3, 4}) {
        for (Index rank = 0; rank < cp; ++rank) {
            const auto rows = row_share(cut(1, cp, rank, sim::CpKind::ring, false), 12 * cp, 1);
            Index pairs = 0;
            for (const Index position : rows->positions)
                pairs += position + 1;
            EXPECT_EQ(pairs, 12 * cp * (12 * cp + 1) / 2 / cp);
        }
    }
}

TEST(RowShare, WithSequenceParallelismTensorRanksSplitTheRows) {
    const auto rows = row_share(cut(2, 2, 3, sim::CpKind::ring, true), 8, 3);
    EXPECT_EQ(rows->all, 12);
    EXPECT_EQ(rows->own, 6);
    EXPECT_EQ(rows->first, 6);
}

TEST(RowShare, RefusesSequencesThatDoNotGoIntoTheParts) {
    const auto cp = row_share(cut(1, 2, 0, sim::CpKind::ring, false), 6, 1);
    ASSERT_FALSE(cp);
    EXPECT_EQ(cp.error().where, "options/sequence");
    EXPECT_EQ(cp.error().hint, "use a multiple of 4");
    const auto sp = row_share(cut(4, 2, 0, sim::CpKind::all_to_all, true), 12, 1);
    ASSERT_FALSE(sp);
    EXPECT_EQ(sp.error().hint, "use a multiple of 8");
}

TEST(RowShare, OfAllRanksTogetherIsEveryTokenOnce) {
    for (const sim::CpKind kind :
         {sim::CpKind::ring, sim::CpKind::all_to_all, sim::CpKind::all_gather}) {
        std::vector<int> seen(12);
        for (Index rank = 0; rank < 3; ++rank) {
            const auto rows = row_share(cut(1, 3, rank, kind, false), 12, 1);
            for (const Index position : rows->positions)
                seen[static_cast<std::size_t>(position)] += 1;
        }
        EXPECT_EQ(seen, std::vector<int>(12, 1));
    }
}

} // namespace
} // namespace shardplan::test
