#include <fmt/format.h>

#include "simulator/spec/legality_rules.hpp"

namespace shardplan::sim {

namespace {

using Case = LegalityCase;

/// Words for a value outside one list of the job's constraints.
void refuse_allowed(Refusal& r, const std::vector<std::int64_t>& allowed, std::int64_t value,
                    std::string_view key) {
    std::string list;
    for (const std::int64_t v : allowed) {
        list += fmt::format("{}{}", list.empty() ? "" : ", ", v);
    }
    r.rule = fmt::format("{} {} is not among the job's {}: {}", r.field, value, key, list);
    r.numbers = {static_cast<double>(value)};
    r.nearest = nearest_of(allowed, value, r.field);
}

/// The rule of one constraint: an empty list allows everything.
template <std::vector<std::int64_t> Constraints::*Allowed, auto Value>
bool outside(const Case& c) {
    const std::vector<std::int64_t>& allowed = c.scenario.job.constraints.*Allowed;
    return !allowed.empty() && !contains(allowed, std::int64_t{c.layout.*Value});
}

template <std::vector<std::int64_t> Constraints::*Allowed, auto Value>
void refuse_outside(const Case& c, Refusal& r) {
    const std::string key = r.field == "mb" ? "constraints.micro_batch" : "constraints." + r.field;
    refuse_allowed(r, c.scenario.job.constraints.*Allowed, std::int64_t{c.layout.*Value}, key);
}

template <std::vector<std::int64_t> Constraints::*Allowed, auto Value>
constexpr LegalityRule allowed_rule(std::string_view id, std::string_view field) {
    return {id, field, outside<Allowed, Value>, refuse_outside<Allowed, Value>};
}

Recompute recompute_of(const Case& c) { return c.tables.recompute(c.layout.recompute).kind; }

bool policy_broken(const Case& c) {
    const RecomputePlan plan = c.tables.recompute(c.layout.recompute);
    switch (c.scenario.job.constraints.recompute) {
        case RecomputePolicy::any:
            return false;
        case RecomputePolicy::forbid:
            return plan.kind != Recompute::none;
        case RecomputePolicy::full:
            return plan.kind != Recompute::full || plan.layers_per_stage != 0;
    }
    return false;
}

void policy_refuse(const Case& c, Refusal& r) {
    const bool forbid = c.scenario.job.constraints.recompute == RecomputePolicy::forbid;
    r.rule = forbid ? fmt::format("the job forbids recomputation and the layout has rc={}",
                                  name_of(recompute_of(c)))
                    : "the job insists on full recomputation of every block";
    r.nearest = {forbid ? "leave rc out" : "rc=full"};
}

constexpr LegalityRule table[] = {
    {"model-can-be-planned", "model", [](const Case& c) { return !c.facts.unplannable.empty(); },
     [](const Case& c, Refusal& r) {
         r.rule = c.facts.unplannable;
         for (const Part& part : c.scenario.model.parts) {
             const bool side = part.role == PartRole::vision || part.role == PartRole::projector;
             if (side && part.trainable) {
                 r.nearest.push_back(
                     fmt::format("set trainable to false in part \"{}\" to plan "
                                 "the language model alone",
                                 part.name));
             }
         }
     }},
    {"stack-is-the-scenarios", "stack",
     [](const Case& c) {
         return c.layout.stack != 0 && c.tables.stack(c.layout.stack) != c.scenario.stack.name;
     },
     [](const Case& c, Refusal& r) {
         r.rule = fmt::format("the layout is for {} and the plan is for {}",
                              c.tables.stack(c.layout.stack), c.scenario.stack.name);
         r.nearest = {"stack=" + c.scenario.stack.name, "leave stack out"};
     }},
    {"stack-runs-adapters", "job",
     [](const Case& c) {
         return c.resolved.method.kind != MethodKind::full &&
                !c.scenario.stack.capabilities.adapters;
     },
     [](const Case& c, Refusal& r) {
         r.rule = fmt::format("{} cannot train with {}", c.scenario.stack.name,
                              name_of(c.resolved.method.kind));
         r.nearest = {"method full", "stack generic"};
     }},
    allowed_rule<&Constraints::tp, &Layout::tp>("tp-is-allowed", "tp"),
    allowed_rule<&Constraints::pp, &Layout::pp>("pp-is-allowed", "pp"),
    allowed_rule<&Constraints::cp, &Layout::cp>("cp-is-allowed", "cp"),
    allowed_rule<&Constraints::ep, &Layout::ep>("ep-is-allowed", "ep"),
    allowed_rule<&Constraints::dp, &Layout::dp>("dp-is-allowed", "dp"),
    allowed_rule<&Constraints::micro_batch, &Layout::micro_batch>("mb-is-allowed", "mb"),
    {"recompute-is-allowed", "rc", policy_broken, policy_refuse},
};

} // namespace

std::span<const LegalityRule> input_rules() { return table; }

} // namespace shardplan::sim
