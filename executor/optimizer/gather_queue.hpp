#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Does work one after another on a thread of its own. One caller.
class GatherQueue {
public:
    GatherQueue();
    /// Waits for everything.
    ~GatherQueue();
    GatherQueue(const GatherQueue&) = delete;
    GatherQueue& operator=(const GatherQueue&) = delete;

    /// Returns a ticket to wait for.
    std::uint64_t add(std::function<sim::Status()> work);
    /// Until that and all before it are done. The first error of any, also from earlier calls;
    /// after it nothing more is done.
    sim::Status wait(std::uint64_t ticket);
    sim::Status wait_for_all() { return wait(added_); }

private:
    void serve();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<sim::Status()>> work_;
    std::uint64_t added_ = 0;
    std::uint64_t done_ = 0;
    std::optional<sim::Error> failed_;
    bool stop_ = false;
    std::jthread thread_;
};

} // namespace shardplan::exec
