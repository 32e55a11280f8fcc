#include "planner/search/remedies.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "simulator/spec/legality.hpp"

namespace shardplan::plan {

namespace {

using sim::Evaluator;
using sim::Layout;
using sim::Scenario;

double tokens_per_step(const Evaluator& evaluator) {
    return static_cast<double>(evaluator.resolved().global_batch) *
           static_cast<double>(evaluator.resolved().sequence);
}

double device_seconds_per_token(const Evaluator& evaluator, const Layout& layout,
                                sim::Seconds step) {
    return step.value() * static_cast<double>(sim::rank_count(layout)) / tokens_per_step(evaluator);
}

/// Tries changes of one search that found nothing.
class Doctor {
public:
    Doctor(const Evaluator& evaluator, const PlanSet& found, const SearchOptions& options)
        : evaluator_(evaluator), options_(options) {
        options_.top = 1;
        options_.fold = false;
        options_.progress = nullptr;
        if (!found.closest.empty()) {
            const Layout& layout = found.closest.front().plan.layout;
            sim::Workspace workspace;
            reference_ = device_seconds_per_token(evaluator, layout,
                                                  evaluator.score(layout, workspace).step_time);
        }
    }

    /// The scenario after `change`, if that makes it fit.
    template <class Change>
    bool attempt(std::string text, std::string setting, Change change) {
        Scenario scenario = evaluator_.scenario();
        change(scenario);
        const auto changed = Evaluator::make(std::move(scenario));
        if (!changed) {
            return false;
        }
        const PlanSet found = plan(*changed, options_);
        if (found.counts.fits == 0 || found.plans.empty()) {
            return false;
        }
        const Plan& best = found.plans.front();
        add(std::move(text), std::move(setting), *changed, best.layout, best.text,
            best.score.step_time);
        return true;
    }

    std::vector<Remedy> take() {
        std::stable_sort(out_.begin(), out_.end(),
                         [](const Remedy& a, const Remedy& b) { return a.price < b.price; });
        return std::move(out_);
    }

private:
    void add(std::string text, std::string setting, const Evaluator& under, const Layout& layout,
             std::string layout_text, sim::Seconds step) {
        Remedy remedy{std::move(text),         std::move(setting),
                      std::move(layout_text),  step,
                      sim::rank_count(layout), 0.0};
        if (reference_ > 0.0) {
            remedy.price = device_seconds_per_token(under, layout, step) / reference_ - 1.0;
        }
        out_.push_back(std::move(remedy));
    }

    const Evaluator& evaluator_;
    SearchOptions options_;
    double reference_ = 0.0;
    std::vector<Remedy> out_;
};

/// Constraints that the job sets, each lifted alone.
void lift_constraints(const Scenario& now, Doctor& doctor) {
    const sim::Constraints& c = now.job.constraints;
    if (!c.micro_batch.empty()) {
        doctor.attempt("any micro-batch", "--set job.constraints.micro_batch=[]",
                       [](Scenario& s) { s.job.constraints.micro_batch.clear(); });
    }
    if (c.recompute == sim::RecomputePolicy::forbid) {
        doctor.attempt("recomputation", "--set job.constraints.recompute=any", [](Scenario& s) {
            s.job.constraints.recompute = sim::RecomputePolicy::any;
        });
    }
    if (c.memory_cap) {
        doctor.attempt("no memory cap below the device's", "leave job.constraints.memory_cap out",
                       [](Scenario& s) { s.job.constraints.memory_cap.reset(); });
    }
}

void shard_parameters(const Scenario& now, Doctor& doctor) {
    const auto& shards = now.stack.capabilities.shards;
    if (std::find(shards.begin(), shards.end(), sim::Shard::all) == shards.end()) {
        doctor.attempt(fmt::format("zero3, in a stack that has it ({} does not)", now.stack.name),
                       "",
                       [](Scenario& s) { s.stack.capabilities.shards.push_back(sim::Shard::all); });
    }
}

/// Where the stack can offload, the search has tried it.
void offload_states(const Scenario& now, Doctor& doctor) {
    const auto& tiers = now.stack.capabilities.offload_tiers;
    if (std::find(tiers.begin(), tiers.end(), sim::OffloadTier::host) == tiers.end()) {
        doctor.attempt(fmt::format("optimizer states in host memory, in a stack that offloads ({} "
                                   "does not)",
                                   now.stack.name),
                       "", [](Scenario& s) {
                           s.stack.capabilities.offload_tiers.push_back(sim::OffloadTier::host);
                       });
    }
}

/// Doubles the nodes until something fits, and tries what lies halfway on the way.
void add_nodes(const Scenario& now, Doctor& doctor) {
    constexpr std::int64_t most = 64;
    const auto with = [&](std::int64_t times, std::int64_t over) {
        std::int64_t nodes = 0;
        std::int64_t devices = 0;
        for (const sim::NodeGroup& group : now.cluster.node_groups) {
            const std::int64_t count = group.count * times / over;
            nodes += count;
            devices += count * group.node.devices;
        }
        return doctor.attempt(
            fmt::format("{} devices in {} node{}", devices, nodes, nodes == 1 ? "" : "s"),
            fmt::format("--gpus {}", devices), [&](Scenario& s) {
                for (sim::NodeGroup& group : s.cluster.node_groups) {
                    group.count = group.count * times / over;
                }
            });
    };
    for (std::int64_t times = 2; times <= most; times *= 2) {
        const bool whole =
            times > 2 ||
            std::all_of(now.cluster.node_groups.begin(), now.cluster.node_groups.end(),
                        [](const sim::NodeGroup& group) { return group.count % 2 == 0; });
        // three quarters of it, where that is whole nodes
        if ((whole && with(3 * times, 4)) || with(times, 1)) {
            return;
        }
    }
}

void shorten_sequence(const Evaluator& evaluator, Doctor& doctor) {
    constexpr std::int64_t shortest = 256;
    for (std::int64_t n = evaluator.resolved().sequence / 2; n >= shortest; n /= 2) {
        const bool done = doctor.attempt(fmt::format("sequences of {} tokens", n),
                                         fmt::format("--sequence {}", n), [&](Scenario& s) {
                                             // the same number of samples
                                             s.job.global_batch = {};
                                             s.job.global_batch.sequences =
                                                 evaluator.resolved().global_batch;
                                             s.job.sequence = {};
                                             s.job.sequence.max = n;
                                         });
        if (done) {
            return;
        }
    }
}

} // namespace

std::vector<Remedy> remedies(const Evaluator& evaluator, const PlanSet& found,
                             const SearchOptions& options) {
    Doctor doctor(evaluator, found, options);
    const Scenario& now = evaluator.scenario();
    lift_constraints(now, doctor);
    shard_parameters(now, doctor);
    offload_states(now, doctor);
    add_nodes(now, doctor);
    shorten_sequence(evaluator, doctor);
    if (now.job.optimizer.kind == sim::OptimizerKind::adamw &&
        now.job.method.kind == sim::MethodKind::full) {
        doctor.attempt("an 8-bit optimizer", "--optimizer adamw_8bit",
                       [](Scenario& s) { s.job.optimizer.kind = sim::OptimizerKind::adamw_8bit; });
    }
    if (now.stack.capabilities.adapters && now.job.method.kind == sim::MethodKind::full) {
        const bool plain =
            doctor.attempt("training adapters only (lora)", "--method lora",
                           [](Scenario& s) { s.job.method.kind = sim::MethodKind::lora; });
        if (!plain) {
            doctor.attempt("training adapters on 4-bit weights (qlora)", "--method qlora",
                           [](Scenario& s) { s.job.method.kind = sim::MethodKind::qlora; });
        }
    }
    return doctor.take();
}

} // namespace shardplan::plan
