#include "simulator/spec/placement.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

using namespace shardplan::test;
using Counts = std::vector<std::int64_t>;

Layout read(std::string_view text, LayoutTables& tables) {
    const auto parsed = parse_layout(text, "test", tables);
    EXPECT_TRUE(parsed.has_value()) << text;
    return parsed ? parsed->layout : Layout{};
}

/// Blocks per stage, all chunks together.
Counts blocks(const std::vector<Stage>& stages) {
    Counts out;
    for (const Stage& stage : stages) {
        std::int64_t sum = 0;
        for (const Stage::Slice& slice : stage.chunks) {
            sum += slice.count;
        }
        out.push_back(sum);
    }
    return out;
}

Counts blocks_of(std::int64_t layers, std::string_view text,
                 StagePartition partition = StagePartition::even) {
    LayoutTables tables;
    const Layout layout = read(text, tables);
    return blocks(stages_of(small_model(layers, 8, 8, 32000), layout, tables, partition));
}

TEST(Placement, EvenStagesAreLongerInTheMiddle) {
    EXPECT_EQ(blocks_of(32, "pp4"), (Counts{8, 8, 8, 8}));
    EXPECT_EQ(blocks_of(30, "pp4"), (Counts{7, 8, 8, 7}));
    EXPECT_EQ(blocks_of(33, "pp4"), (Counts{8, 9, 8, 8}));
    EXPECT_EQ(blocks_of(46, "pp4,stages=11-12-12-11"), (Counts{11, 12, 12, 11}));
}

TEST(Placement, StacksThatCountItemsLeaveFewerBlocksBesideEmbeddingAndHead) {
    // 1 + 32 + 2 items over 4 stages: 9, 9, 9, 8 items; embedding, final norm and head are no
    // blocks.
    EXPECT_EQ(blocks_of(32, "pp4", StagePartition::items), (Counts{8, 9, 9, 6}));
}

TEST(Placement, StacksThatCutByCostLeaveFewerBlocksBesideTheHead) {
    // hidden 512, ffn 2048: a block has 4 x 512^2 + 3 x 512 x 2048 matrix elements and norms, about
    // 4.2e6; the head of 32000 x 512 weighs 3.9 blocks. 19.9 blocks over 4 stages: 5, 5, 5 and 1.
    EXPECT_EQ(blocks_of(16, "pp4", StagePartition::cost), (Counts{5, 5, 5, 1}));
}

TEST(Placement, InterleavedStagesTakeEveryPpThSliceOfTheModel) {
    LayoutTables tables;
    const Layout layout = read("pp4,v2", tables);
    const std::vector<Stage> stages = stages_of(small_model(16, 8, 8), layout, tables);
    EXPECT_EQ(stages[0].chunks, (std::vector<Stage::Slice>{{0, 2}, {8, 2}}));
    EXPECT_EQ(stages[3].chunks, (std::vector<Stage::Slice>{{6, 2}, {14, 2}}));
    EXPECT_TRUE(stages[0].has_embedding);
    EXPECT_FALSE(stages[0].has_head);
    EXPECT_TRUE(stages[3].has_head);
    EXPECT_FALSE(stages[3].has_embedding);
}

TEST(Placement, ZbvFoldsTheModelSoThatOneStageHoldsBothEnds) {
    LayoutTables tables;
    const Layout layout = read("pp4,v2,sched=zb-v", tables);
    const std::vector<Stage> stages = stages_of(small_model(16, 8, 8), layout, tables);
    EXPECT_EQ(stages[0].chunks, (std::vector<Stage::Slice>{{0, 2}, {14, 2}}));
    EXPECT_EQ(stages[3].chunks, (std::vector<Stage::Slice>{{6, 2}, {8, 2}}));
    EXPECT_TRUE(stages[0].has_embedding && stages[0].has_head);
    EXPECT_FALSE(stages[3].has_embedding || stages[3].has_head);
}

TEST(Placement, DualPipeHoldsEverySliceTwice) {
    LayoutTables tables;
    const Layout layout = read("pp4,v2,sched=dualpipe", tables);
    const std::vector<Stage> stages = stages_of(small_model(16, 8, 8), layout, tables);
    EXPECT_EQ(stages[0].chunks, (std::vector<Stage::Slice>{{0, 4}, {12, 4}}));
    EXPECT_EQ(stages[3].chunks, (std::vector<Stage::Slice>{{12, 4}, {0, 4}}));
    EXPECT_EQ(blocks(stages), (Counts{8, 8, 8, 8}));
    EXPECT_TRUE(stages[3].has_embedding && stages[3].has_head);
}

TEST(Placement, SlicesOfAnyCutCoverTheModelInOrder) {
    for (const StagePartition partition :
         {StagePartition::even, StagePartition::items, StagePartition::cost}) {
        for (std::int64_t layers = 8; layers < 40; ++layers) {
            for (const std::string_view text : {"pp2", "pp4,v2", "pp8", "pp3,v2,sched=zb-v"}) {
                LayoutTables tables;
                const Layout layout = read(text, tables);
                std::vector<Stage::Slice> slices;
                for (const Stage& stage :
                     stages_of(small_model(layers, 8, 8), layout, tables, partition)) {
                    slices.insert(slices.end(), stage.chunks.begin(), stage.chunks.end());
                }
                std::sort(slices.begin(), slices.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; });
                std::int64_t next = 0;
                for (const Stage::Slice& slice : slices) {
                    ASSERT_EQ(slice.first, next) << layers << " " << text;
                    ASSERT_GE(slice.count, 1) << layers << " " << text;
                    next += slice.count;
                }
                ASSERT_EQ(next, layers) << text;
            }
        }
    }
}

TEST(Placement, NeighboursFollowTheRankOrder) {
    LayoutTables tables;
    const Layout usual = read("tp8,cp2,dp4,pp4", tables);
    EXPECT_EQ(rank_stride(usual, Dim::tp), 1);
    EXPECT_EQ(rank_stride(usual, Dim::cp), 8);
    EXPECT_EQ(rank_stride(usual, Dim::dp), 16);
    EXPECT_EQ(rank_stride(usual, Dim::pp), 64);
    const Layout pp_inside = read("tp8,cp2,dp4,pp4,order=tp-cp-ep-pp-dp", tables);
    EXPECT_EQ(rank_stride(pp_inside, Dim::pp), 16);
    EXPECT_EQ(rank_stride(pp_inside, Dim::dp), 64);
}

TEST(Placement, ExpertGroupsAreCutFromTheRanksOfOneStageAnew) {
    LayoutTables tables;
    EXPECT_EQ(rank_stride(read("tp8,dp8,ep8", tables), Dim::ep), 8);
    EXPECT_EQ(rank_stride(read("tp8,dp8,ep8,etp1", tables), Dim::ep), 1);
    // 64 ranks, etp 1, ep 8: experts are held 8 times, and those copies are neighbours here.
    EXPECT_EQ(rank_stride(read("tp8,dp8,ep8,etp1,order=tp-cp-dp-ep-pp", tables), Dim::ep), 8);
}

TEST(Placement, RanksAndCoordinatesAreTwoNamesOfOneThing) {
    LayoutTables tables;
    for (const std::string_view order : {"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "cp-pp-tp-ep-dp"}) {
        const Layout layout = read("tp2,cp3,dp4,pp5,order=" + std::string(order), tables);
        for (std::int64_t rank = 0; rank < 120; ++rank) {
            const Coordinates at = coordinates_of(layout, rank);
            ASSERT_LT(at.tp, 2);
            ASSERT_LT(at.cp, 3);
            ASSERT_LT(at.dp, 4);
            ASSERT_LT(at.pp, 5);
            ASSERT_EQ(rank_of(layout, at), rank) << order;
        }
    }
}

TEST(Placement, OneKindOfNodeGivesOneClassPerStage) {
    LayoutTables tables;
    const Scenario given = scenario(llama_3_8b(), dgx_h100(8), job(8192, 64));
    const Placement placed = place(given, read("tp8,pp4,dp2", tables), tables);
    EXPECT_EQ(placed.classes, (std::vector<RankClass>{
                                  {0, 0, 16, 0}, {1, 0, 16, 16}, {2, 0, 16, 32}, {3, 0, 16, 48}}));
    EXPECT_EQ(placed.devices_per_node, 8);
    EXPECT_EQ(placed.nodes, 8);
}

TEST(Placement, KindsOfNodesSplitAStageIntoClasses) {
    LayoutTables tables;
    Scenario given = scenario(llama_3_8b(), dgx_h100(3), job(8192, 64));
    NodeGroup other = given.cluster.node_groups[0];
    other.count = 1;
    given.cluster.node_groups.push_back(other);
    // 32 ranks, stage 1 = ranks 16 to 31, the second node group holds ranks 24 to 31.
    const Placement placed = place(given, read("tp8,pp2,dp2", tables), tables);
    EXPECT_EQ(placed.classes,
              (std::vector<RankClass>{{0, 0, 16, 0}, {1, 0, 8, 16}, {1, 1, 8, 24}}));
    // With pp innermost every second rank is of stage 1.
    const Placement mixed = place(given, read("tp8,pp2,dp2,order=pp-tp-cp-ep-dp", tables), tables);
    EXPECT_EQ(mixed.classes,
              (std::vector<RankClass>{{0, 0, 12, 0}, {0, 1, 4, 24}, {1, 0, 12, 1}, {1, 1, 4, 25}}));
}

TEST(Placement, CountsTheKindsOfBlocksInASlice) {
    Part part;
    part.runs = {{0, 3}, {1, 2}, {0, 1}, {0, 2}};
    EXPECT_EQ(kinds_in(part, {0, 8}), (std::vector<KindCount>{{0, 3}, {1, 2}, {0, 3}}));
    EXPECT_EQ(kinds_in(part, {2, 2}), (std::vector<KindCount>{{0, 1}, {1, 1}}));
    EXPECT_EQ(kinds_in(part, {5, 3}), (std::vector<KindCount>{{0, 3}}));
    EXPECT_TRUE(kinds_in(part, {4, 0}).empty());
}

} // namespace
} // namespace shardplan::sim
