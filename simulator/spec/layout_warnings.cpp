#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "simulator/spec/parameters.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

namespace {

/// Devices of the smallest scale-up domain of the cluster.
std::int64_t domain_devices(const Cluster& cluster) {
    std::int64_t smallest = 0;
    for (const NodeGroup& group : cluster.node_groups) {
        const std::int64_t domain = std::max(group.node.scaleup.domain_devices, group.node.devices);
        smallest = smallest == 0 ? domain : std::min(smallest, domain);
    }
    return smallest;
}

/// Groups along a dimension that reach past the scale-up domain.
void warn_span(std::vector<Warning>& out, const Scenario& scenario, const Layout& layout, Dim dim,
               std::int64_t degree, std::string_view id, std::string_view what) {
    const std::int64_t span = degree * rank_stride(layout, dim);
    const std::int64_t domain = domain_devices(scenario.cluster);
    if (degree > 1 && span > domain) {
        out.push_back({std::string(id),
                       fmt::format("{} {} spans {} neighbouring devices and a scale-up domain has "
                                   "{}: its messages cross the network in every block",
                                   what, degree, span, domain)});
    }
}

void warn_parts(std::vector<Warning>& out, const ModelSpec& model) {
    for (const Part& part : model.parts) {
        const bool frozen =
            (part.role == PartRole::vision || part.role == PartRole::projector) && !part.trainable;
        if (frozen) {
            out.push_back({"part-not-costed",
                           fmt::format("the {} part \"{}\" is counted among the parameters and not "
                                       "in memory and time",
                                       name_of(part.role), part.name)});
        }
    }
}

bool has_experts(const ModelSpec& model) {
    return std::any_of(model.block_kinds.begin(), model.block_kinds.end(),
                       [](const BlockKind& kind) { return kind.ffn.kind == FfnKind::moe; });
}

/// What a job or a layout asks for and nothing of the scenario reads.
void warn_unread(std::vector<Warning>& out, const Scenario& scenario, const Resolved& resolved,
                 const Layout& layout) {
    const auto unread = [&](std::string text) { out.push_back({"no-effect", std::move(text)}); };
    if (!has_experts(scenario.model) && !(scenario.job.moe == MoeLoad{})) {
        unread(
            fmt::format("job.moe says how tokens reach experts and {} has none: it changes "
                        "nothing",
                        scenario.model.name));
    }
    const Method& method = scenario.job.method;
    const Method plain;
    if (method.kind == MethodKind::full &&
        (method.rank != plain.rank || method.targets != plain.targets)) {
        unread(
            "job.method names the rank or the targets of adapters and full training has none: "
            "they change nothing");
    }
    if (!scenario.job.global_batch.held) {
        unread(
            fmt::format("the global batch stays {} sequences: job.global_batch.held=false "
                        "changes nothing",
                        resolved.global_batch));
    }
    const std::vector<Shard>& shards = scenario.stack.capabilities.shards;
    const bool can_do_without =
        std::find(shards.begin(), shards.end(), Shard::none) != shards.end();
    if (layout.shard != Shard::none && shard_ranks(layout) == 1 && can_do_without &&
        resolved.method.kind == MethodKind::full) {
        unread(fmt::format("{} splits states over dp x cp and that is 1: it splits nothing",
                           name_of(layout.shard)));
    }
}

/// Kinds of attention that are timed as another one.
void warn_attention(std::vector<Warning>& out, const Scenario& scenario, const Resolved& resolved) {
    const Part* trunk = trunk_of(scenario.model);
    if (trunk == nullptr) return;
    std::set<std::int32_t> seen;
    for (const Run& run : trunk->runs) {
        if (!seen.insert(static_cast<std::int32_t>(run.kind)).second) continue;
        const BlockKind& kind = scenario.model.block_kinds[static_cast<std::size_t>(run.kind)];
        const Attention& a = kind.attention;
        // a few vectors (shifts of norms) cost nothing; maps of their own do
        if (a.opaque_parameters > 16 * trunk->hidden) {
            out.push_back({"attention-approximated",
                           fmt::format("block kind \"{}\" has {} parameters of a form that is not "
                                       "described: their work is not timed, and its attention is "
                                       "timed as {} over {} tokens",
                                       kind.name, a.opaque_parameters, name_of(a.kind),
                                       a.window > 0 ? a.window : resolved.sequence)});
        }
        if (a.window > 0 && a.window < resolved.sequence &&
            !skips_before_window(resolved.attention)) {
            out.push_back({"window-without-effect",
                           fmt::format("the {} kernel masks what lies before the window of {} "
                                       "tokens of block kind \"{}\" and computes it all the same",
                                       name_of(resolved.attention), a.window, kind.name)});
        }
    }
}

/// How a pipeline of several stages is filled and cut. `m`: micro-batches.
void warn_pipeline(std::vector<Warning>& out, const Scenario& scenario, const Layout& layout,
                   const LayoutTables& tables, std::int64_t m) {
    if (layout.schedule == ScheduleKind::interleaved && m % layout.pp != 0) {
        out.push_back({"interleaving-not-multiple",
                       fmt::format("{} micro-batches are no multiple of pp {}: the last round of "
                                   "interleaving runs partly empty",
                                   m, layout.pp)});
    }
    if (m > 0 && m < layout.pp) {
        out.push_back(
            {"few-micro-batches",
             fmt::format("{} micro-batches cannot fill {} pipeline stages", m, layout.pp)});
    }
    const std::vector<Stage> stages =
        stages_of(scenario.model, layout, tables, scenario.stack.capabilities.partition);
    std::int64_t shortest = -1;
    std::int64_t longest = 0;
    for (const Stage& stage : stages) {
        std::int64_t blocks = 0;
        for (const Stage::Slice& slice : stage.chunks) {
            blocks += slice.count;
        }
        shortest = shortest < 0 ? blocks : std::min(shortest, blocks);
        longest = std::max(longest, blocks);
    }
    std::int64_t smallest_chunk = longest;
    std::int64_t largest_chunk = 0;
    for (const Stage& stage : stages) {
        for (const Stage::Slice& slice : stage.chunks) {
            smallest_chunk = std::min(smallest_chunk, slice.count);
            largest_chunk = std::max(largest_chunk, slice.count);
        }
    }
    if (layout.chunks > 1 && smallest_chunk != largest_chunk) {
        out.push_back(
            {"uneven-chunks", fmt::format("chunks have {} to {} blocks: the stack must be told the "
                                          "layout of its stages",
                                          smallest_chunk, largest_chunk)});
    }
    if (shortest != longest) {
        out.push_back(
            {"uneven-stages", fmt::format("stages have {} to {} blocks: the longest sets the pace",
                                          shortest, longest)});
    }
}

} // namespace

std::vector<Warning> layout_warnings(const Scenario& scenario, const Resolved& resolved,
                                     const Layout& layout, const LayoutTables& tables) {
    std::vector<Warning> out;
    for (std::size_t i = 1; i < scenario.devices.size(); ++i) {
        if (scenario.devices[i].name != scenario.devices.front().name) {
            out.push_back({"mixed-devices",
                           fmt::format("node groups have different devices ({}, {}): every rank is "
                                       "timed at the pace of the slowest",
                                       scenario.devices.front().name, scenario.devices[i].name)});
            break;
        }
    }
    warn_span(out, scenario, layout, Dim::tp, layout.tp, "tp-across-nodes", "tp");
    warn_span(out, scenario, layout, Dim::ep, layout.ep, "ep-across-nodes", "ep");
    const std::int64_t m = micro_batches(resolved, layout);
    if (layout.pp > 1) warn_pipeline(out, scenario, layout, tables, m);
    const std::int64_t vocab = scenario.model.embedding.vocab;
    const std::int64_t padded = resolved.vocab_multiple > 0
                                    ? padded_vocab(vocab, resolved.vocab_multiple, layout.tp)
                                    : vocab;
    if (padded != vocab) {
        out.push_back(
            {"vocabulary-padded",
             fmt::format("{} pads the vocabulary from {} to {} rows (a multiple of {} x tp "
                         "{})",
                         scenario.stack.name, vocab, padded, resolved.vocab_multiple, layout.tp)});
    }
    const std::int64_t positions = scenario.model.max_positions;
    if (positions > 0 && resolved.sequence > positions) {
        out.push_back({"sequence-beyond-positions",
                       fmt::format("a sequence of {} tokens is longer than the {} positions {} was "
                                   "published with",
                                   resolved.sequence, positions, scenario.model.name)});
    }
    warn_parts(out, scenario.model);
    warn_unread(out, scenario, resolved, layout);
    warn_attention(out, scenario, resolved);
    return out;
}

} // namespace shardplan::sim
