#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// What the rules read of a scenario, gathered once. Zero = the model has no such thing.
struct LegalityFacts {
    std::string unplannable; ///< why the model cannot be planned at all; empty = it can
    std::int64_t devices = 0;
    std::int64_t layers = 0;            ///< blocks of the trunk
    std::int64_t heads = 0;             ///< greatest common divisor over block kinds
    std::vector<std::int64_t> kv_heads; ///< of kinds with fewer KV than query heads, distinct
    std::int64_t ffn_width = 0;         ///< greatest common divisor, dense and shared experts
    std::int64_t experts = 0;           ///< greatest common divisor
    std::int64_t expert_width = 0;      ///< greatest common divisor
    std::int64_t vocab = 0;
    bool host_memory_known = false; ///< of every node group
    bool nvme_known = false;
    std::vector<std::uint8_t> orders; ///< rank orders of the stack, the smallest number first
};

/// A layout beside everything that decides whether it may run.
struct LegalityCase {
    const Scenario& scenario;
    const Resolved& resolved;
    const LegalityFacts& facts;
    const LayoutTables& tables;
    Layout layout;
};

/// One rule: legality of every stack is this table read against the stack's Capabilities. The
/// search runs `broken` only; `refuse` says why in words and finds legal values nearby.
struct LegalityRule {
    std::string_view id; ///< stable, "tp-divides-heads"
    std::string_view
        field; ///< term of the layout that has to change: "tp"; "model", "job", "stack"
    bool (*broken)(const LegalityCase&);
    void (*refuse)(const LegalityCase&, Refusal&); ///< fills rule, numbers and nearest
};

/// All rules, those a user should mend first in front.
std::span<const LegalityRule> legality_rules();

/// Rules of one scenario, prepared for many layouts. Keeps references to both arguments.
class Legality {
public:
    Legality(const Scenario& scenario, const Resolved& resolved);

    /// Index into `legality_rules()` of the first rule that is broken.
    [[nodiscard]] std::optional<std::size_t> first_broken(const Layout& layout,
                                                          const LayoutTables& tables) const;
    [[nodiscard]] std::vector<Refusal> check(const Layout& layout,
                                             const LayoutTables& tables) const;
    [[nodiscard]] const LegalityFacts& facts() const { return facts_; }

private:
    const Scenario& scenario_;
    const Resolved& resolved_;
    LegalityFacts facts_;
};

} // namespace shardplan::sim
