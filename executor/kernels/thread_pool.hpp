#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shardplan::exec {

/// Workers that share out numbered parts of one operator. Which worker takes which part is left to
/// chance; the parts themselves depend on sizes and the number of threads only, so results do not.
/// Operators follow one another within microseconds, and to wake a thread that sleeps takes up to a
/// hundred: while every thread can have a processor, a worker looks for the next operator for as
/// long before it sleeps. One caller at a time.
class ThreadPool {
public:
    /// `threads` >= 1, the caller's own included.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls `work(part)` for every part in [0, parts), and returns when all are done.
    void run(std::int64_t parts, const std::function<void(std::int64_t)>& work);

    /// Splits [0, count) into one range per thread, borders at multiples of `step`, and calls
    /// `work(begin, end)` for each; in one range if `cost` (element operations in all) is too small
    /// to be worth waking anybody.
    void ranges(std::int64_t count, std::int64_t step, std::int64_t cost,
                const std::function<void(std::int64_t, std::int64_t)>& work);

    /// Processes on this machine that compute at the same time, this one included: 1 unless told.
    static void share_machine(int processes);
    /// Whether the threads of all pools, here and in processes alike, have a processor each.
    static bool have_processors();

private:
    void serve();
    /// Looks for a while where there are processors for it, then sleeps until `ready`.
    template <class Ready>
    static void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& signal,
                     const Ready& ready);
    /// Takes parts until none is left.
    void take_parts(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    const std::function<void(std::int64_t)>* work_ = nullptr;
    // changed under the mutex, looked at without
    std::atomic<std::int64_t> next_ = 0;
    std::atomic<std::int64_t> parts_ = 0;
    std::atomic<std::int64_t> running_ = 0;
    std::atomic<bool> stop_ = false;
    std::vector<std::jthread> workers_;
};

} // namespace shardplan::exec
