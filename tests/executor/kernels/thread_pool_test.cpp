#include "executor/kernels/thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using exec::ThreadPool;

TEST(ThreadPool, DoesEveryPartOnceHoweverManyThreadsThereAre) {
    for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (std::int64_t parts = 0; parts < 40; ++parts) {
            std::vector<std::atomic<int>> done(static_cast<std::size_t>(parts));
            pool.run(parts, [&](std::int64_t part) { ++done[static_cast<std::size_t>(part)]; });
            for (const std::atomic<int>& times : done)
                ASSERT_EQ(times.load(), 1);
        }
    }
}

TEST(ThreadPool, SplitsIntoRangesWithBordersAtWholeSteps) {
    ThreadPool pool(3);
    constexpr std::int64_t dear = 1 << 20;
    for (const std::int64_t count : {0, 1, 7, 64, 100}) {
        std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
        std::atomic<int> calls{0};
        pool.ranges(count, 8, dear, [&](std::int64_t begin, std::int64_t end) {
            EXPECT_EQ(begin % 8, 0);
            EXPECT_TRUE(end % 8 == 0 || end == count);
            ++calls;
            for (std::int64_t i = begin; i < end; ++i)
                ++done[static_cast<std::size_t>(i)];
        });
        for (const std::atomic<int>& times : done)
            EXPECT_EQ(times.load(), 1);
        EXPECT_EQ(calls.load(), count == 0 ? 0 : count <= 8 ? 1 : 3);
    }
}

TEST(ThreadPool, WakesNobodyForLittleWork) {
    ThreadPool pool(4);
    int calls = 0; // touched by this thread alone
    pool.ranges(1000, 1, 1000, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(end - begin, 1000);
        ++calls;
    });
    EXPECT_EQ(calls, 1);
}

/// A worker that looked for work would take the processor from the thread that has some.
TEST(ThreadPool, LooksForWorkOnlyWhileEveryThreadHasAProcessor) {
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    ThreadPool one(1);
    EXPECT_TRUE(ThreadPool::have_processors());
    {
        ThreadPool more(processors);
        EXPECT_FALSE(ThreadPool::have_processors());
    }
    EXPECT_TRUE(ThreadPool::have_processors());
    ThreadPool::share_machine(processors + 1);
    EXPECT_FALSE(ThreadPool::have_processors());
    ThreadPool::share_machine(1);
    EXPECT_TRUE(ThreadPool::have_processors());
}

/// Operators in quick succession, and after a pause in which workers have gone to sleep.
TEST(ThreadPool, FindsItsWorkersAwakeOrAsleep) {
    ThreadPool pool(2);
    std::int64_t sum = 0;
    for (int round = 0; round < 300; ++round) {
        std::atomic<std::int64_t> found{0};
        pool.run(5, [&](std::int64_t part) { found += part; });
        ASSERT_EQ(found.load(), 10);
        sum += found;
        if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(sum, 3000);
}

} // namespace
} // namespace shardplan::test
