#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/estimate/kinds.hpp"
#include "simulator/memory/pieces.hpp"
#include "simulator/memory/rank_parameters.hpp"

namespace shardplan::sim {

/// One named part of a memory figure, for explain.
struct MemoryPart {
    TensorKind kind = TensorKind::weights;
    std::string name;
    double bytes = 0.0;
    std::string formula; ///< id
    std::string detail;  ///< with its numbers

    friend bool operator==(const MemoryPart&, const MemoryPart&) = default;
};

/// Adds up parts by kind; keeps them by name too when a list is given.
class PartSum {
public:
    explicit PartSum(std::vector<MemoryPart>* list = nullptr) : list_(list) {}

    void add(TensorKind kind, std::string_view name, double bytes, std::string_view formula) {
        if (bytes == 0.0) {
            return;
        }
        by_kind_[kind] += Bytes(bytes);
        if (list_ != nullptr) {
            list(kind, name, bytes, formula);
        }
    }
    /// `count` elements of `size` bytes each, split over `ranks`.
    void add_elements(TensorKind kind, std::string_view name, double count, double size,
                      double ranks, std::string_view formula);
    void add(const MemoryPart& part) {
        by_kind_[part.kind] += Bytes(part.bytes);
        if (list_ != nullptr) {
            list_->push_back(part);
        }
    }
    void add(const BytesByKind& parts) {
        for (std::size_t k = 0; k < tensor_kind_count; ++k) {
            by_kind_.amounts[k] += parts.amounts[k];
        }
    }
    [[nodiscard]] bool lists_parts() const { return list_ != nullptr; }
    [[nodiscard]] const BytesByKind& by_kind() const { return by_kind_; }

private:
    void list(TensorKind kind, std::string_view name, double bytes, std::string_view formula);

    BytesByKind by_kind_;
    std::vector<MemoryPart>* list_;
};

/// Parameters of one stage, and of the units that sharding gathers whole.
struct StageParameters {
    RankParameters all;
    RankParameters largest_block; ///< of any block on the stage
    RankParameters root;          ///< embedding, final norm and head on the stage
    double root_gradient =
        0.0; ///< elements of the root whose gradient waits for the whole backward
    double blocks = 0.0;
    double placeholders = 0.0; ///< elements of one gradient per distinct weight shape
    StageUnits units;          ///< only for stacks with whole pieces
};

/// Bytes that stay through the whole step on one rank: weights, gradients, master weights, moments,
/// and the copies the stack keeps beside them.
/// Sources: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054) for what each stage splits; the
/// stacks' own sources for what they accumulate in.
void add_persistent(const Scenario& scenario, const Resolved& resolved, const Layout& layout,
                    const StageParameters& p, bool gradients_exist, PartSum& sum);

/// Bytes of states that layouts move off the device.
double offloaded_bytes(const Resolved& resolved, const StackProfile& stack, const Layout& layout,
                       const StageParameters& p);

/// Host bytes of one rank beyond its process: `load`: the 16-bit weights it reads before they are
/// split (only its shard where units are built without memory and filled shard by shard, as FSDP
/// does); `save`: a staging copy of the weights and states it writes.
struct HostStaging {
    double load = 0.0;
    double save = 0.0;
};
HostStaging host_staging(const Resolved& resolved, const StackProfile& stack, const Layout& layout,
                         const StageParameters& p);

/// When unsharded copies of zero3 units, and reduction buckets, are alive.
enum class UnitPhase { forward, loss, backward };
void add_gathered_units(const Resolved& resolved, const StackProfile& stack, const Layout& layout,
                        const StageParameters& p, UnitPhase phase, PartSum& sum);

/// What the optimizer step needs beyond the states.
void add_step_temporaries(const Resolved& resolved, const StackProfile& stack, const Layout& layout,
                          const StageParameters& p, PartSum& sum);

/// Moments of an optimizer per trained parameter, in bytes.
double moment_bytes(const Resolved& resolved);

} // namespace shardplan::sim
