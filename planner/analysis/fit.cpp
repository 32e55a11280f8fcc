#include "planner/analysis/fit.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "planner/search/plan.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

void fill(Machine& machine, const sim::Estimate& e) {
    machine.has_layout = true;
    machine.verdict = e.verdict;
    machine.deciding = e.deciding;
    machine.margin_bytes = e.margin.value();
    machine.step_s = e.time.total.value.value();
    machine.tokens_per_s_per_device = e.tokens_per_second_per_device;
    machine.mfu = e.mfu;
}

/// The sizes a cluster can be cut to: powers of two within a node, then whole nodes.
class Sizes {
public:
    explicit Sizes(const sim::Cluster& cluster, std::int64_t most)
        : node_(cluster.node_groups.front().node.devices),
          most_(cluster.scalable ? most : std::min(most, sim::device_count(cluster))) {}

    [[nodiscard]] std::int64_t node() const { return node_; }
    [[nodiscard]] std::int64_t most() const { return most_; }
    /// The next size to try: twice, or one node.
    [[nodiscard]] std::int64_t after(std::int64_t devices) const {
        const std::int64_t twice = 2 * devices;
        if (devices < node_) {
            return std::min(twice, node_);
        }
        const bool skips_most = devices < most_ && twice > most_;
        return skips_most ? most_ / node_ * node_ : twice;
    }

private:
    std::int64_t node_;
    std::int64_t most_;
};

/// Tries sizes and keeps what was found, by devices.
class Trials {
public:
    Trials(const sim::Scenario& base, const VaryRules& rules, const FitRequest& request,
           MethodFit& out)
        : base_(base), rules_(rules), request_(request), out_(out) {}

    bool fits(std::int64_t devices) {
        const std::array<FieldSetting, 1> settings = {{{"gpus", std::to_string(devices)}}};
        Machine machine;
        auto scenario = vary(base_, settings, rules_, "--gpus");
        if (scenario) {
            auto best = best_machine(*scenario, request_.objective);
            machine = best ? std::move(*best) : machine;
            machine.why = best ? machine.why : best.error().what;
        } else {
            machine.why = scenario.error().what;
        }
        machine.devices = devices;
        const bool good = machine.fits();
        const auto at = std::find_if(out_.tried.begin(), out_.tried.end(),
                                     [&](const Machine& m) { return m.devices > devices; });
        out_.tried.insert(at, std::move(machine));
        return good;
    }

private:
    const sim::Scenario& base_;
    const VaryRules& rules_;
    const FitRequest& request_;
    MethodFit& out_;
};

} // namespace

sim::Result<Machine> best_machine(const sim::Scenario& scenario, sim::Objective objective) {
    const auto evaluator = sim::Evaluator::make(scenario);
    if (!evaluator) {
        return evaluator.error();
    }
    SearchOptions search;
    search.top = 1;
    search.objective = objective;
    const PlanSet set = plan(*evaluator, search);
    Machine out;
    out.devices = sim::device_count(scenario.cluster);
    const Plan* best = !set.plans.empty()     ? &set.plans.front()
                       : !set.closest.empty() ? &set.closest.front().plan
                                              : nullptr;
    if (best == nullptr) {
        out.why = "no layout is legal";
        return out;
    }
    sim::Workspace workspace;
    const sim::Estimate estimate = evaluator->estimate(best->layout, workspace);
    out.layout = best->text;
    out.why = estimate.verdict_text;
    fill(out, estimate);
    return out;
}

sim::Result<MethodFit> smallest_machine(std::string name, const sim::Scenario& base,
                                        const VaryRules& rules, const FitRequest& request) {
    if (const auto resolved = sim::resolve(base); !resolved) {
        return resolved.error();
    }
    MethodFit out;
    out.name = std::move(name);
    const Sizes sizes(base.cluster, request.most_devices);
    out.most_devices = sizes.most();
    Trials trials(base, rules, request, out);
    std::int64_t below = 0;
    std::int64_t devices = 1;
    bool found = false;
    while (devices <= sizes.most() && !(found = trials.fits(devices))) {
        below = devices;
        devices = sizes.after(devices);
    }
    // Between the last that does not and the first that does, in whole nodes.
    const std::int64_t node = sizes.node();
    std::int64_t low = (below + node - 1) / node;
    std::int64_t high = devices / node;
    while (found && devices > node && high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (trials.fits(middle * node) ? high : low) = middle;
    }
    for (std::size_t i = 0; i < out.tried.size() && !out.smallest; ++i) {
        if (out.tried[i].fits()) {
            out.smallest = i;
        }
    }
    return out;
}

} // namespace shardplan::plan
