#include "executor/comm/agree.hpp"

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

TEST(Agreement, EveryRankReadsTheTextsOfAll) {
    const auto outcome = run_ranks(3, [](Communicator& world) -> Status {
        const std::string own(static_cast<std::size_t>(world.rank()) * 100'000, 'x');
        const auto texts = gather_texts(world, own);
        if (!texts) return texts.error();
        EXPECT_EQ(3U, texts->size());
        for (std::size_t r = 0; r < texts->size(); ++r) {
            EXPECT_EQ(std::string(r * 100'000, 'x'), (*texts)[r]);
        }
        return sim::Done{};
    });
    EXPECT_TRUE(outcome.status());
}

TEST(Agreement, TheErrorOfOneRankIsThatOfAll) {
    const auto outcome = run_ranks(3, [](Communicator& world) -> Status {
        EXPECT_TRUE(agree(world, sim::Done{}));
        const Status own = world.rank() == 0
                               ? Status(sim::Done{})
                               : Status(Error{ErrorCode::bad_input, "here", "a word", "another"});
        const Status of_all = agree(world, own);
        if (of_all) return Error{ErrorCode::bad_input, "agree", "two ranks had an error", ""};
        EXPECT_EQ(of_all.error().where, "rank 1: here");
        return sim::Done{};
    });
    EXPECT_TRUE(outcome.status());
}

} // namespace
} // namespace shardplan::test
