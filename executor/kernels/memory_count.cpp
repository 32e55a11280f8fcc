#include "executor/kernels/memory_count.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace shardplan::exec {

namespace {

std::int64_t total(const MemoryCount::ByKind& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

} // namespace

void MemoryCount::note() {
    ByKind& peak = peaks_[static_cast<std::size_t>(phase_)];
    const std::int64_t all = held();
    most_ = std::max(most_, all);
    if (all > total(peak)) peak = now_;
}

std::int64_t MemoryCount::held() const { return total(now_); }

std::int64_t MemoryCount::take_most() { return std::exchange(most_, held()); }

void MemoryCount::add(sim::TensorKind kind, std::int64_t bytes) {
    now_[index(kind)] += bytes;
    note();
}

void MemoryCount::add_off_device(sim::Tier tier, std::int64_t bytes) {
    off_device_[static_cast<std::size_t>(tier)] += bytes;
}

void MemoryCount::enter(sim::Phase phase) {
    phase_ = phase;
    note();
}

sim::Phase MemoryCount::peak_phase() const {
    std::size_t most = 0;
    for (std::size_t p = 1; p < peaks_.size(); ++p) {
        if (total(peaks_[p]) > total(peaks_[most])) most = p;
    }
    return static_cast<sim::Phase>(most);
}

void MemoryCount::restart_peaks() {
    peaks_ = {};
    note();
}

} // namespace shardplan::exec
