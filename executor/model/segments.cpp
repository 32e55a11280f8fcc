#include "executor/model/segments.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

namespace {

/// Portion of each unit of the table.
std::vector<Index> portion_of_units(const ParameterTable& table, const PortionRule& rule) {
    std::vector<Index> of;
    const auto units = static_cast<Index>(table.units.size());
    if (!rule.by_chunk) {
        const Index buckets = std::clamp<Index>(rule.size, 1, std::max<Index>(1, units));
        for (Index u = 0; u < units; ++u) {
            of.push_back(u * buckets / units);
        }
        return of;
    }
    Index next = -1;
    Index in_chunk = 0;
    for (Index u = 0; u < units; ++u) {
        const auto at = static_cast<std::size_t>(u);
        const bool new_chunk = u == 0 || table.units[at].chunk != table.units[at - 1].chunk;
        in_chunk = new_chunk ? 0 : in_chunk + 1;
        const bool full = rule.size > 0 && in_chunk % rule.size == 0;
        if (new_chunk || full) ++next;
        of.push_back(next);
    }
    return of;
}

/// Units that begin or end a chunk, and read the table of tokens: by number of the unit.
std::vector<Index> units_with_table(const ParameterTable& table, const RankShare& share) {
    const bool tied = table.head == table.token_table;
    std::vector<Index> units;
    for (std::size_t u = 0; u < table.units.size(); ++u) {
        const Index chunk = table.units[u].chunk;
        const ChunkShare& ends = share.chunks[static_cast<std::size_t>(chunk)];
        const bool first = u == 0 || table.units[u - 1].chunk != chunk;
        const bool last = u + 1 == table.units.size() || table.units[u + 1].chunk != chunk;
        if ((first && ends.embeds) || (last && ends.has_head && tied)) {
            units.push_back(static_cast<Index>(u));
        }
    }
    return units;
}

class Arranger {
public:
    Arranger(const ParameterTable& table, const RankShare& share, Index dense_parts,
             Index expert_parts)
        : table_(table),
          share_(share),
          dense_parts_(dense_parts),
          expert_parts_(expert_parts),
          shared_table_(table.head == table.token_table ? table.token_table : std::nullopt) {}

    Arrangement run(const PortionRule& rule) {
        const std::vector<Index> portion_of = portion_of_units(table_, rule);
        std::vector<std::vector<Index>> parameters;
        std::vector<Index> owner(table_.parameters.size());
        for (std::size_t u = 0; u < table_.units.size(); ++u) {
            const ParameterUnit& unit = table_.units[u];
            const auto portion = static_cast<std::size_t>(portion_of[u]);
            if (portion == out_.portions.size()) {
                out_.portions.push_back({unit.chunk});
                parameters.emplace_back();
            }
            for (Index i = unit.first; i < unit.first + unit.parameters; ++i) {
                parameters[portion].push_back(i);
                owner[static_cast<std::size_t>(i)] = portion_of[u];
            }
        }
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            add_segments(out_.portions[p], std::move(parameters[p]));
        }
        for (const Index unit : units_with_table(table_, share_)) {
            const Index from = owner[static_cast<std::size_t>(*table_.token_table)];
            const Index by = portion_of[static_cast<std::size_t>(unit)];
            std::vector<Index>& reads = out_.portions[static_cast<std::size_t>(by)].reads;
            if (from != by && reads.empty()) reads.push_back(from);
        }
        return std::move(out_);
    }

private:
    /// A tied table that stands on another stage in another place among the parameters.
    [[nodiscard]] bool stands_apart(Index i) const {
        return table_[i].on_two_stages || (share_.mirrored && shared_table_ == i);
    }
    void add_segments(Portion& portion, std::vector<Index> parameters) {
        if (share_.mirrored) {
            // chunks are counted the other way round on the other stage
            std::sort(parameters.begin(), parameters.end(),
                      [&](Index a, Index b) { return table_[a].name < table_[b].name; });
        }
        portion.first_segment = static_cast<Index>(out_.segments.size());
        for (const bool apart : {false, true}) {
            for (const Holders holders : {Holders::dense, Holders::expert}) {
                Segment segment;
                segment.holders = holders;
                segment.parts = holders == Holders::dense ? dense_parts_ : expert_parts_;
                for (const Index i : parameters) {
                    if (table_[i].holders != holders || stands_apart(i) != apart) continue;
                    segment.parameters.push_back(i);
                    segment.count += table_[i].count();
                    segment.on_two_stages = table_[i].on_two_stages;
                }
                if (segment.count > 0) out_.segments.push_back(std::move(segment));
            }
        }
        portion.segments = static_cast<Index>(out_.segments.size()) - portion.first_segment;
    }

    const ParameterTable& table_;
    const RankShare& share_;
    Index dense_parts_;
    Index expert_parts_;
    std::optional<Index> shared_table_;
    Arrangement out_;
};

} // namespace

Arrangement arrange(const ParameterTable& table, const RankShare& share, const PortionRule& rule,
                    Index dense_parts, Index expert_parts) {
    return Arranger(table, share, dense_parts, expert_parts).run(rule);
}

} // namespace shardplan::exec
