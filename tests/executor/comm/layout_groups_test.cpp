#include "executor/comm/layout_groups.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/spec/placement.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using exec::Communicator;
using exec::group_members;
using exec::LayoutGroups;
using exec::ReduceOp;
using exec::Status;
using sim::Done;
using sim::Group;
using sim::Layout;

Layout layout_of(const char* text) {
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(text, "test", tables);
    EXPECT_TRUE(parsed) << text;
    return parsed->layout;
}

const std::vector<const char*> texts = {
    "tp2,dp4,mb1",
    "tp2,pp2,dp3,mb1",
    "tp2,cp2,pp2,dp2,mb1,zero3:2",
    "tp2,cp2,pp2,dp2,mb1,order=tp-cp-ep-pp-dp",
    "tp2,pp2,dp4,ep4,etp1,mb1",
    "tp2,pp2,dp4,ep4,etp1,mb1,order=pp-tp-dp-ep-cp",
    "tp2,pp2,dp4,ep2,mb1,order=tp-pp-dp-cp-ep",
    "dp8,mb1,zero3:4",
};

std::vector<Group> all_groups() {
    std::vector<Group> groups;
    for (std::size_t i = 0; i < sim::group_count; ++i) {
        groups.push_back(static_cast<Group>(i));
    }
    return groups;
}

TEST(LayoutGroups, OfOneKindCutTheRanksIntoPartsOfTheSizeThatIsPriced) {
    for (const char* text : texts) {
        const Layout layout = layout_of(text);
        const auto ranks = static_cast<int>(sim::rank_count(layout));
        for (const Group group : all_groups()) {
            std::size_t size = 1;
            for (const auto& run : sim::ranks_of(layout, group)) {
                size *= static_cast<std::size_t>(run.size);
            }
            for (int rank = 0; rank < ranks; ++rank) {
                const auto members = group_members(layout, group, rank);
                EXPECT_EQ(std::set<int>(members.begin(), members.end()).size(), size) << text;
                EXPECT_TRUE(std::binary_search(members.begin(), members.end(), rank)) << text;
                EXPECT_TRUE(members.front() >= 0 && members.back() < ranks) << text;
                for (const int member : members) {
                    EXPECT_EQ(group_members(layout, group, member), members) << text;
                }
            }
        }
    }
}

TEST(LayoutGroups, AlongADimensionDifferInItsCoordinateAlone) {
    for (const char* text : texts) {
        const Layout layout = layout_of(text);
        for (int rank = 0; rank < sim::rank_count(layout); ++rank) {
            const auto without = [&](int member, Group group) {
                sim::Coordinates at = sim::coordinates_of(layout, member);
                if (group == Group::tp) at.tp = 0;
                if (group == Group::cp) at.cp = 0;
                if (group == Group::pp) at.pp = 0;
                if (group == Group::dp) at.dp = 0;
                return at;
            };
            for (const Group group : {Group::tp, Group::cp, Group::pp, Group::dp}) {
                for (const int member : group_members(layout, group, rank)) {
                    EXPECT_EQ(without(member, group), without(rank, group)) << text;
                }
            }
        }
    }
}

TEST(LayoutGroups, OfShardAndReplicaTogetherAreThoseOfDataParallelism) {
    const Layout layout = layout_of("tp2,cp2,pp2,dp4,mb1,zero3:4");
    for (int rank = 0; rank < sim::rank_count(layout); ++rank) {
        std::vector<int> reached;
        for (const int copy : group_members(layout, Group::replica, rank)) {
            const auto shard = group_members(layout, Group::shard, copy);
            reached.insert(reached.end(), shard.begin(), shard.end());
        }
        std::sort(reached.begin(), reached.end());
        EXPECT_EQ(reached, group_members(layout, Group::dp_cp, rank));
    }
}

TEST(LayoutGroups, JoinTheRanksTheyNameUnderTheNameOfTheGroup) {
    for (const char* text : {"tp2,pp2,dp2,mb1", "tp2,dp4,ep4,etp1,mb1,zero3:2"}) {
        const Layout layout = layout_of(text);
        const auto outcome = exec::run_ranks(
            static_cast<int>(sim::rank_count(layout)), [&](Communicator& all) -> Status {
                auto made = LayoutGroups::make(all, layout);
                if (!made) return made.error();
                for (const Group group : all_groups()) {
                    Communicator& part = (*made)[group];
                    EXPECT_EQ(part.name(), sim::name_of(group));
                    const auto members = group_members(layout, group, all.rank());
                    EXPECT_EQ(part.world_ranks(), members);
                    std::vector<std::int64_t> bits = {1LL << all.rank()};
                    Status status = part.all_reduce(exec::view(bits), ReduceOp::sum);
                    if (!status) return status;
                    std::int64_t expected = 0;
                    for (const int member : members) {
                        expected |= 1LL << member;
                    }
                    EXPECT_EQ(bits[0], expected);
                }
                return Done{};
            });
        EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
    }
}

TEST(LayoutGroups, AreRefusedForAnotherNumberOfRanks) {
    const auto outcome = exec::run_ranks(3, [](Communicator& all) -> Status {
        auto made = LayoutGroups::make(all, layout_of("tp2,dp2,mb1"));
        return made ? Status(Done{}) : Status(made.error());
    });
    ASSERT_FALSE(outcome.status());
    EXPECT_EQ(outcome.status().error().what, "the layout has 4 ranks, the run 3");
}

TEST(Traffic, OfRingsIsWhatTheSimulatorPrices) {
    const Layout layout = layout_of("tp4,dp2,mb1");
    const sim::Scenario scenario =
        test::scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), generic_stack());
    for (const Group group : {Group::tp, Group::dp}) {
        const sim::GroupPath path = path_of(scenario, layout, group);
        const std::int64_t count = 64 * path.ranks;
        const auto outcome = exec::run_ranks(8, [&](Communicator& all) -> Status {
            if (Status s = all.set_choice({.algorithm = sim::Algorithm::ring}); !s) return s;
            auto made = LayoutGroups::make(all, layout);
            if (!made) return made.error();
            Communicator& part = (*made)[group];
            std::vector<float> whole(static_cast<std::size_t>(count));
            std::vector<float> own(static_cast<std::size_t>(count / path.ranks));
            const double bytes = static_cast<double>(count) * sizeof(float);
            std::int64_t before = 0;
            const auto expect_sent = [&](sim::Collective op) {
                const sim::Bytes priced = sent_per_rank(path, op, sim::Bytes(bytes));
                EXPECT_EQ(static_cast<double>(part.traffic().sent - before), priced.value());
                before = part.traffic().sent;
                EXPECT_EQ(part.traffic().received, before);
            };
            if (Status s = part.all_reduce(exec::view(whole), ReduceOp::sum); !s) return s;
            expect_sent(sim::Collective::all_reduce);
            if (Status s = part.all_gather(exec::const_view(own), exec::view(whole)); !s) return s;
            expect_sent(sim::Collective::all_gather);
            Status s = part.reduce_scatter(exec::const_view(whole), exec::view(own), ReduceOp::sum);
            if (!s) return s;
            expect_sent(sim::Collective::reduce_scatter);
            std::vector<float> other(whole.size());
            s = part.all_to_all(exec::const_view(whole), exec::view(other));
            if (!s) return s;
            expect_sent(sim::Collective::all_to_all);
            return Done{};
        });
        EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
    }
}

} // namespace
} // namespace shardplan::test
