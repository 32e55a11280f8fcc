#pragma once

#include <array>
#include <cstdint>

#include "simulator/estimate/kinds.hpp"

namespace shardplan::exec {

/// What a rank holds, by what it is held for. One thread at a time.
class MemoryCount {
public:
    using ByKind = std::array<std::int64_t, sim::tensor_kind_count>;

    void add(sim::TensorKind kind, std::int64_t bytes);
    void remove(sim::TensorKind kind, std::int64_t bytes) { now_[index(kind)] -= bytes; }
    /// Of what is moved off the device: host or nvme.
    void add_off_device(sim::Tier tier, std::int64_t bytes);
    /// What comes from now on counts into the peak of this phase.
    void enter(sim::Phase phase);

    [[nodiscard]] const ByKind& now() const { return now_; }
    [[nodiscard]] std::int64_t now(sim::TensorKind kind) const { return now_[index(kind)]; }
    /// At the instant of the phase at which most was held since the last `restart_peaks`; all 0 if
    /// the phase has not been entered.
    [[nodiscard]] const ByKind& peak(sim::Phase phase) const {
        return peaks_[static_cast<std::size_t>(phase)];
    }
    /// The phase whose peak is largest.
    [[nodiscard]] sim::Phase peak_phase() const;
    void restart_peaks();
    /// All kinds together: now, and the most since the last call.
    [[nodiscard]] std::int64_t held() const;
    std::int64_t take_most();

    [[nodiscard]] std::int64_t off_device(sim::Tier tier) const {
        return off_device_[static_cast<std::size_t>(tier)];
    }

private:
    static std::size_t index(sim::TensorKind kind) { return static_cast<std::size_t>(kind); }
    void note();

    ByKind now_{};
    std::array<ByKind, sim::phase_count> peaks_{};
    std::array<std::int64_t, sim::tier_count> off_device_{};
    sim::Phase phase_ = sim::Phase::init;
    std::int64_t most_ = 0; ///< since `take_most`
};

} // namespace shardplan::exec
