#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/model/parameters.hpp"

/// Private to the .cpp files that make tables of parameters.
namespace shardplan::exec {

/// Of starting values.
inline constexpr double deviation = 0.02;

/// How rows and columns of a parameter are cut.
struct Cut {
    /// Sections of rows that are cut each on its own: queries, keys and values; gate and factor.
    std::vector<Index> sections = {};
    PartOf rows = {};
    PartOf columns = {};
    /// Of the sections after the first, where it is not `rows`; repeated by ranks in between.
    std::optional<PartOf> later_rows = std::nullopt;
};

/// Appends parameters in order.
class Adder {
public:
    Adder(ParameterTable& table, const RankShare& share) : table_(table), share_(share) {}

    void begin_unit(Index chunk) {
        const auto first = static_cast<Index>(table_.parameters.size());
        table_.units.push_back({first, 0, table_.count, 0, chunk});
    }
    /// Cut by the tensor-parallel ranks.
    Index matrix(std::string name, Index columns, Cut cut, double scale = 1.0) {
        Parameter p = cut_out(std::move(name), columns, cut);
        p.start = Start::normal;
        p.deviation = deviation * scale;
        p.decays = true;
        p.split = share_.tp.parts > 1;
        return add(std::move(p));
    }
    /// Of all experts, one after another; `cut` is that of one.
    Index experts(std::string name, Index experts, Index columns, const Cut& cut,
                  double scale = 1.0) {
        const Index own = experts / share_.ep.parts;
        Parameter one = cut_out(std::move(name), columns, cut);
        Parameter all = one;
        all.ranges.clear();
        for (Index e = 0; e < own; ++e) {
            for (const RowRange& range : one.ranges) {
                all.ranges.push_back(
                    {range.row + e * one.rows, range.rows,
                     range.first_row + (share_.ep.part * own + e) * one.whole_rows});
            }
        }
        all.rows *= own;
        all.whole_rows *= experts;
        all.deviation = deviation * scale;
        all.decays = true;
        all.holders = Holders::expert;
        all.split = share_.etp.parts > 1;
        return add(std::move(all));
    }
    /// Held whole by every tensor-parallel rank.
    Index whole(std::string name, Index rows, Index columns, Start start, bool decays,
                bool tokens_split) {
        Parameter p = cut_out(std::move(name), columns, {{rows}});
        p.start = start;
        p.deviation = start == Start::normal ? deviation : 0.0;
        p.decays = decays;
        p.tokens_split = tokens_split && share_.sp;
        return add(std::move(p));
    }
    std::optional<Index> vector(bool present, std::string name, Index count, Start start) {
        if (!present) return std::nullopt;
        return whole(std::move(name), count, 1, start, false, true);
    }
    /// A scale that each tensor-parallel rank uses for its own heads.
    Index head_scale(std::string name, Index count) {
        const Index i = whole(std::move(name), count, 1, Start::ones, false, true);
        table_.parameters.back().tokens_split = share_.tp.parts > 1;
        return i;
    }
    /// A bias that lies along the rows of a matrix cut by rows.
    std::optional<Index> bias(bool present, std::string name, const Cut& cut) {
        if (!present) return std::nullopt;
        Parameter p = cut_out(std::move(name), 1, cut);
        p.start = Start::zeros;
        p.split = share_.tp.parts > 1;
        return add(std::move(p));
    }
    /// Rows filled up so that every rank has as many.
    Index vocabulary(std::string name, Index vocab, Index columns) {
        const PartOf part = share_.tp;
        const Index rows = (vocab + part.parts - 1) / part.parts;
        Parameter p;
        p.name = std::move(name);
        p.rows = rows;
        p.columns = columns;
        p.whole_rows = vocab;
        p.whole_columns = columns;
        p.ranges = {{0, std::clamp<Index>(vocab - part.part * rows, 0, rows), part.part * rows}};
        p.deviation = deviation;
        p.decays = true;
        p.split = part.parts > 1;
        p.on_two_stages = share_.table_on_two_stages;
        return add(std::move(p));
    }
    Index vocabulary_bias(std::string name, Index vocab) {
        const Index i = vocabulary(std::move(name), vocab, 1);
        Parameter& p = table_.parameters.back();
        p.start = Start::zeros;
        p.deviation = 0.0;
        p.decays = p.on_two_stages = false;
        return i;
    }
    /// Biases of all experts, one after another.
    Index expert_bias(std::string name, Index count, const Cut& cut) {
        const Index i = experts(std::move(name), count, 1, cut, 0.0);
        Parameter& p = table_.parameters.back();
        p.start = Start::zeros;
        p.decays = false;
        p.split = cut.rows.parts > 1;
        return i;
    }

private:
    static Parameter cut_out(std::string name, Index columns, const Cut& cut) {
        Parameter p;
        p.name = std::move(name);
        p.rows = 0;
        p.columns = columns / cut.columns.parts;
        p.whole_rows = 0;
        p.whole_columns = columns;
        p.first_column = cut.columns.part * p.columns;
        for (const Index section : cut.sections) {
            const PartOf part = p.rows > 0 ? cut.later_rows.value_or(cut.rows) : cut.rows;
            const Index rows = section / part.parts;
            p.ranges.push_back({p.rows, rows, p.whole_rows + part.part * rows});
            p.rows += rows;
            p.whole_rows += section;
        }
        if (cut.later_rows) {
            p.repeats = cut.rows.parts / cut.later_rows->parts;
            p.repeated_row = p.ranges.front().rows;
        }
        return p;
    }
    Index add(Parameter parameter) {
        parameter.offset = table_.count;
        table_.count += parameter.count();
        table_.units.back().parameters += 1;
        table_.units.back().count += parameter.count();
        table_.parameters.push_back(std::move(parameter));
        return static_cast<Index>(table_.parameters.size()) - 1;
    }

    ParameterTable& table_;
    const RankShare& share_;
};

/// What the parameters of a block have in common.
struct BlockPlace {
    Index hidden = 0;
    std::string name;           ///< what all names begin with
    double into_residual = 1.0; ///< of starting values of maps into the residual stream
};

/// Appends the parameters of a block in the order of its forward pass.
BlockParameters add_block(Adder& add, const RankShare& share, const sim::BlockKind& kind,
                          const BlockPlace& block);

} // namespace shardplan::exec
