#include "simulator/estimate/evaluator.hpp"

#include <algorithm>
#include <utility>

#include "simulator/compute/flops.hpp"
#include "simulator/estimate/workspace.hpp"

namespace shardplan::sim {

namespace {

constexpr double seconds_per_hour = 3600.0;
constexpr double joules_per_kilowatt_hour = 3.6e6;
constexpr double million = 1e6;

Error unknown_peak(const Device& device, Dtype compute) {
    std::string known;
    for (const auto& [format, rate] : device.peak_dense) {
        if (rate.value() <= 0.0) continue;
        known += (known.empty() ? "" : ", ") + format;
    }
    return {ErrorCode::bad_input, "cluster: device " + device.name,
            "its peak in " + std::string(name_of(compute)) + " is not known",
            known.empty() ? "give it under \"peak_dense\", for example \"989 TFLOP/s\""
                          : "its file states " + known};
}

} // namespace

Result<Evaluator> Evaluator::make(Scenario scenario, LayoutTables tables) {
    if (scenario.cluster.node_groups.empty() ||
        scenario.devices.size() != scenario.cluster.node_groups.size()) {
        return Error{ErrorCode::bad_input, "cluster", "no node group with a known device",
                     "give the cluster at least one node group"};
    }
    Result<ResolvedWithNotes> resolved = resolve(scenario);
    if (!resolved) return std::move(resolved).error();
    auto prepared = std::make_shared<PreparedScenario>();
    prepared->scenario = std::move(scenario);
    prepared->resolved = resolved->values;
    const Scenario& s = prepared->scenario;
    const Resolved& r = prepared->resolved;
    for (const Device& device : s.devices) {
        const double peak = peak_of(device, r.compute);
        if (peak <= 0.0) return unknown_peak(device, r.compute);
        prepared->peak = prepared->peak > 0.0 ? std::min(prepared->peak, peak) : peak;
    }
    prepared->step = step_context(s, r);
    prepared->calibrated = !calibrated_constants(s).empty();
    for (const BlockKind& kind : s.model.block_kinds)
        prepared->routes.push_back(kind.ffn.kind == FfnKind::moe);
    prepared->routes.resize(static_cast<std::size_t>(unit_count(s.model))); // the others do not
    prepared->model_flops = model_flops_per_step(s.model, r);
    prepared->block_forward_flops = block_forward_flops_per_step(s.model, r);
    prepared->selective_forward_flops = selective_forward_flops_per_step(s.model, r, s.stack);
    Evaluator out;
    out.prepared_ = std::move(prepared);
    out.tables_ = std::move(tables);
    out.assumptions_ = std::move(resolved->assumptions);
    return out;
}

const Scenario& Evaluator::scenario() const { return prepared_->scenario; }
const Resolved& Evaluator::resolved() const { return prepared_->resolved; }

namespace {

/// What the time of a layout is put together from, and what follows from it.
struct Priced {
    const LayoutParts* parts = nullptr;
    PlacedLayout placed;
    std::int64_t micro_batches = 0;
    double money_per_million_tokens = 0.0;
    double tokens_per_second = 0.0;
};
struct PricedStep : Priced {
    StepResult step;
};

void add_money(const PreparedScenario& prepared, double seconds, Priced& out) {
    const double tokens = static_cast<double>(prepared.resolved.global_batch) *
                          static_cast<double>(prepared.resolved.sequence);
    if (seconds > 0.0 && tokens > 0.0) {
        out.tokens_per_second = tokens / seconds;
        out.money_per_million_tokens =
            out.placed.ranks->price_per_hour / seconds_per_hour / out.tokens_per_second * million;
    }
}

/// All but the time.
Priced prepare(const PreparedScenario& prepared, const LayoutTables& tables, const Layout& layout,
               Workspace::Impl& cache) {
    Priced out;
    out.parts = &cached_parts(prepared, tables, layout, cache);
    out.placed = cached_placement(prepared, tables, layout, cache);
    out.micro_batches = micro_batches(prepared.resolved, layout);
    return out;
}

PricedStep price(const PreparedScenario& prepared, const LayoutTables& tables, const Layout& layout,
                 Workspace::Impl& cache) {
    PricedStep out{prepare(prepared, tables, layout, cache), {}};
    out.step = step_time(prepared.step, layout, *out.parts, out.placed.model->runs,
                         tables.recompute(layout.recompute), out.micro_batches, cache.step);
    add_money(prepared, out.step.total.value(), out);
    return out;
}

MemoryHeadline headline(const PreparedScenario& prepared, const LayoutTables& tables,
                        const Layout& layout, Workspace::Impl& cache) {
    return memory_headline({prepared.scenario, prepared.resolved, tables}, layout,
                           cached_placement(prepared, tables, layout, cache).stages(),
                           cache.memory);
}

/// Seconds of units in one micro-batch, without what depends on the layout beyond them.
ChunkPass least_pass(const LayoutParts& parts, const std::vector<UnitUse>& units,
                     Recompute recompute, Evaluator::Links links) {
    const auto pass = [&](const PassTime& time) {
        return links == Evaluator::Links::own ? time.total() : time.compute();
    };
    double out = 0.0;
    double back = 0.0;
    for (const UnitUse& use : units) {
        const UnitTime& unit = parts.units[static_cast<std::size_t>(use.unit)];
        const double forward = pass(unit.forward);
        out += use.count * forward;
        back += use.count * pass(unit.backward);
        back += recompute == Recompute::full ? use.recomputed * pass(unit.full_recompute) : 0.0;
    }
    return {Seconds(out), Seconds(back), Seconds{}};
}

/// Are longer passes never a shorter step? Where weight gradients fill bubbles in proportion, they
/// may be.
bool grows_with_passes(ScheduleKind schedule) {
    switch (schedule) {
        case ScheduleKind::gpipe:
        case ScheduleKind::one_f_one_b:
        case ScheduleKind::interleaved:
            return true;
        case ScheduleKind::zb_h1:
        case ScheduleKind::zb_h2:
        case ScheduleKind::zb_v:
        case ScheduleKind::dual_pipe:
            break;
    }
    return false;
}

double least_seconds(const LayoutParts& parts, const PlacedLayout& placed, const Layout& layout,
                     Recompute recompute, std::int64_t micro_batches, Evaluator::Links links,
                     Workspace::Impl& cache) {
    PipelinePasses& passes = cache.least;
    passes.runs.clear();
    passes.chunks.clear();
    for (const ShapeRun& run : placed.model->runs) {
        const ChunkPass pass = least_pass(parts, run.shape.units, recompute, links);
        passes.runs.push_back({{pass.forward, pass.backward, Seconds{}}, run.count});
        for (const std::vector<UnitUse>& chunk : run.shape.chunks)
            passes.chunks.push_back(least_pass(parts, chunk, recompute, links));
    }
    Seconds all;
    if (grows_with_passes(layout.schedule)) {
        all = pipeline_time(layout.schedule, passes, micro_batches, layout.chunks, cache.least_room)
                  .total;
    } else {
        for (const StageRun& run : passes.runs)
            all = std::max(all, static_cast<double>(micro_batches) * run.pass.total());
    }
    // The sums run in another order than those of the step.
    constexpr double rounding = 1e-9;
    return all.value() * (1.0 - rounding);
}

void add_link(std::vector<LinkLoad>& links, std::size_t& used, std::string_view dim,
              const GroupPath& path, const GroupTraffic& traffic) {
    if (path.ranks <= 1 || path.levels.empty() || traffic.bytes <= 0.0) return;
    if (used == links.size()) links.emplace_back();
    LinkLoad& link = links[used++];
    link.dim = dim;
    link.tier = path.levels.back().name;
    link.ranks = path.ranks;
    link.per_step = Bytes(traffic.bytes);
    link.time = Seconds(traffic.seconds);
}

void fill_links(const PricedStep& p, std::vector<LinkLoad>& links) {
    std::size_t used = 0;
    const GroupPaths& paths = p.parts->paths;
    add_link(links, used, "tp", path_in(paths, Group::tp), p.step.tp);
    add_link(links, used, "cp", path_in(paths, Group::cp), p.step.cp);
    const GroupPath& experts = path_in(paths, Group::ep);
    add_link(links, used, "ep", experts.ranks > 1 ? experts : path_in(paths, Group::etp),
             p.step.ep);
    add_link(links, used, "pp", path_in(paths, Group::pp), p.step.pp);
    // without copies of a stage its parameters may still stand on another one
    const GroupPath& copies = path_in(paths, Group::dp_cp);
    add_link(links, used, "dp", copies.ranks > 1 ? copies : path_in(paths, Group::pp), p.step.dp);
    links.resize(used);
}

TimeErrors errors_of(const PreparedScenario& prepared, const LayoutParts& parts,
                     const StepResult& step) {
    return time_errors(prepared.step.spread, parts.spread, step.exposed, step.hidden, step.total);
}

void set_band(Seconds total, const TimeErrors& errors, StepTime& out) {
    const double seconds = total.value();
    const auto relative = [&](double error) { return seconds > 0.0 ? error / seconds : 0.0; };
    out.sigma = relative(errors.step);
    out.sigmas = {relative(errors.compute), relative(errors.communication), relative(errors.launch),
                  0.0};
    out.total = {total * std::max(0.0, 1.0 - out.sigma), total, total * (1.0 + out.sigma)};
}

double relative_sigma(const Band<Bytes>& band) {
    return band.value.value() > 0.0 ? (band.high - band.value) / band.value : 0.0;
}

/// Flops of recomputation in the convention of MFU.
Flops recomputed_flops(const PreparedScenario& prepared, const PlacedLayout& placed,
                       RecomputePlan plan) {
    switch (plan.kind) {
        case Recompute::none:
            return {};
        case Recompute::selective:
            return prepared.selective_forward_flops;
        case Recompute::full:
            break;
    }
    double blocks = 0.0;
    double again = 0.0;
    for (const ShapeRun& run : placed.model->runs) {
        const auto stages = static_cast<double>(run.count);
        blocks += stages * run.shape.blocks;
        for (const UnitUse& use : run.shape.units)
            again += stages * use.recomputed;
    }
    return blocks > 0.0 ? again / blocks * prepared.block_forward_flops : Flops{};
}

void set_time(const PreparedScenario& prepared, const LayoutTables& tables, const Layout& layout,
              Workspace::Impl& cache, Score& out) {
    Priced p = prepare(prepared, tables, layout, cache);
    const StepResult step =
        step_without_traffic(prepared.step, layout, *p.parts, p.placed.model->runs,
                             tables.recompute(layout.recompute), p.micro_batches, cache.step);
    const double seconds = step.total.value();
    add_money(prepared, seconds, p);
    out.step_time = step.total;
    out.time_sigma = seconds > 0.0 ? errors_of(prepared, *p.parts, step).step / seconds : 0.0;
    out.money_per_million_tokens = p.money_per_million_tokens;
}

void set_memory(const MemoryHeadline& memory, Score& out) {
    out.verdict = memory.verdict;
    out.hopeless = memory.hopeless;
    out.peak_class = static_cast<std::int32_t>(memory.deciding);
    out.deciding = memory.kind;
    out.peak = memory.reserved.value;
    out.usable = memory.usable;
    out.peak_phase = memory.phase;
    out.memory_sigma = relative_sigma(memory.reserved);
}

} // namespace

Score Evaluator::score_memory(const Layout& layout, Workspace& workspace) const {
    Workspace::Impl& cache = workspace.impl();
    cache.bind(prepared_.get(), layout);
    Score out;
    set_memory(headline(*prepared_, tables_, layout, cache), out);
    return out;
}

void Evaluator::add_time(const Layout& layout, Workspace& workspace, Score& score) const {
    Workspace::Impl& cache = workspace.impl();
    cache.bind(prepared_.get(), layout);
    set_time(*prepared_, tables_, layout, cache, score);
}

void Evaluator::add_least_time(const Layout& layout, Workspace& workspace, Score& score,
                               Links links) const {
    Workspace::Impl& cache = workspace.impl();
    cache.bind(prepared_.get(), layout);
    Priced p = prepare(*prepared_, tables_, layout, cache);
    const double seconds =
        least_seconds(*p.parts, p.placed, layout, tables_.recompute(layout.recompute).kind,
                      p.micro_batches, links, cache);
    add_money(*prepared_, seconds, p);
    score.step_time = Seconds(seconds);
    score.money_per_million_tokens = p.money_per_million_tokens;
}

Score Evaluator::score(const Layout& layout, Workspace& workspace) const {
    Workspace::Impl& cache = workspace.impl();
    cache.bind(prepared_.get(), layout);
    Score out;
    // Time first: it hands its operators to the memory part.
    set_time(*prepared_, tables_, layout, cache, out);
    set_memory(headline(*prepared_, tables_, layout, cache), out);
    return out;
}

void Evaluator::evaluate(const Layout& layout, Workspace& workspace, Estimate& out) const {
    const PreparedScenario& prepared = *prepared_;
    Workspace::Impl& cache = workspace.impl();
    cache.bind(&prepared, layout);
    const PricedStep p = price(prepared, tables_, layout, cache);
    const MemoryHeadline memory = headline(prepared, tables_, layout, cache);
    evaluate_memory({prepared.scenario, prepared.resolved, tables_}, layout, p.placed.stages(),
                    cache.memory, out.classes);
    out.verdict = memory.verdict;
    out.verdict_text.clear();
    out.warnings.clear();
    out.deciding_class = static_cast<std::int32_t>(memory.deciding);
    out.deciding = memory.kind;
    out.margin = Bytes{};
    if (!out.classes.empty()) {
        const ClassMemory& c = out.classes[memory.deciding];
        out.margin = c.usable - c.reserved.value;
        out.memory_sigma = relative_sigma(c.reserved);
    }
    set_band(p.step.total, errors_of(prepared, *p.parts, p.step), out.time);
    out.time.exposed = p.step.exposed;
    out.time.hidden = p.step.hidden;
    out.micro_batches = p.micro_batches;
    out.devices_used = rank_count(layout);
    const auto devices = static_cast<double>(out.devices_used);
    const double seconds = p.step.total.value();
    out.tokens_per_second = p.tokens_per_second;
    out.tokens_per_second_per_device = p.tokens_per_second / devices;
    out.samples_per_second =
        seconds > 0.0 ? static_cast<double>(prepared.resolved.global_batch) / seconds : 0.0;
    const double available = seconds * devices * prepared.peak;
    const Flops again = recomputed_flops(prepared, p.placed, tables_.recompute(layout.recompute));
    out.mfu = available > 0.0 ? prepared.model_flops.value() / available : 0.0;
    out.hfu = available > 0.0 ? (prepared.model_flops + again).value() / available : 0.0;
    out.peak_name = name_of(prepared.resolved.compute);
    out.money_per_hour = p.placed.ranks->price_per_hour;
    out.money_per_million_tokens = p.money_per_million_tokens;
    out.kilowatt_hours_per_million_tokens =
        p.tokens_per_second > 0.0
            ? p.placed.ranks->watts / p.tokens_per_second * million / joules_per_kilowatt_hour
            : 0.0;
    fill_links(p, out.links);
    out.calibrated = prepared.calibrated;
}

Estimate Evaluator::estimate(const Layout& layout, Workspace& workspace) const {
    Estimate out;
    evaluate(layout, workspace, out);
    annotate(layout, out);
    return out;
}

} // namespace shardplan::sim
