#include "simulator/estimate/step_parts.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "simulator/schedule/layout_schedule.hpp"
#include "simulator/schedule/pipeline_order.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

/// Modules that predict further tokens run behind the last block: each a block, recomputed where
/// blocks are, and what joins it to the trunk, with a head and loss of its own. Returns how many
/// blocks.
double add_prediction_modules(const ModelSpec& model, Recompute kind, double weight,
                              std::vector<UnitUse>& units) {
    double all = 0.0;
    const auto joints = static_cast<std::int64_t>(model.block_kinds.size()) + 2;
    for (const Part& part : model.parts) {
        if (part.role != PartRole::mtp) continue;
        for (const Run& run : part.runs) {
            const double blocks = weight * static_cast<double>(run.count);
            units.push_back({run.kind, blocks, kind == Recompute::full ? blocks : 0.0});
            units.push_back({joints, blocks, 0.0});
            all += blocks;
        }
    }
    return all;
}

void add_use(const UnitUse& use, std::vector<UnitUse>& units) {
    const auto same = std::find_if(units.begin(), units.end(),
                                   [&](const UnitUse& known) { return known.unit == use.unit; });
    if (same == units.end()) {
        units.push_back(use);
    } else {
        same->count += use.count;
        same->recomputed += use.recomputed;
    }
}

/// Which chunk on the way of a micro-batch that is.
std::size_t step_of(const PipelineShape& pipeline, std::size_t stage, std::size_t chunk) {
    return step_on_way(pipeline,
                       {static_cast<std::int32_t>(stage), static_cast<std::int32_t>(chunk)});
}

} // namespace

std::vector<StageShape> stage_shapes(const ModelSpec& model, const Layout& layout,
                                     const RecomputePlan& plan, const std::vector<Stage>& stages) {
    const Part* trunk = trunk_of(model);
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    // Both directions of DualPipe hold a copy, and half of the micro-batches go each way.
    const double weight = is_mirrored(layout) ? 0.5 : 1.0;
    const PipelineShape pipeline{layout.schedule, layout.pp,
                                 std::max<std::int32_t>(1, layout.chunks), 1};
    std::vector<StageShape> shapes;
    shapes.reserve(stages.size());
    for (const Stage& stage : stages) {
        StageShape shape;
        shape.has_embedding = stage.has_embedding;
        shape.has_head = stage.has_head;
        double left = plan.kind == Recompute::full
                          ? (plan.layers_per_stage > 0 ? static_cast<double>(plan.layers_per_stage)
                                                       : std::numeric_limits<double>::infinity())
                          : 0.0;
        if (shape.has_embedding) shape.units.push_back({kinds, weight, 0.0});
        for (const Stage::Slice& slice : stage.chunks) {
            if (trunk == nullptr) break;
            if (pipeline.chunks > 1) {
                const bool first = step_of(pipeline, shapes.size(), shape.chunks.size()) == 0;
                shape.chunks.emplace_back();
                if (first) shape.chunks.back().push_back({kinds, 1.0, 0.0});
            }
            for (const KindCount& run : kinds_in(*trunk, slice)) {
                const auto blocks = static_cast<double>(run.count);
                const double again = std::min(left, blocks);
                left -= again;
                shape.blocks += weight * blocks;
                add_use({run.kind, weight * blocks, weight * again}, shape.units);
                if (pipeline.chunks > 1) add_use({run.kind, blocks, again}, shape.chunks.back());
            }
        }
        if (shape.has_head) {
            const auto add_end = [&](double times, std::vector<UnitUse>& units) {
                const double blocks = add_prediction_modules(model, plan.kind, times, units);
                units.push_back({kinds + 1, times, 0.0});
                return blocks;
            };
            shape.blocks += add_end(weight, shape.units);
            for (std::size_t chunk = 0; chunk < shape.chunks.size(); ++chunk) {
                const bool last =
                    step_of(pipeline, shapes.size(), chunk) + 1 == way_length(pipeline);
                if (last) add_end(1.0, shape.chunks[chunk]);
            }
        }
        shapes.push_back(std::move(shape));
    }
    return shapes;
}

std::vector<ShapeRun> runs_of(const std::vector<StageShape>& shapes) {
    std::vector<ShapeRun> runs;
    for (const StageShape& shape : shapes) {
        if (!runs.empty() && runs.back().shape == shape) {
            ++runs.back().count;
            continue;
        }
        const auto same = std::find_if(runs.begin(), runs.end(),
                                       [&](const ShapeRun& run) { return run.shape == shape; });
        const auto same_as = static_cast<std::size_t>(same - runs.begin());
        runs.push_back({shape, 1, same_as});
    }
    return runs;
}

namespace {

/// Of the node group where each is least: the step waits for it. A figure that a group does not
/// state (0) bounds nothing.
void set_host_rates(const Scenario& scenario, StepContext& c) {
    const auto take_least = [](double rate, double& least) {
        if (rate > 0.0 && (least <= 0.0 || rate < least)) least = rate;
    };
    for (const NodeGroup& group : scenario.cluster.node_groups) {
        const Host& host = group.node.host;
        const auto devices = static_cast<double>(std::max<std::int64_t>(1, group.node.devices));
        take_least(usable(host.pcie_per_device).value(), c.host_link);
        take_least(host.memory_bandwidth.value() / devices *
                       scenario.stack.time.host_update_efficiency.value,
                   c.host_memory);
        take_least(host.nvme_bandwidth.value() / devices, c.nvme);
    }
}

} // namespace

StepContext step_context(const Scenario& scenario, const Resolved& resolved) {
    StepContext c;
    c.scenario = &scenario;
    c.resolved = &resolved;
    const Device* slowest = scenario.devices.data();
    for (const Device& device : scenario.devices) {
        if (peak_of(device, resolved.compute) < peak_of(*slowest, resolved.compute)) {
            slowest = &device;
        }
    }
    c.rates = compute_rates(*slowest, scenario.stack, resolved);
    c.overlap = overlap_of(scenario.stack);
    if (const Part* trunk = trunk_of(scenario.model)) c.hidden = static_cast<double>(trunk->hidden);
    const bool wide = resolved.compute == Dtype::fp32 || resolved.compute == Dtype::tf32;
    c.activation_element = wide ? bytes_per_element(Dtype::fp32) : bytes_per_element(Dtype::bf16);
    c.parameter_element = bytes_per_element(resolved.parameter);
    c.gradient_element = bytes_per_element(resolved.gradient);
    set_host_rates(scenario, c);
    c.spread = time_spread(scenario, resolved, *slowest);
    return c;
}

OpList unit_ops(const StepContext& c, const Layout& layout, std::int64_t unit, BlockPart part,
                OpList room) {
    const ModelSpec& model = c.scenario->model;
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    const ShardingKey key = sharding_of(layout);
    const StackProfile& stack = c.scenario->stack;
    if (unit == kinds) return embedding_ops(model, *c.resolved, stack, key);
    if (unit == kinds + 1) return head_ops(model, *c.resolved, stack, key);
    if (unit == kinds + 2) return prediction_ops(model, *c.resolved, stack, key);
    const Part* trunk = trunk_of(model);
    return block_ops(model.block_kinds[static_cast<std::size_t>(unit)],
                     trunk == nullptr ? 0 : trunk->hidden, model, *c.resolved, stack, key, part,
                     std::move(room));
}

std::string_view unit_name(const ModelSpec& model, std::int64_t unit) {
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    if (unit == kinds) return "embedding";
    if (unit == kinds + 1) return "head";
    if (unit == kinds + 2) return "prediction";
    return model.block_kinds[static_cast<std::size_t>(unit)].name;
}

std::int64_t unit_count(const ModelSpec& model) {
    const std::int64_t ends = prediction_modules(model) > 0 ? 3 : 2;
    return static_cast<std::int64_t>(model.block_kinds.size()) + ends;
}

void set_unit_parameters(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                         std::vector<RankParameters>& out) {
    const Part* trunk = trunk_of(model);
    const std::int64_t hidden = trunk == nullptr ? 0 : trunk->hidden;
    out.clear();
    for (const BlockKind& kind : model.block_kinds) {
        out.push_back(block_on_rank(kind, hidden, resolved, layout));
    }
    out.push_back(embedding_on_rank(model, resolved, layout));
    // where one stage holds both ends, a tied table is counted there once
    out.push_back(head_on_rank(model, resolved, layout, has_both_ends(layout)));
    if (const std::int64_t modules = prediction_modules(model); modules > 0) {
        out.push_back(1.0 / static_cast<double>(modules) *
                      prediction_joints_on_rank(model, resolved, layout, has_both_ends(layout)));
    }
}

OwnLayoutParts layout_parts(const StepContext& c, const Layout& layout) {
    OwnLayoutParts own;
    LayoutParts& parts = own.parts;
    own.paths = std::make_unique<Paths>(paths_of(*c.scenario, layout));
    parts.paths = lend(*own.paths);
    parts.spread = link_spread(parts.paths);
    const ModelSpec& model = c.scenario->model;
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    for (std::int64_t unit = 0; unit < unit_count(model); ++unit) {
        UnitWork work;
        work.add(unit_ops(c, layout, unit), c.rates);
        own.times.push_back(
            std::make_unique<UnitTime>(unit_time(work, c.rates, c.overlap, parts.paths,
                                                 parts.collectives, layout.cp_kind, unit < kinds)));
        own.units.push_back(own.times.back().get());
    }
    set_unit_parameters(model, *c.resolved, layout, parts.parameters);
    parts.units = UnitTimes(own.units);
    return own;
}

} // namespace shardplan::sim
