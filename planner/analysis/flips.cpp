#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/fit.hpp"
#include "planner/search/plan.hpp"

namespace shardplan::plan {
namespace {

/// Changes a layout in place; false: it is like that already, or cannot be.
using LayoutEdit = std::function<bool(sim::Layout&)>;

struct LayoutChange {
    const char* change;
    const char* how;
    LayoutEdit edit;
};

/// A degree doubled, at the cost of data parallelism.
bool double_degree(std::uint16_t& degree, std::uint32_t& dp) {
    if (dp % 2 != 0) {
        return false;
    }
    degree = static_cast<std::uint16_t>(degree * 2);
    dp /= 2;
    return true;
}

bool shard_at(sim::Layout& layout, sim::Shard shard) {
    return std::exchange(layout.shard, shard) < shard;
}

bool recompute_at(sim::Layout& layout, sim::Recompute kind) {
    // The first ids are the whole plans, those above recompute some blocks of a stage.
    const auto id = static_cast<std::uint32_t>(kind);
    const std::uint32_t was = std::exchange(layout.recompute, id);
    const auto full = static_cast<std::uint32_t>(sim::Recompute::full);
    return was < id || (was > full && id == full);
}

bool offload(sim::Layout& layout, std::uint16_t sim::Layout::*fraction) {
    const bool was = layout.*fraction > 0;
    layout.*fraction = static_cast<std::uint16_t>(sim::offload_scale);
    layout.offload_tier = sim::OffloadTier::host;
    return !was;
}

/// What makes a layout need less memory.
std::vector<LayoutChange> lighter() {
    using L = sim::Layout;
    return {
        {"micro-batch of 1", "mb1", [](L& l) { return std::exchange(l.micro_batch, 1U) > 1U; }},
        {"selective recomputation", "rc=selective",
         [](L& l) { return recompute_at(l, sim::Recompute::selective); }},
        {"full recomputation", "rc=full",
         [](L& l) { return recompute_at(l, sim::Recompute::full); }},
        {"optimizer states sharded", "zero1",
         [](L& l) { return shard_at(l, sim::Shard::optimizer); }},
        {"gradients sharded too", "zero2",
         [](L& l) { return shard_at(l, sim::Shard::optimizer_gradients); }},
        {"parameters sharded too", "zero3", [](L& l) { return shard_at(l, sim::Shard::all); }},
        {"sequence parallelism", "sp", [](L& l) { return l.tp > 1 && !std::exchange(l.sp, true); }},
        {"twice the tensor parallelism", "tp", [](L& l) { return double_degree(l.tp, l.dp); }},
        {"twice the pipeline stages", "pp", [](L& l) { return double_degree(l.pp, l.dp); }},
        {"twice the context parallelism", "cp", [](L& l) { return double_degree(l.cp, l.dp); }},
        {"optimizer states in host memory", "off=opt:1.0:host",
         [](L& l) { return offload(l, &L::offload_optimizer); }},
        {"activations in host memory", "off=act:1.0:host",
         [](L& l) { return offload(l, &L::offload_activations); }},
        {"parameters in host memory", "off=par:1.0:host",
         [](L& l) { return offload(l, &L::offload_parameters); }},
    };
}

/// What makes a layout need more.
std::vector<LayoutChange> heavier() {
    using L = sim::Layout;
    return {
        {"twice the micro-batch", "mb",
         [](L& l) {
             l.micro_batch *= 2;
             return true;
         }},
        {"no recomputation", "rc=none", [](L& l) { return std::exchange(l.recompute, 0U) > 0U; }},
        {"parameters not sharded", "zero2",
         [](L& l) {
             return std::exchange(l.shard, sim::Shard::optimizer_gradients) == sim::Shard::all;
         }},
        {"optimizer states not sharded", "zero0",
         [](L& l) { return std::exchange(l.shard, sim::Shard::none) > sim::Shard::none; }},
    };
}

struct JobChange {
    std::string change;
    std::string how;
    std::vector<FieldSetting> settings;
    std::vector<sim::Feature> features;
};

std::string halved_sequence(const sim::Resolved& resolved, std::int64_t by) {
    return std::to_string(std::max<std::int64_t>(resolved.sequence / by, 1));
}

std::int64_t next_devices(const sim::Cluster& cluster, bool more) {
    const std::int64_t devices = sim::device_count(cluster);
    return more ? 2 * devices : devices / 2;
}

std::vector<JobChange> lighter_jobs(const sim::Scenario& s, const sim::Resolved& r) {
    std::vector<JobChange> out;
    const auto add = [&](std::string change, std::string how, std::vector<FieldSetting> settings,
                         std::vector<sim::Feature> features = {}) {
        out.push_back(
            {std::move(change), std::move(how), std::move(settings), std::move(features)});
    };
    for (const std::int64_t by : {2, 4}) {
        const std::string tokens = halved_sequence(r, by);
        add(fmt::format("sequence of {}", tokens), "--sequence " + tokens,
            {{"job.sequence.max", tokens}});
    }
    if (r.optimizer == sim::OptimizerKind::adamw) {
        add("8-bit optimizer", "--optimizer adamw_8bit", {{"job.optimizer.kind", "adamw_8bit"}});
        if (r.state == sim::Dtype::fp32) {
            add("moments in bf16", "--optimizer-state bf16", {{"job.optimizer.state", "bf16"}});
        }
    }
    if (r.method.kind == sim::MethodKind::full) {
        add("LoRA", "--method lora", {{"job.method.kind", "lora"}});
    }
    if (r.method.kind != sim::MethodKind::qlora) {
        add("QLoRA", "--method qlora", {{"job.method.kind", "qlora"}});
    }
    for (const auto& [feature, name] : {std::pair{sim::Feature::fused_ce, "fused-ce"},
                                        std::pair{sim::Feature::chunked_ce, "chunked-ce"}}) {
        if (!sim::has_feature(s.stack, feature)) {
            add(feature == sim::Feature::fused_ce ? "fused loss" : "loss in chunks",
                std::string("--feature ") + name, {}, {feature});
        }
    }
    if (s.job.constraints.recompute == sim::RecomputePolicy::forbid) {
        add("recomputation allowed", "--recompute any", {{"job.constraints.recompute", "any"}});
    }
    if (!s.job.constraints.micro_batch.empty()) {
        add("any micro-batch", "without --micro-batch", {{"job.constraints.micro_batch", ""}});
    }
    std::int64_t devices = sim::device_count(s.cluster);
    for (int step = 0; step < 3; ++step) {
        devices *= 2;
        add(fmt::format("{} devices", devices), fmt::format("--gpus {}", devices),
            {{"gpus", std::to_string(devices)}});
    }
    return out;
}

std::vector<JobChange> heavier_jobs(const sim::Scenario& s, const sim::Resolved& r) {
    std::vector<JobChange> out;
    for (const std::int64_t by : {2, 4}) {
        const std::string tokens = std::to_string(r.sequence * by);
        out.push_back({fmt::format("sequence of {}", tokens),
                       "--sequence " + tokens,
                       {{"job.sequence.max", tokens}},
                       {}});
    }
    if (r.method.kind == sim::MethodKind::qlora) {
        out.push_back({"LoRA", "--method lora", {{"job.method.kind", "lora"}}, {}});
    }
    if (r.method.kind != sim::MethodKind::full) {
        out.push_back({"full training", "--method full", {{"job.method.kind", "full"}}, {}});
    }
    if (r.optimizer == sim::OptimizerKind::adamw_8bit) {
        out.push_back(
            {"full-width optimizer", "--optimizer adamw", {{"job.optimizer.kind", "adamw"}}, {}});
    }
    const std::int64_t fewer = next_devices(s.cluster, false);
    if (fewer >= 1) {
        out.push_back({fmt::format("{} devices", fewer),
                       fmt::format("--gpus {}", fewer),
                       {{"gpus", std::to_string(fewer)}},
                       {}});
    }
    return out;
}

class Flipper {
public:
    Flipper(const sim::Scenario& scenario, const VaryRules& rules, const FitRequest& request,
            Flips& out)
        : scenario_(scenario), rules_(rules), request_(request), out_(out) {}

    void try_layout(const LayoutChange& change) {
        sim::LayoutTables tables;
        auto layout = layout_for(out_.base.layout, "layout", scenario_, tables);
        if (!layout || !change.edit(*layout)) {
            return;
        }
        const std::string text = sim::to_text(sim::normal_form(*layout), tables);
        const auto priced = price_layout(scenario_, text, "layout");
        if (priced && priced->legal() && priced->layout != out_.base.layout) {
            add({change.change, how_of(change, *layout), priced->layout}, priced->estimate,
                out_.base.devices);
        }
    }

    void try_job(const JobChange& change) {
        auto scenario = vary(scenario_, change.settings, rules_, "change");
        if (!scenario) {
            return;
        }
        if (!change.features.empty()) {
            scenario->stack = sim::with_features(std::move(scenario->stack), change.features);
        }
        const std::int64_t devices = sim::device_count(scenario->cluster);
        Flip flip{change.change, change.how, base_text(devices)};
        if (request_.layout.empty()) {
            const auto best = best_machine(*scenario, request_.objective);
            if (!best || !best->has_layout) {
                return;
            }
            flip.layout = best->layout;
            flip.planned_anew = true;
        }
        const auto priced = price_layout(std::move(*scenario), flip.layout, "layout");
        if (priced && priced->legal()) {
            flip.layout = priced->layout;
            add(std::move(flip), priced->estimate, devices);
        }
    }

private:
    /// Terms that carry a number say the number.
    static std::string how_of(const LayoutChange& change, const sim::Layout& layout) {
        const std::string term = change.how;
        const std::int64_t value = term == "tp"   ? layout.tp
                                   : term == "pp" ? layout.pp
                                   : term == "cp" ? layout.cp
                                   : term == "mb" ? layout.micro_batch
                                                  : 0;
        return value > 0 ? term + std::to_string(value) : term;
    }

    /// The base's layout; on another number of devices its dp follows them.
    [[nodiscard]] std::string base_text(std::int64_t devices) const {
        sim::LayoutTables tables;
        auto layout = layout_for(out_.base.layout, "layout", scenario_, tables);
        if (!layout || devices == out_.base.devices) {
            return out_.base.layout;
        }
        const std::int64_t replica = sim::rank_count(*layout) / layout->dp;
        layout->dp = static_cast<std::uint32_t>(std::max<std::int64_t>(devices / replica, 1));
        return sim::to_text(*layout, tables);
    }

    void add(Flip flip, const sim::Estimate& e, std::int64_t devices) {
        flip.verdict = e.verdict;
        flip.margin_bytes = e.margin.value();
        flip.step_s = e.time.total.value.value();
        flip.step_change = flip.step_s / out_.base.step_s - 1.0;
        flip.device_time_change = e.tokens_per_second > 0.0
                                      ? out_.base.tokens_per_s_per_device *
                                                static_cast<double>(devices) / e.tokens_per_second -
                                            1.0
                                      : 0.0;
        flip.turns = flip.verdict != out_.base.verdict;
        out_.flips.push_back(std::move(flip));
    }

    const sim::Scenario& scenario_;
    const VaryRules& rules_;
    const FitRequest& request_;
    Flips& out_;
};

sim::Result<Machine> base_of(const sim::Scenario& scenario, const FitRequest& request) {
    if (request.layout.empty()) {
        return best_machine(scenario, request.objective);
    }
    const auto priced = price_layout(scenario, request.layout, "--layout");
    if (!priced) {
        return priced.error();
    }
    if (!priced->legal()) {
        return sim::Error{sim::ErrorCode::bad_input, "--layout " + priced->layout,
                          "the layout is not legal: " + priced->refusals.front().rule,
                          "see `shardplan estimate` for the nearest legal one"};
    }
    const sim::Estimate& e = priced->estimate;
    Machine out;
    out.devices = sim::device_count(scenario.cluster);
    out.has_layout = true;
    out.why = e.verdict_text;
    out.layout = priced->layout;
    out.verdict = e.verdict;
    out.deciding = e.deciding;
    out.margin_bytes = e.margin.value();
    out.step_s = e.time.total.value.value();
    out.tokens_per_s_per_device = e.tokens_per_second_per_device;
    out.mfu = e.mfu;
    return out;
}

} // namespace

sim::Result<Flips> flips(const sim::Scenario& scenario, const VaryRules& rules,
                         const FitRequest& request) {
    const auto resolved = sim::resolve(scenario);
    if (!resolved) {
        return resolved.error();
    }
    auto base = base_of(scenario, request);
    if (!base) {
        return base.error();
    }
    Flips out;
    out.base = std::move(*base);
    if (!out.base.has_layout) {
        return out;
    }
    Flipper flipper(scenario, rules, request, out);
    const bool fits = out.base.verdict == sim::Verdict::fits;
    for (const LayoutChange& change : fits ? heavier() : lighter()) {
        flipper.try_layout(change);
    }
    for (const JobChange& change : fits ? heavier_jobs(scenario, resolved->values)
                                        : lighter_jobs(scenario, resolved->values)) {
        flipper.try_job(change);
    }
    std::stable_sort(out.flips.begin(), out.flips.end(), [](const Flip& a, const Flip& b) {
        if (a.turns != b.turns || a.turns) {
            return a.turns != b.turns ? a.turns : a.device_time_change < b.device_time_change;
        }
        return std::abs(a.margin_bytes) < std::abs(b.margin_bytes);
    });
    return out;
}

} // namespace shardplan::plan
