#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/estimate/kinds.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/quantity.hpp"

namespace shardplan::sim {

/// Does the layout fit? From the memory band: upper end <= usable: fits; lower end > usable: does
/// not fit; else borderline.
enum class Verdict : std::uint8_t { fits, borderline, does_not_fit };
template <>
struct EnumNames<Verdict> {
    static constexpr std::array<std::string_view, 3> names = {"fits", "borderline", "does not fit"};
};

/// A figure with the range it should fall in (about two thirds of the time).
template <class Q>
struct Band {
    Q low{};
    Q value{};
    Q high{};
    friend bool operator==(const Band&, const Band&) = default;
};

/// What an estimate can be wrong about; errors of two classes have nothing to do with one another.
enum class ErrorClass : std::uint8_t { compute, communication, launch, memory };
inline constexpr std::size_t error_class_count = 4;
template <>
struct EnumNames<ErrorClass> {
    static constexpr std::array<std::string_view, error_class_count> names = {
        "compute", "communication", "launch", "memory"};
};

/// The lean answer a search compares. All memory figures are of the rank class that decides.
struct Score {
    Seconds step_time;
    Bytes peak;                            ///< reserved by the class nearest to its limit
    Bytes usable;                          ///< what that class may hold
    double memory_sigma = 0.0;             ///< relative
    double time_sigma = 0.0;               ///< relative
    double money_per_million_tokens = 0.0; ///< 0 where no price is known
    std::int32_t peak_class = 0;
    TensorKind deciding = TensorKind::weights; ///< the largest kind at the peak
    Phase peak_phase = Phase::forward;
    Verdict verdict = Verdict::fits;
    bool hopeless = false; ///< no layout that differs in a larger micro-batch only fits either

    friend bool operator==(const Score&, const Score&) = default;
};

/// Memory of the ranks that cost the same.
struct ClassMemory {
    std::int64_t stage = 0;
    std::int64_t node_group = 0;
    std::int64_t ranks = 0;
    std::int64_t example_rank = 0;
    BytesByKind persistent; ///< device, held through the whole step
    BytesByKind at_peak;    ///< device, at the worst instant; kinds add up to `process.value`
    std::array<Bytes, phase_count> phase_peaks{}; ///< allocated, worst instant of each phase
    Phase peak_phase = Phase::forward;
    Bytes host; ///< of one rank's process while training: itself and what is offloaded to it
    std::array<Bytes, phase_count> host_phases{}; ///< the same by phase; load and save need more
    Bytes nvme;
    Band<Bytes> allocated; ///< tensors alive, as torch.cuda.max_memory_allocated counts
    Band<Bytes> reserved;  ///< held by the allocator
    Band<Bytes> process;   ///< reserved + context + communicators: what nvidia-smi shows
    Bytes usable;          ///< visible memory less context and communicators (bounds `reserved`)
    Verdict verdict = Verdict::fits;

    friend bool operator==(const ClassMemory&, const ClassMemory&) = default;
};

/// Whether ranks stand on more than one node group.
inline bool spans_groups(const std::vector<ClassMemory>& classes) {
    return std::any_of(classes.begin(), classes.end(), [&](const ClassMemory& c) {
        return c.node_group != classes.front().node_group;
    });
}

/// Where the time of a step goes on the slowest class, and what hides behind compute.
struct StepTime {
    Band<Seconds> total;
    SecondsByKind exposed; ///< adds up to total.value
    SecondsByKind hidden;  ///< communication under compute
    /// Standard deviation of the step by class, relative to the step; memory has no part in it.
    std::array<double, error_class_count> sigmas{};
    double sigma = 0.0; ///< of all classes; the band is total x (1 -+ sigma)

    friend bool operator==(const StepTime&, const StepTime&) = default;
};

/// Bytes one device of a stage sends per step, by dimension of the layout, and over which tier. A
/// tied table, which two stages add up between them, is one of "dp" apart from the rest.
struct LinkLoad {
    std::string dim;  ///< "tp", "cp", "ep", "pp", "dp"
    std::string tier; ///< name of the slowest link kind its groups cross
    std::int64_t ranks = 0;
    std::int64_t first_stage = 0; ///< of `stages` that send the same
    std::int64_t stages = 1;
    Bytes per_step;
    Seconds time;

    friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};

/// What a device of the busiest stage sends per step in a dimension.
Bytes most_sent(const std::vector<LinkLoad>& links, std::string_view dim);

/// What a layout costs: everything a person may ask about.
struct Estimate {
    Verdict verdict = Verdict::fits;
    std::string verdict_text; ///< one sentence, see describe_verdict; written by annotate
    Bytes margin;             ///< usable - reserved of the deciding class; negative: short by
    std::int32_t deciding_class = 0;
    TensorKind deciding = TensorKind::weights;
    StepTime time;
    std::vector<ClassMemory> classes; ///< by stage, then node group
    std::int64_t micro_batches = 0;
    std::int64_t devices_used = 0;
    double tokens_per_second = 0.0;
    double tokens_per_second_per_device = 0.0;
    double samples_per_second = 0.0;
    double mfu = 0.0; ///< model flops over peak_name's dense peak; causal attention counted whole
    double hfu = 0.0; ///< with recomputation
    std::string peak_name; ///< the format whose peak that is
    double money_per_hour = 0.0;
    double money_per_million_tokens = 0.0;
    double kilowatt_hours_per_million_tokens = 0.0; ///< at board power; 0 where unknown
    std::vector<LinkLoad> links;
    std::vector<Warning> warnings; ///< written by annotate
    double memory_sigma = 0.0;     ///< of the memory of the deciding class, relative, upwards
    bool calibrated = false;       ///< constants measured on this machine took part

    friend bool operator==(const Estimate&, const Estimate&) = default;
};

} // namespace shardplan::sim
