#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/estimate/formulas.hpp"
#include "simulator/estimate/workspace.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim {

namespace {

std::string_view label_of(TimeKind kind) {
    switch (kind) {
        case TimeKind::gemm:
            return "matrix products";
        case TimeKind::attention:
            return "attention";
        case TimeKind::elementwise:
            return "element-wise work";
        case TimeKind::launch:
            return "waiting for kernel launches";
        case TimeKind::recompute:
            return "recomputation";
        case TimeKind::optimizer:
            return "optimizer";
        case TimeKind::tp_comm:
            return "tensor-parallel communication, exposed";
        case TimeKind::cp_comm:
            return "context-parallel communication, exposed";
        case TimeKind::ep_comm:
            return "expert communication, exposed";
        case TimeKind::pp_comm:
            return "pipeline messages, exposed";
        case TimeKind::dp_comm:
            return "gradient reduction and parameter gathering, exposed";
        case TimeKind::offload:
            return "offloading, exposed";
        case TimeKind::bubble:
            return "waiting for other pipeline stages";
        case TimeKind::overhead:
            return "outside the model";
    }
    return "";
}

/// Seconds of one operator in both passes that belong to a kind.
double part_of(const OpCost& cost, TimeKind kind) {
    const auto sum = [&](double PassCost::*part) {
        return cost.forward.*part + cost.backward_input.*part + cost.backward_weight.*part;
    };
    switch (kind) {
        case TimeKind::gemm:
            return sum(&PassCost::gemm);
        case TimeKind::attention:
            return sum(&PassCost::attention);
        case TimeKind::elementwise:
            return sum(&PassCost::elementwise);
        default:
            return 0.0;
    }
}

bool is_compute(TimeKind kind) {
    return kind == TimeKind::gemm || kind == TimeKind::attention || kind == TimeKind::elementwise;
}

std::string op_detail(const Op& op, TimeKind kind, double count, double each) {
    std::string text = fmt::format("{:.6g} x {}", count, to_text(Seconds(each)));
    if (kind == TimeKind::gemm && op.gemm.m > 0) {
        text += fmt::format(", forward {} x {} x {}{}", op.gemm.m, op.gemm.n, op.gemm.k,
                            op.gemm.count > 1 ? fmt::format(" x {}", op.gemm.count) : "");
    } else if (kind == TimeKind::elementwise) {
        text += fmt::format(", forward {}", to_text(Bytes(op.traffic_forward)));
    } else if (kind == TimeKind::attention) {
        text += fmt::format(", forward {}", to_text(Flops(op.flops_forward)));
    }
    return text;
}

void add_entry(const StepContext& step, const Layout& layout, const TimeEntry& entry,
               TermRecorder& recorder) {
    const double each = entry.seconds / entry.count;
    if (entry.unit < 0 || !is_compute(entry.kind)) {
        recorder.leaf(entry.name, entry.name, entry.seconds, entry.formula,
                      fmt::format("{:.6g} x {}", entry.count, to_text(Seconds(each))));
        return;
    }
    recorder.enter(entry.name, entry.name, entry.formula);
    for (const Op& op : unit_ops(step, layout, entry.unit)) {
        const double seconds = part_of(op_cost(op, step.rates), entry.kind);
        if (seconds == 0.0) continue;
        recorder.leaf(op.name, op.name, entry.count * seconds, entry.formula,
                      op_detail(op, entry.kind, entry.count, seconds));
    }
    recorder.leave();
}

Term time_tree(const PreparedScenario& prepared, const LayoutTables& tables, const Layout& layout,
               Workspace::Impl& cache) {
    TimeRecorder entries;
    step_time(prepared.step, layout, cached_parts(prepared, tables, layout, cache),
              cached_placement(prepared, tables, layout, cache).model->runs,
              tables.recompute(layout.recompute), micro_batches(prepared.resolved, layout),
              cache.step, entries);
    TermRecorder recorder("time", "step time", Dimension::seconds);
    for (std::size_t i = 0; i < time_kind_count; ++i) {
        const auto kind = static_cast<TimeKind>(i);
        const bool any = std::any_of(entries.entries.begin(), entries.entries.end(),
                                     [&](const TimeEntry& e) { return e.kind == kind; });
        if (!any) continue;
        recorder.enter(name_of(kind), label_of(kind), "time." + std::string(name_of(kind)));
        for (const TimeEntry& entry : entries.entries) {
            if (entry.kind == kind) add_entry(prepared.step, layout, entry, recorder);
        }
        recorder.leave();
    }
    return recorder.take();
}

/// "memory.3.weights" names class 3; the class is cut out of the path.
std::optional<std::size_t> take_class(std::string& path) {
    constexpr std::string_view prefix = "memory.";
    if (!path.starts_with(prefix)) return std::nullopt;
    std::size_t index = 0;
    const char* begin = path.data() + prefix.size();
    const char* end = path.data() + path.size();
    const auto [stop, failed] = std::from_chars(begin, end, index);
    if (failed != std::errc{} || (stop != end && *stop != '.')) return std::nullopt;
    path = "memory" + std::string(stop, end);
    return index;
}

Error unknown_path(std::string_view path, const std::vector<std::string>& known) {
    return {ErrorCode::not_found, std::string(path), "no such term", nearest_hint(path, known)};
}

} // namespace

Result<Term> Evaluator::explain(const Layout& layout, std::string_view path,
                                Workspace& workspace) const {
    const PreparedScenario& prepared = *prepared_;
    Workspace::Impl& cache = workspace.impl();
    cache.bind(&prepared, layout);
    std::string wanted(path);
    const bool time = wanted == "time" || wanted.starts_with("time.");
    const bool memory = wanted == "memory" || wanted.starts_with("memory.");
    if (!time && !memory) {
        return unknown_path(path, {"time", "memory", "time.gemm", "memory.weights"});
    }
    Term tree;
    if (time) {
        tree = time_tree(prepared, tables_, layout, cache);
    } else {
        const MemoryInputs in{prepared.scenario, prepared.resolved, tables_};
        const PlacedLayout placed = cached_placement(prepared, tables_, layout, cache);
        const std::optional<std::size_t> named = take_class(wanted);
        const std::size_t classes = placed.ranks->classes.size();
        const std::size_t index =
            named ? *named : memory_headline(in, layout, placed.stages(), cache.memory).deciding;
        if (index >= classes) {
            return Error{ErrorCode::not_found, std::string(path),
                         fmt::format("there are {} rank classes", classes),
                         fmt::format("memory.0 to memory.{}", classes - 1)};
        }
        tree = explain_memory(in, layout, placed.stages(), index);
    }
    const Term* found = find_term(tree, wanted);
    if (found == nullptr) {
        // the terms one level down are what people mean; operators below would fill a screen
        std::vector<std::string> known = {tree.path};
        for (const Term& child : tree.children)
            known.push_back(child.path);
        return unknown_path(path, known);
    }
    cite_sources(tree);
    return *found;
}

} // namespace shardplan::sim
