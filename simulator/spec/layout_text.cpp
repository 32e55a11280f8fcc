#include <fmt/format.h>

#include "simulator/spec/layout.hpp"

namespace shardplan::sim {

namespace {

/// Thousandths as "1.0", "0.5", "0.125".
std::string fraction_text(std::int64_t thousandths) {
    std::string text =
        fmt::format("{}.{:03}", thousandths / offload_scale, thousandths % offload_scale);
    while (text.back() == '0' && text[text.size() - 2] != '.') {
        text.pop_back();
    }
    return text;
}

/// Items with dashes between them.
template <class List, class Show>
std::string joined(const List& list, Show show) {
    std::string text;
    for (const auto& item : list) {
        text += fmt::format("{}{}", text.empty() ? "" : "-", show(item));
    }
    return text;
}

} // namespace

std::string to_text(const Layout& layout, const LayoutTables& tables) {
    std::string out;
    const auto add = [&](std::string_view term) {
        if (!out.empty()) {
            out += ',';
        }
        out += term;
    };
    const auto degree = [&](std::string_view name, std::int64_t value) {
        if (value > 1) {
            add(fmt::format("{}{}", name, value));
        }
    };
    degree("tp", layout.tp);
    if (layout.sp) {
        add("sp");
    }
    degree("pp", layout.pp);
    degree("v", layout.chunks);
    add(fmt::format("dp{}", layout.dp));
    if (layout.cp > 1) {
        add(fmt::format("cp{}:{}", layout.cp, name_of(layout.cp_kind)));
    }
    degree("ep", layout.ep);
    if (layout.etp != 0 && layout.etp != layout.tp) {
        add(fmt::format("etp{}", layout.etp));
    }
    add(fmt::format("mb{}", layout.micro_batch));
    if (layout.shard != Shard::none) {
        add(name_of(layout.shard));
        if (layout.shard_group != 0) {
            out += fmt::format(":{}", layout.shard_group);
        }
    }
    if (!layout.reshard) {
        add("noreshard");
    }
    if (layout.prefetch != Layout{}.prefetch) {
        add(fmt::format("prefetch{}", layout.prefetch));
    }
    if (layout.wrap != WrapUnit::block) {
        add(fmt::format("wrap={}", name_of(layout.wrap)));
    }
    if (layout.recompute != 0) {
        const RecomputePlan plan = tables.recompute(layout.recompute);
        add(fmt::format("rc={}", name_of(plan.kind)));
        if (plan.layers_per_stage != 0) {
            out += fmt::format(":{}", plan.layers_per_stage);
        }
    }
    const auto offload = [&](std::string_view what, std::int64_t thousandths) {
        if (thousandths != 0) {
            add(fmt::format("off={}:{}:{}", what, fraction_text(thousandths),
                            name_of(layout.offload_tier)));
        }
    };
    offload("opt", layout.offload_optimizer);
    offload("par", layout.offload_parameters);
    offload("act", layout.offload_activations);
    if (layout.schedule != default_schedule(layout.chunks)) {
        add(fmt::format("sched={}", name_of(layout.schedule)));
    }
    if (layout.order != 0) {
        add("order=" + order_text(layout.order));
    }
    if (layout.stage_map != 0) {
        add("stages=" + joined(tables.stage_map(layout.stage_map).layers,
                               [](std::int64_t layers) { return layers; }));
    }
    if (layout.stack != 0) {
        add("stack=" + tables.stack(layout.stack));
    }
    return out;
}

} // namespace shardplan::sim
