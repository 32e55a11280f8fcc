#include <algorithm>

#include "simulator/memory/stage_memory.hpp"

namespace shardplan::sim {

namespace {

/// The headlines of the row with these communicators, which no other rank order changes.
KnownHeadlines& headlines_of_row(const Layout& layout, const PlacedStages& placement,
                                 OrderedRows& rows) {
    if (placement.row == rows.row) return rows.known[rows.at];
    rows.row = placement.row;
    Layout common = layout;
    common.micro_batch = 0;
    common.order = 0;
    if (!(common == rows.common)) {
        rows.common = common;
        rows.used = 0;
    }
    rows.at = 0;
    while (rows.at < rows.used &&
           !(rows.known[rows.at].communicators == *placement.communicators)) {
        ++rows.at;
    }
    if (rows.at == rows.used) {
        ++rows.used;
        rows.known.resize(std::max(rows.known.size(), rows.used));
        rows.known[rows.at].communicators = *placement.communicators;
        rows.known[rows.at].by_micro_batch.clear();
    }
    rows.known[rows.at].next = 0;
    return rows.known[rows.at];
}

} // namespace

MemoryHeadline memory_headline(const MemoryInputs& in, const Layout& layout,
                               const PlacedStages& placement, MemoryCache& cache) {
    // where node groups differ, the order decides which stage lies on which
    const bool one_group = in.scenario.cluster.node_groups.size() == 1;
    if (placement.row == 0 || placement.communicators == nullptr || !one_group) {
        return nearest_headline(in, layout, placement, cache);
    }
    KnownHeadlines& row = headlines_of_row(layout, placement, cache.impl().ordered_rows);
    for (std::size_t tried = 0; tried < row.by_micro_batch.size(); ++tried) {
        if (row.next == row.by_micro_batch.size()) row.next = 0;
        const auto& [micro_batch, headline] = row.by_micro_batch[row.next];
        if (micro_batch == layout.micro_batch) return headline;
        ++row.next;
    }
    const MemoryHeadline made = nearest_headline(in, layout, placement, cache);
    row.by_micro_batch.emplace_back(layout.micro_batch, made);
    row.next = row.by_micro_batch.size();
    return made;
}

} // namespace shardplan::sim
