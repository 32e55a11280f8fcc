#include "executor/kernels/thread_pool.hpp"

#include <algorithm>
#include <chrono>

namespace shardplan::exec {

namespace {

/// Element operations below which another thread costs more than it saves: some 5 us of work on
/// values in a cache.
constexpr std::int64_t worth_waking = 1 << 17;
/// How long to look for work before sleeping: what it takes to wake a thread of a virtual machine.
constexpr std::chrono::microseconds looking{100};

std::atomic<int> threads_of_pools = 0;
std::atomic<int> processes_here = 1;

} // namespace

void ThreadPool::share_machine(int processes) { processes_here = std::max(1, processes); }

bool ThreadPool::have_processors() {
    static const int processors = static_cast<int>(std::thread::hardware_concurrency());
    return threads_of_pools * processes_here <= processors;
}

template <class Ready>
void ThreadPool::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& signal,
                      const Ready& ready) {
    using Clock = std::chrono::steady_clock;
    if (have_processors() && !ready()) {
        lock.unlock();
        const Clock::time_point end = Clock::now() + looking;
        while (!ready() && Clock::now() < end) {
            std::this_thread::yield();
        }
        lock.lock();
    }
    signal.wait(lock, ready);
}

ThreadPool::ThreadPool(int threads) {
    threads_of_pools += std::max(1, threads);
    for (int i = 1; i < threads; ++i) {
        workers_.emplace_back([this] { serve(); });
    }
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    threads_of_pools -= this->threads();
}

void ThreadPool::take_parts(std::unique_lock<std::mutex>& lock) {
    while (next_ < parts_) {
        const std::int64_t part = next_++;
        ++running_;
        const auto* work = work_;
        lock.unlock();
        (*work)(part);
        lock.lock();
        --running_;
    }
}

void ThreadPool::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        wait(lock, wake_, [this] { return stop_ || next_ < parts_; });
        if (stop_) return;
        take_parts(lock);
        if (running_ == 0) done_.notify_one();
    }
}

void ThreadPool::run(std::int64_t parts, const std::function<void(std::int64_t)>& work) {
    if (parts <= 1 || workers_.empty()) {
        for (std::int64_t part = 0; part < parts; ++part) {
            work(part);
        }
        return;
    }
    std::unique_lock lock(mutex_);
    work_ = &work;
    next_ = 0;
    parts_ = parts;
    wake_.notify_all();
    take_parts(lock);
    wait(lock, done_, [this] { return running_ == 0; });
}

void ThreadPool::ranges(std::int64_t count, std::int64_t step, std::int64_t cost,
                        const std::function<void(std::int64_t, std::int64_t)>& work) {
    const std::int64_t steps = (count + step - 1) / step;
    const std::int64_t parts = cost < worth_waking ? 1 : std::min<std::int64_t>(threads(), steps);
    if (parts <= 1) {
        if (count > 0) work(0, count);
        return;
    }
    run(parts, [&](std::int64_t part) {
        const std::int64_t begin = steps * part / parts * step;
        const std::int64_t end = std::min(count, steps * (part + 1) / parts * step);
        if (begin < end) work(begin, end);
    });
}

} // namespace shardplan::exec
