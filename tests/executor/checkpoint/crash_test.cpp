#include <chrono>
#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/executor/checkpoint/states.hpp"

namespace shardplan::test {
namespace {

constexpr Split saver_split = Split::flat;
constexpr int savers = 3;

/// Saves one generation after another and tells each through the pipe, until it is killed.
[[noreturn]] void save_for_ever(const std::string& folder, std::uint64_t first, int pipe) {
    for (std::uint64_t generation = first;; ++generation) {
        if (!save_state(folder, saver_split, savers, generation, {.keep_last = 1}) ||
            ::write(pipe, &generation, sizeof generation) != sizeof generation) {
            ::_exit(1);
        }
    }
}

/// What was told through a pipe last; `before` if nothing was.
std::uint64_t last_told(int pipe, std::uint64_t before) {
    std::uint64_t generation = before;
    while (::read(pipe, &generation, sizeof generation) == sizeof generation) {
    }
    return generation;
}

/// Whether a process writes into a folder of its own, or did until it was killed.
bool is_at_work(const std::string& folder, pid_t process) {
    const std::string end = "-" + std::to_string(process);
    std::error_code failed; // a folder that vanishes while it is looked at
    for (auto at = std::filesystem::directory_iterator(folder, failed);
         !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
        const std::string name = at->path().filename();
        if (name.rfind(".saving-", 0) == 0 && name.size() > end.size() &&
            name.compare(name.size() - end.size(), end.size(), end) == 0) {
            return true;
        }
    }
    return false;
}

TEST(CheckpointCrash, AtAnyOfFiftyInstantsLeavesACheckpointWhole) {
    using Clock = std::chrono::steady_clock;
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), saver_split, savers, 1));
    std::mt19937 random(50); // NOLINT: instants differ by what the machine does anyway
    std::uint64_t last = 1;
    int at_work = 0; // killed between two answers
    for (int crash = 0; crash < 50; ++crash) {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        const auto forked = Clock::now();
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            ::close(ends[0]);
            save_for_ever(folder.path(), last + 1, ends[1]);
        }
        ::close(ends[1]);
        // Half of the children die a while after their first save, at work or between two; half a
        // moment after the files of a save have a folder, 30 us to 50 ms, however fast the disk.
        if (crash % 2 == 1) {
            ASSERT_EQ(::read(ends[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
            const auto one_save = Clock::now() - forked;
            std::this_thread::sleep_for(one_save * (random() % 1200) / 1000);
        } else {
            while (!is_at_work(folder.path(), child)) {
                ASSERT_LT(Clock::now() - forked, std::chrono::minutes(1));
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
            const double share = static_cast<double>(random() % 1000) / 1000;
            std::this_thread::sleep_for(
                std::chrono::duration<double>(30e-6 * std::pow(50e-3 / 30e-6, share)));
        }
        ::kill(child, SIGKILL);
        int ended = 0;
        ASSERT_EQ(::waitpid(child, &ended, 0), child);
        ASSERT_TRUE(WIFSIGNALED(ended)) << "it ended by itself: a save failed, crash " << crash;
        last = last_told(ends[0], last);
        ::close(ends[0]);
        // The one that was told last, or the one that was not told any more.
        const auto meta = exec::read_checkpoint_meta(folder.path());
        ASSERT_TRUE(meta) << to_text(meta.error());
        const auto found = static_cast<std::uint64_t>(meta->step);
        ASSERT_TRUE(found == last || found == last + 1) << found << " after " << last;
        const auto loaded = load_state(folder.path(), Split::columns, 2, found);
        ASSERT_TRUE(loaded) << to_text(loaded.error());
        at_work += is_at_work(folder.path(), child) ? 1 : 0;
        last = found;
    }
    EXPECT_GT(at_work, 10);
    EXPECT_GE(last, 25U);
}

} // namespace
} // namespace shardplan::test
