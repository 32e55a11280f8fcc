#include <algorithm>

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
    if (layout.pp > 1 && layout.schedule == ScheduleKind::interleaved && m % layout.pp != 0) {
        out.push_back({"interleaving-not-multiple",
                       fmt::format("{} micro-batches are no multiple of pp {}: the last round of "
                                   "interleaving runs partly empty",
                                   m, layout.pp)});
    }
    if (layout.pp > 1 && m > 0 && m < layout.pp) {
        out.push_back(
            {"few-micro-batches",
             fmt::format("{} micro-batches cannot fill {} pipeline stages", m, layout.pp)});
    }
    if (layout.pp > 1) {
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
            out.push_back({"uneven-chunks",
                           fmt::format("chunks have {} to {} blocks: the stack must be told the "
                                       "layout of its stages",
                                       smallest_chunk, largest_chunk)});
        }
        if (shortest != longest) {
            out.push_back({"uneven-stages",
                           fmt::format("stages have {} to {} blocks: the longest sets the pace",
                                       shortest, longest)});
        }
    }
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
    return out;
}

} // namespace shardplan::sim
