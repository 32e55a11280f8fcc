#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/space/space.hpp"

/// Private to planner/space: what the fields of a layout can be inside a cell.
namespace shardplan::plan {

/// Which values a rule reads, by the field that has to change where it is broken.
enum class Reads : std::size_t { cell, context, experts, sharding, passes, recompute, offload };
constexpr std::size_t groups_of_rules = 7;

/// The values each field takes inside a cell; the candidates are their product.
struct Space::Axes {
    sim::Layout base; ///< degrees and sequence parallelism
    std::vector<sim::CpKind> cp_kinds;
    std::vector<std::int64_t> ep;
    std::vector<std::int64_t> etp;
    std::vector<Sharding> shardings;
    std::vector<std::pair<std::uint16_t, sim::ScheduleKind>> schedules; ///< chunks with schedule
    std::vector<std::int64_t> micro_batches;
    std::vector<Again> again;
    std::vector<sim::OffloadTier> tiers;
    std::int64_t longest_stage = 1;
};

/// What is legal of each group of values, and how many each rule is the first to refuse.
struct Space::Legal {
    static constexpr std::size_t none = ~std::size_t{0};
    std::size_t cell_rule = none; ///< refuses everything
    std::vector<sim::CpKind> cp_kinds;
    std::vector<std::pair<std::uint16_t, std::uint16_t>> experts; ///< ep, etp
    std::vector<Sharding> shardings;
    struct Passes {
        std::uint16_t chunks = 1;
        sim::ScheduleKind schedule = sim::ScheduleKind::one_f_one_b;
        std::vector<std::int64_t> micro_batches;
    };
    std::vector<Passes> passes;
    std::vector<Again> again;
    std::vector<sim::OffloadTier> tiers;
    /// Rank orders for each of `experts` with each of `shardings`, the latter running faster.
    std::vector<std::vector<std::uint8_t>> orders;
    /// By group: rules that are the first to refuse a value, none for those that are legal.
    std::array<std::vector<std::size_t>, groups_of_rules> first_broken;

    [[nodiscard]] std::int64_t count() const {
        std::size_t orders_in_all = 0;
        for (const auto& some : orders) {
            orders_in_all += some.size();
        }
        std::size_t passes_in_all = 0;
        for (const Passes& some : passes) {
            passes_in_all += some.micro_batches.size();
        }
        return static_cast<std::int64_t>(cp_kinds.size() * orders_in_all * passes_in_all *
                                         again.size() * tiers.size());
    }
};

} // namespace shardplan::plan
