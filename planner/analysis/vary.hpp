#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/leaves.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/io/catalogue.hpp"

/// The same scenario with a few inputs changed, and what one layout costs under it.
namespace shardplan::plan {

/// One input and the text of its new value. `path` as in full_paths; "gpus"; or "model", "cluster"
/// or "stack" with a name or file, which replaces it whole (the cluster is cut to as many devices).
struct FieldSetting {
    std::string path;
    std::string value;

    friend bool operator==(const FieldSetting&, const FieldSetting&) = default;
};

/// The global batch of a scenario whose user named none, from tokens per sample and devices.
using BatchRule = std::function<sim::GlobalBatch(std::int64_t sequence, std::int64_t devices)>;

/// What stays the same while inputs change. Where the batch is given in sequences and the tokens
/// per sample change, the batch keeps its tokens, to the nearest whole sequence. With `batch`, it
/// is asked instead wherever the devices or the sequence change.
struct VaryRules {
    const sim::Catalogue* catalogue = nullptr; ///< devices and fabrics a change may bring in
    BatchRule batch;
};

/// Applies settings: the devices first, then the cluster, then the rest. A new physical bandwidth
/// takes the achievable and the measured one beside it along, in proportion: another link that
/// software uses as well as this one. A Constant may leave its plausible range. The result has
/// passed the checks of its parts. Errors: no such field, a bad value, a contradiction; `where`
/// begins them.
sim::Result<sim::Scenario> vary(const sim::Scenario& base, std::span<const FieldSetting> settings,
                                const VaryRules& rules, std::string_view where);

/// A layout from its text form, with dp from the devices of the scenario where it is left out. Jobs
/// that allow idle devices may use fewer. Errors: `where` is the flag or file.
sim::Result<sim::Layout> layout_for(std::string_view text, std::string_view where,
                                    const sim::Scenario& scenario, sim::LayoutTables& tables);

/// What one layout costs under one scenario.
struct PricedLayout {
    std::string layout;                 ///< canonical text form
    std::vector<sim::Refusal> refusals; ///< not empty: not legal, and no estimate
    sim::Estimate estimate;             ///< with texts and warnings

    [[nodiscard]] bool legal() const { return refusals.empty(); }
};

/// Errors: the layout cannot be read or does not fill the devices; the scenario does not resolve.
sim::Result<PricedLayout> price_layout(sim::Scenario scenario, std::string_view layout,
                                       std::string_view where);

/// The same for questions that only a legal layout answers. Errors also: it is not legal.
sim::Result<PricedLayout> price_legal_layout(sim::Scenario scenario, std::string_view layout,
                                             std::string_view where);

/// Share of the step that the devices wait for communication.
double communication_share(const sim::StepTime& time);

} // namespace shardplan::plan
