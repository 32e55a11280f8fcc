#include "simulator/schedule/pass_order.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

std::int64_t most_in_flight(const std::vector<Pass>& passes) {
    std::int64_t alive = 0;
    std::int64_t most = 0;
    for (const Pass& pass : passes) {
        alive += pass.forward ? 1 : -1;
        most = std::max(most, alive);
    }
    return most;
}

TEST(PassOrder, RunsEveryPassOnceAndNoBackwardBeforeItsForward) {
    for (std::size_t k = 0; k < EnumNames<ScheduleKind>::names.size(); ++k) {
        const auto kind = static_cast<ScheduleKind>(k);
        if (kind == ScheduleKind::zb_v || kind == ScheduleKind::dual_pipe) continue; // found
        for (const std::int64_t pp : {1, 2, 3, 4, 8}) {
            for (const std::int64_t chunks : {1, 2, 3}) {
                for (const std::int64_t m : {1, 2, 3, 5, 8, 17}) {
                    for (std::int64_t stage = 0; stage < pp; ++stage) {
                        std::set<std::tuple<std::int64_t, std::int64_t>> forward;
                        std::set<std::tuple<std::int64_t, std::int64_t>> backward;
                        for (const Pass& p : pass_order(kind, pp, stage, chunks, m)) {
                            const auto which = std::make_tuple(p.chunk, p.micro_batch);
                            if (p.forward) {
                                EXPECT_TRUE(forward.insert(which).second);
                            } else {
                                EXPECT_TRUE(forward.count(which) == 1);
                                EXPECT_TRUE(backward.insert(which).second);
                            }
                        }
                        EXPECT_EQ(forward.size(), static_cast<std::size_t>(m * chunks));
                        EXPECT_EQ(backward.size(), forward.size());
                    }
                }
            }
        }
    }
}

TEST(PassOrder, GPipeHoldsEveryMicroBatch) {
    EXPECT_EQ(most_in_flight(pass_order(ScheduleKind::gpipe, 4, 0, 1, 12)), 12);
    EXPECT_EQ(most_in_flight(pass_order(ScheduleKind::gpipe, 4, 3, 1, 12)), 12);
}

TEST(PassOrder, OneForwardOneBackwardHoldsAsManyAsStagesFollow) {
    for (const std::int64_t pp : {1, 2, 4, 8}) {
        for (const std::int64_t m : {1, 2, 4, 16}) {
            for (std::int64_t stage = 0; stage < pp; ++stage) {
                EXPECT_EQ(most_in_flight(pass_order(ScheduleKind::one_f_one_b, pp, stage, 1, m)),
                          std::min(m, pp - stage));
            }
        }
    }
}

// Korthikanti et al. 2022: the first stage holds pp (1 + (pp - 1) / (pp v)) stages' worth of
// layers, so pp v + pp - 1 chunk passes.
TEST(PassOrder, InterleavingHoldsOnePlusPipelineOverChunksMore) {
    for (const std::int64_t pp : {2, 4, 8}) {
        for (const std::int64_t chunks : {2, 4}) {
            const auto passes = pass_order(ScheduleKind::interleaved, pp, 0, chunks, 4 * pp);
            EXPECT_EQ(most_in_flight(passes), pp * chunks + pp - 1);
        }
    }
}

TEST(PassOrder, FewerMicroBatchesShowTheSameLiveSets) {
    for (const std::int64_t pp : {2, 4, 8}) {
        for (const std::int64_t chunks : {1, 2, 4}) {
            for (const std::int64_t m : {5 * pp, 9 * pp, 6 * pp + 1, 7 * pp + pp - 1}) {
                const auto few = representative_micro_batches(ScheduleKind::interleaved, pp, m);
                EXPECT_LT(few, m);
                for (std::int64_t stage = 0; stage < pp; ++stage) {
                    std::map<std::int64_t, std::int64_t> alive;
                    std::set<std::map<std::int64_t, std::int64_t>> seen[2];
                    for (const std::int64_t count : {m, few}) {
                        alive.clear();
                        for (const Pass& p :
                             pass_order(ScheduleKind::interleaved, pp, stage, chunks, count)) {
                            alive[p.chunk] += p.forward ? 1 : -1;
                            seen[count == m ? 0 : 1].insert(alive);
                        }
                    }
                    // every live set of the long run is covered by one of the short run
                    for (const auto& longer : seen[0]) {
                        EXPECT_TRUE(std::any_of(
                            seen[1].begin(), seen[1].end(),
                            [&](auto shorter) {
                                return std::all_of(longer.begin(), longer.end(),
                                                   [&](const auto& item) {
                                                       return shorter[item.first] >= item.second;
                                                   });
                            }))
                            << "pp " << pp << " chunks " << chunks << " m " << m;
                    }
                }
            }
        }
    }
}

} // namespace
} // namespace shardplan::sim
