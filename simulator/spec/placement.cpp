#include "simulator/spec/placement.hpp"

#include <algorithm>

#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

using Counts = std::vector<std::int64_t>;

/// `whole` over `slots` as evenly as can be, the longer ones in the middle.
Counts spread_even(std::int64_t whole, std::int64_t slots) {
    Counts counts(static_cast<std::size_t>(slots), whole / slots);
    const std::int64_t extra = whole % slots;
    const std::int64_t first = (slots - extra) / 2;
    for (std::int64_t i = first; i < first + extra; ++i) {
        ++counts[static_cast<std::size_t>(i)];
    }
    return counts;
}

/// Embedding, blocks, final norm and head as items, the first slots one item longer.
/// Source: DeepSpeed partition_uniform over the list of layers of a PipelineModule.
Counts spread_items(std::int64_t layers, bool final_norm, std::int64_t slots) {
    const std::int64_t items = layers + (final_norm ? 3 : 2);
    Counts counts(static_cast<std::size_t>(slots), 0);
    std::int64_t at = 0;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
        const std::int64_t end = at + items / slots + (slot < items % slots ? 1 : 0);
        // Item 0 is the embedding, items 1 to `layers` are blocks.
        const std::int64_t first_block = std::max<std::int64_t>(at, 1);
        const std::int64_t end_block = std::min(end, layers + 1);
        counts[static_cast<std::size_t>(slot)] = std::max<std::int64_t>(end_block - first_block, 0);
        at = end;
    }
    return counts;
}

/// Cuts where the work of matrix products (parameters of a block, rows x width of the head) passes
/// equal shares: a block goes to the slot its middle falls in.
Counts spread_cost(const ModelSpec& model, const Part& trunk, std::int64_t slots) {
    double total = 0.0;
    std::vector<double> work;
    for (const Run& run : trunk.runs) {
        const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
        const auto block = static_cast<double>(block_parameters(kind, trunk.hidden).total());
        work.insert(work.end(), static_cast<std::size_t>(run.count), block);
        total += block * static_cast<double>(run.count);
    }
    total += static_cast<double>(model.embedding.vocab) * static_cast<double>(trunk.hidden);
    Counts counts(static_cast<std::size_t>(slots), 0);
    double before = 0.0;
    for (const double block : work) {
        const double share = (before + block / 2.0) / total * static_cast<double>(slots);
        const auto slot = std::min(static_cast<std::int64_t>(share), slots - 1);
        ++counts[static_cast<std::size_t>(slot)];
        before += block;
    }
    return counts;
}

/// Blocks of each slice of the model, in model order.
Counts slice_counts(const ModelSpec& model, const Part& trunk, std::int64_t slots,
                    StagePartition partition) {
    const std::int64_t layers = block_count(trunk);
    Counts counts;
    switch (partition) {
        case StagePartition::even:
            return spread_even(layers, slots);
        case StagePartition::items:
            counts = spread_items(layers, trunk.final_norm, slots);
            break;
        case StagePartition::cost:
            counts = spread_cost(model, trunk, slots);
            break;
    }
    // A slice without blocks is no stage; so few blocks are spread evenly by every stack.
    const bool empty_slice = std::find(counts.begin(), counts.end(), 0) != counts.end();
    return empty_slice ? spread_even(layers, slots) : counts;
}

/// Which slice of the model chunk `chunk` of stage `stage` is.
std::int64_t slice_of(const Layout& layout, std::int64_t stage, std::int64_t chunk) {
    const bool mirrored = chunk % 2 == 1;
    switch (layout.schedule) {
        case ScheduleKind::dual_pipe:
            return mirrored ? layout.pp - 1 - stage : stage;
        case ScheduleKind::zb_v:
            return chunk * layout.pp + (mirrored ? layout.pp - 1 - stage : stage);
        default:
            return chunk * layout.pp + stage;
    }
}

/// Blocks of each slice where the layout names the blocks of each stage: a stage's chunks share
/// them evenly, longer ones first.
Counts counts_from_map(const Layout& layout, const StageMap& map, std::int64_t slots) {
    Counts counts(static_cast<std::size_t>(slots), 0);
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
        const std::int64_t layers = map.layers[static_cast<std::size_t>(stage)];
        if (slots == layout.pp) {
            counts[static_cast<std::size_t>(stage)] = layers;
            continue;
        }
        for (std::int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
            counts[static_cast<std::size_t>(slice_of(layout, stage, chunk))] =
                layers / layout.chunks + (chunk < layers % layout.chunks ? 1 : 0);
        }
    }
    return counts;
}

/// The degree a dimension of rank order has for dense parameters; ep borrows its ranks.
std::int64_t degree_of(const Layout& layout, Dim dim) {
    switch (dim) {
        case Dim::tp:
            return layout.tp;
        case Dim::cp:
            return layout.cp;
        case Dim::dp:
            return layout.dp;
        case Dim::pp:
            return layout.pp;
        case Dim::ep:
            return 1;
    }
    return 1;
}

/// The same for experts: etp in place of tp, and dp = the ranks that hold the same experts.
std::int64_t expert_degree_of(const Layout& layout, Dim dim) {
    const std::int64_t group = etp_of(layout) * layout.ep;
    switch (dim) {
        case Dim::tp:
            return etp_of(layout);
        case Dim::cp:
            return 1;
        case Dim::ep:
            return layout.ep;
        case Dim::dp:
            return std::max<std::int64_t>(std::int64_t{layout.tp} * layout.cp * layout.dp / group,
                                          1);
        case Dim::pp:
            return layout.pp;
    }
    return 1;
}

/// Classes where node groups differ: runs of ranks of one stage are cut at the groups' borders.
std::vector<RankClass> classes_by_group(const Scenario& scenario, const Layout& layout) {
    const auto groups = static_cast<std::int64_t>(scenario.cluster.node_groups.size());
    const std::int64_t run = rank_stride(layout, Dim::pp);
    const std::int64_t ranks = rank_count(layout);
    std::vector<RankClass> all(static_cast<std::size_t>(layout.pp * groups));
    std::int64_t group = 0;
    std::int64_t group_end = 0;
    const auto size_of = [&](std::int64_t g) {
        const NodeGroup& nodes = scenario.cluster.node_groups[static_cast<std::size_t>(g)];
        return nodes.count * nodes.node.devices;
    };
    group_end = size_of(0);
    for (std::int64_t rank = 0; rank < ranks;) {
        while (rank >= group_end && group + 1 < groups) {
            group_end += size_of(++group);
        }
        const bool last_group = group + 1 == groups;
        const std::int64_t stage_end = (rank / run + 1) * run;
        const std::int64_t end =
            std::min(ranks, last_group ? stage_end : std::min(stage_end, group_end));
        const std::int64_t stage = rank / run % layout.pp;
        RankClass& entry = all[static_cast<std::size_t>(stage * groups + group)];
        if (entry.count == 0) {
            entry = {stage, group, 0, rank};
        }
        entry.count += end - rank;
        rank = end;
    }
    std::erase_if(all, [](const RankClass& c) { return c.count == 0; });
    return all;
}

} // namespace

std::vector<Stage> stages_of(const ModelSpec& model, const Layout& layout,
                             const LayoutTables& tables, StagePartition partition) {
    const Part* trunk = trunk_of(model);
    const bool twice = layout.schedule == ScheduleKind::dual_pipe && layout.chunks == 2;
    const std::int64_t slots = twice ? layout.pp : std::int64_t{layout.pp} * layout.chunks;
    Counts counts(static_cast<std::size_t>(slots), 0);
    if (layout.stage_map != 0) {
        counts = counts_from_map(layout, tables.stage_map(layout.stage_map), slots);
    } else if (trunk != nullptr) {
        counts = slice_counts(model, *trunk, slots, partition);
    }
    Counts first(counts.size(), 0);
    for (std::size_t slot = 1; slot < counts.size(); ++slot) {
        first[slot] = first[slot - 1] + counts[slot - 1];
    }
    std::vector<Stage> stages(layout.pp);
    for (std::int64_t i = 0; i < layout.pp; ++i) {
        Stage& stage = stages[static_cast<std::size_t>(i)];
        stage.chunks.reserve(layout.chunks);
        for (std::int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
            const std::int64_t slot = slice_of(layout, i, chunk);
            stage.has_embedding = stage.has_embedding || slot == 0;
            stage.has_head = stage.has_head || slot == slots - 1;
            stage.chunks.push_back(
                {first[static_cast<std::size_t>(slot)], counts[static_cast<std::size_t>(slot)]});
        }
    }
    return stages;
}

std::vector<KindCount> kinds_in(const Part& part, const Stage::Slice& slice) {
    std::vector<KindCount> out;
    const std::int64_t end = slice.first + slice.count;
    std::int64_t at = 0;
    for (const Run& run : part.runs) {
        const std::int64_t count = std::min(at + run.count, end) - std::max(at, slice.first);
        at += run.count;
        if (count <= 0) {
            continue;
        }
        if (!out.empty() && out.back().kind == run.kind) {
            out.back().count += count;
        } else {
            out.push_back({run.kind, count});
        }
    }
    return out;
}

std::vector<RankClass> rank_classes_of(const Scenario& scenario, const Layout& layout) {
    std::vector<RankClass> classes;
    if (scenario.cluster.node_groups.empty()) {
        return classes;
    }
    if (scenario.cluster.node_groups.size() > 1) {
        return classes_by_group(scenario, layout);
    }
    const std::int64_t run = rank_stride(layout, Dim::pp);
    classes.reserve(layout.pp);
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
        classes.push_back({stage, 0, rank_count(layout) / layout.pp, stage * run});
    }
    return classes;
}

Placement place(const Scenario& scenario, const Layout& layout, const LayoutTables& tables) {
    Placement out;
    out.order = order_of(layout.order);
    out.stages = stages_of(scenario.model, layout, tables, scenario.stack.capabilities.partition);
    const std::vector<NodeGroup>& groups = scenario.cluster.node_groups;
    if (groups.empty()) {
        return out;
    }
    std::int64_t left = rank_count(layout);
    out.devices_per_node = groups.front().node.devices;
    for (const NodeGroup& group : groups) {
        if (left <= 0 || group.node.devices <= 0) {
            break;
        }
        // Where node groups differ, the smallest nodes decide what stays inside one.
        out.devices_per_node = std::min(out.devices_per_node, group.node.devices);
        const std::int64_t nodes =
            std::min(group.count, (left + group.node.devices - 1) / group.node.devices);
        out.nodes += nodes;
        left -= nodes * group.node.devices;
    }
    out.classes = rank_classes_of(scenario, layout);
    return out;
}

std::int64_t rank_stride(const Layout& layout, Dim dim) {
    std::int64_t stride = 1;
    for (const Dim inner : order_of(layout.order)) {
        if (inner == dim) {
            break;
        }
        stride *= dim == Dim::ep ? expert_degree_of(layout, inner) : degree_of(layout, inner);
    }
    return stride;
}

Coordinates coordinates_of(const Layout& layout, std::int64_t rank) {
    const auto along = [&](Dim dim) {
        return rank / rank_stride(layout, dim) % degree_of(layout, dim);
    };
    return {along(Dim::tp), along(Dim::cp), along(Dim::dp), along(Dim::pp)};
}

std::int64_t rank_of(const Layout& layout, const Coordinates& at) {
    return at.tp * rank_stride(layout, Dim::tp) + at.cp * rank_stride(layout, Dim::cp) +
           at.dp * rank_stride(layout, Dim::dp) + at.pp * rank_stride(layout, Dim::pp);
}

} // namespace shardplan::sim
