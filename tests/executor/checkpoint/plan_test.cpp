#include "executor/checkpoint/plan.hpp"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using exec::Box;
using exec::Index;
using exec::PartLayout;
using exec::RankLayout;
using exec::SavePlan;
using exec::Scalar;

RankLayout holds(const std::string& name, std::vector<Index> shape, std::vector<Box> boxes) {
    return {{{name, Scalar::fp32, std::move(shape), std::move(boxes)}}};
}

/// Rank, file and box of each piece.
std::vector<std::string> texts(const SavePlan& plan) {
    std::vector<std::string> out;
    for (const auto& piece : plan.pieces) {
        out.push_back(std::to_string(piece.rank) + "/" + std::to_string(piece.file) + " " +
                      plan.tensors[piece.tensor].name + to_text(piece.box));
    }
    return out;
}

std::vector<std::string> plan_of(const std::vector<RankLayout>& ranks) {
    const auto plan = exec::plan_save(ranks);
    EXPECT_TRUE(plan) << to_text(plan.error());
    return texts(*plan);
}

std::string refusal(const std::vector<RankLayout>& ranks) {
    const auto plan = exec::plan_save(ranks);
    return plan ? "success" : to_text(plan.error());
}

TEST(SavePlan, GivesWhatSeveralHoldToOneOfThemAndTheRestToItsHolder) {
    const Box upper{{0, 0}, {2, 3}};
    const Box lower{{2, 0}, {2, 3}};
    EXPECT_EQ(plan_of({holds("w", {4, 3}, {upper}), holds("w", {4, 3}, {lower})}),
              (std::vector<std::string>{"0/0 w[0:2, 0:3]", "1/0 w[2:4, 0:3]"}));
    // Two replicas of two shards: rank 2, which has nothing, leaves rank 0 its half.
    EXPECT_EQ(plan_of({holds("w", {4, 3}, {upper}), holds("w", {4, 3}, {lower}),
                       holds("w", {4, 3}, {upper}), holds("w", {4, 3}, {lower})}),
              (std::vector<std::string>{"0/0 w[0:2, 0:3]", "1/0 w[2:4, 0:3]"}));
}

TEST(SavePlan, CutsWhatOverlaps) {
    // The middle rows are held twice: by the rank whose box comes first they are written.
    EXPECT_EQ(plan_of({holds("w", {6}, {{{0}, {4}}}), holds("w", {6}, {{{2}, {4}}})}),
              (std::vector<std::string>{"0/0 w[0:4]", "1/0 w[4:6]"}));
    // A box inside a larger one is not written again, by its own rank or another.
    EXPECT_EQ(plan_of({holds("w", {6}, {{{1}, {2}}, {{0}, {6}}}), holds("w", {6}, {{{3}, {1}}})}),
              (std::vector<std::string>{"0/0 w[0:6]"}));
}

TEST(SavePlan, PutsBoxesOfOneTensorIntoFilesOfTheirOwn) {
    const auto plan = exec::plan_save(
        {holds("w", {3, 4}, {{{0, 2}, {1, 2}}, {{1, 0}, {2, 4}}, {{0, 0}, {1, 2}}})});
    ASSERT_TRUE(plan);
    EXPECT_EQ(texts(*plan),
              (std::vector<std::string>{"0/0 w[0:1, 0:2]", "0/1 w[0:1, 2:4]", "0/2 w[1:3, 0:4]"}));
    EXPECT_EQ(plan->files, 3);
    EXPECT_EQ(exec::shard_name(1, 2, 3), "shard-00002-model-00003-of-00003.safetensors");
}

TEST(SavePlan, SpreadsReplicasEvenly) {
    // Of tensors of many sizes, the largest more than a rank's share, held by all of four ranks.
    RankLayout all;
    const std::vector<Index> rows = {50000, 1024, 4096, 4096, 4096, 1024, 3072, 3072, 768, 1};
    Index total = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<Index> shape{rows[i], 768};
        all.parts.push_back(
            {"t" + std::to_string(i), Scalar::fp32, shape, {exec::whole_of(shape)}});
        total += rows[i] * 768;
    }
    const auto plan = exec::plan_save({all, all, all, all});
    ASSERT_TRUE(plan);
    std::map<int, Index> load;
    for (const auto& piece : plan->pieces) {
        load[piece.rank] += volume(piece.box);
    }
    for (int rank = 0; rank < 4; ++rank) {
        EXPECT_LT(load[rank], total * 26 / 100) << rank;
    }
    EXPECT_EQ(texts(*plan), texts(*exec::plan_save({all, all, all, all})));
}

TEST(SavePlan, WritesEveryElementOnceWhoeverHoldsIt) {
    std::mt19937 random(5); // NOLINT: the same boxes on every run
    const std::vector<Index> shape{5, 7};
    for (int round = 0; round < 300; ++round) {
        std::vector<RankLayout> ranks(3, holds("w", shape, {}));
        std::vector<int> holders(35, 0); // bit r: rank r
        const auto add = [&](std::size_t rank, const Box& box) {
            ranks[rank].parts[0].boxes.push_back(box);
            for (Index i = 0; i < exec::volume(box); ++i) {
                const Index row = box.first[0] + i / box.extent[1];
                const Index column = box.first[1] + i % box.extent[1];
                holders[static_cast<std::size_t>(row * 7 + column)] |= 1 << rank;
            }
        };
        for (int k = 0; k < 6; ++k) {
            const auto row = static_cast<Index>(random() % 5);
            const auto column = static_cast<Index>(random() % 7);
            add(random() % 3,
                {{row, column},
                 {1 + static_cast<Index>(random() % static_cast<unsigned>(5 - row)),
                  1 + static_cast<Index>(random() % static_cast<unsigned>(7 - column))}});
        }
        const bool covered = std::count(holders.begin(), holders.end(), 0) == 0;
        ASSERT_EQ(exec::plan_save(ranks).has_value(), covered);
        if (!covered) add(random() % 3, exec::whole_of(shape));
        const auto plan = exec::plan_save(ranks);
        ASSERT_TRUE(plan);
        std::vector<int> writes(35, 0);
        for (const auto& piece : plan->pieces) {
            for (Index i = 0; i < exec::volume(piece.box); ++i) {
                const Index row = piece.box.first[0] + i / piece.box.extent[1];
                const Index column = piece.box.first[1] + i % piece.box.extent[1];
                const auto at = static_cast<std::size_t>(row * 7 + column);
                ++writes[at];
                EXPECT_NE(holders[at] & (1 << piece.rank), 0);
            }
            // One box of the rank holds it all.
            const auto& own = ranks[static_cast<std::size_t>(piece.rank)].parts[0].boxes;
            EXPECT_TRUE(std::any_of(own.begin(), own.end(), [&](const Box& box) {
                return exec::contains(box, piece.box);
            }));
        }
        ASSERT_EQ(writes, std::vector<int>(35, 1));
    }
}

TEST(SavePlan, RefusesRanksThatDisagreeAndHoles) {
    const Box half{{0}, {2}};
    EXPECT_EQ(refusal({holds("w", {4}, {half}), holds("w", {5}, {half})}),
              "tensor \"w\": it is [0:4] of fp32 on rank 0 and [0:5] of fp32 on rank 1 (all ranks "
              "state the shape and type of the whole tensor)");
    auto other = holds("w", {4}, {half});
    other.parts[0].scalar = Scalar::bf16;
    EXPECT_EQ(refusal({holds("w", {4}, {half}), other}),
              "tensor \"w\": it is [0:4] of fp32 on rank 0 and [0:4] of bf16 on rank 1 (all ranks "
              "state the shape and type of the whole tensor)");
    EXPECT_EQ(refusal({holds("w", {4}, {half}), holds("v", {2}, {half})}),
              "tensor \"w\": no rank holds its elements [2:4] (the boxes of all ranks together "
              "cover the whole tensor)");
    EXPECT_EQ(refusal({holds("w", {4}, {})}),
              "tensor \"w\": no rank holds its elements [0:4] (the boxes of all ranks together "
              "cover the whole tensor)");
}

TEST(SavePlan, LayoutsPassFromRankToRank) {
    const RankLayout layout = {{{"a \"b\"", Scalar::bf16, {3, 4}, {{{0, 1}, {3, 2}}, {{}, {}}}},
                                {"scalar", Scalar::int64, {}, {{{}, {}}}}}};
    const auto read = exec::read_layout(exec::write_layout(layout));
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(read->parts, layout.parts);
}

} // namespace
} // namespace shardplan::test
