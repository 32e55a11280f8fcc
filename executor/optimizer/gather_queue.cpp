#include "executor/optimizer/gather_queue.hpp"

#include <utility>

namespace shardplan::exec {

GatherQueue::GatherQueue() : thread_([this] { serve(); }) {}

GatherQueue::~GatherQueue() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
}

std::uint64_t GatherQueue::add(std::function<sim::Status()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
    return ++added_;
}

sim::Status GatherQueue::wait(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
    if (failed_) return *failed_;
    return sim::Done{};
}

void GatherQueue::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
        if (work_.empty()) return;
        const std::function<sim::Status()> work = std::move(work_.front());
        work_.pop_front();
        if (!failed_) {
            lock.unlock();
            sim::Status status = work();
            lock.lock();
            if (!status) failed_ = std::move(status).error();
        }
        ++done_;
        changed_.notify_all();
    }
}

} // namespace shardplan::exec
