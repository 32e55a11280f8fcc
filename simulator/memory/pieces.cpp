#include "simulator/memory/pieces.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::sim {

namespace {

void add_segments(const ShardDegrees& parts, const UnitElements& sum, Portion& portion) {
    if (sum.dense > 0.0) portion.segments.push_back({sum.dense, parts.dense, false});
    if (sum.expert > 0.0) portion.segments.push_back({sum.expert, parts.expert, true});
    if (sum.table > 0.0) portion.segments.push_back({sum.table, parts.dense, false});
}

} // namespace

StageUnits stage_units(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                       const Stage& stage, std::size_t number) {
    const Part& trunk = *trunk_of(model);
    const bool mirrored = layout.schedule == ScheduleKind::dual_pipe && layout.pp > 1;
    const bool apart = model.embedding.tied && layout.pp > 1 &&
                       (mirrored || stage.has_embedding != stage.has_head);
    // what a head without the embedding holds beside its norm is the table
    const double table = model.embedding.tied
                             ? head_on_rank(model, resolved, layout, false).trained() -
                                   head_on_rank(model, resolved, layout, true).trained()
                             : 0.0;
    StageUnits out;
    for (const Stage::Slice& slice : stage.chunks) {
        std::vector<UnitElements>& chunk = out.emplace_back();
        for (const KindCount& run : kinds_in(trunk, slice)) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
            const RankParameters p = block_on_rank(kind, trunk.hidden, resolved, layout);
            chunk.insert(chunk.end(), static_cast<std::size_t>(run.count),
                         {p.dense, 0.0, p.expert});
        }
    }
    // the way back of dualpipe begins on the last stage, in its last chunk
    const bool back = mirrored && number > 0;
    // a tied table lies in the unit that comes first
    const bool tied_here = model.embedding.tied && stage.has_embedding && stage.has_head;
    const bool head_holds = tied_here && back;
    const auto split = [&](double all) {
        return apart ? UnitElements{all - table, table} : UnitElements{all};
    };
    if (stage.has_embedding) {
        std::vector<UnitElements>& chunk = back ? out.back() : out.front();
        const double all = embedding_on_rank(model, resolved, layout).trained();
        UnitElements unit = head_holds ? UnitElements{all - table} : split(all);
        unit.reads_table = true;
        unit.holds_table = !head_holds;
        chunk.insert(chunk.begin(), unit);
    }
    if (stage.has_head) {
        std::vector<UnitElements>& chunk = back ? out.front() : out.back();
        const double all = head_on_rank(model, resolved, layout, stage.has_embedding).trained();
        UnitElements unit = head_holds                      ? split(all + table)
                            : apart && !stage.has_embedding ? split(all)
                                                            : UnitElements{all};
        unit.reads_table = model.embedding.tied;
        unit.holds_table = unit.reads_table && (head_holds || !stage.has_embedding);
        unit.is_head = true;
        chunk.push_back(unit);
    }
    return out;
}

double Segment::piece() const { return std::ceil(count / parts); }

double Segment::piece_here(std::int64_t thousandths) const {
    return piece() - std::floor(piece() * static_cast<double>(thousandths) /
                                static_cast<double>(offload_scale));
}

namespace {

/// Units of a portion; 0: all of a chunk.
std::int32_t portion_units(const Layout& layout) {
    return layout.shard == Shard::all ? wrapped_units(layout.wrap) : 1;
}

} // namespace

std::vector<Portion> portions_of(const Layout& layout, const StageUnits& units) {
    const ShardDegrees parts = layout.shard == Shard::none ? ShardDegrees{} : shard_degrees(layout);
    const bool by_unit = layout.shard >= Shard::optimizer_gradients &&
                         (parts.dense > 1.0 || layout.offload_parameters > 0);
    const auto wrapped = static_cast<std::size_t>(portion_units(layout));
    std::vector<Portion> out;
    UnitElements sum;
    const auto close = [&] {
        add_segments(parts, sum, out.emplace_back());
        sum = {};
    };
    for (const std::vector<UnitElements>& chunk : units) {
        for (std::size_t i = 0; i < chunk.size(); ++i) {
            sum.dense += chunk[i].dense;
            sum.table += chunk[i].table;
            sum.expert += chunk[i].expert;
            const bool full = wrapped > 0 && (i + 1) % wrapped == 0;
            if (by_unit && (full || i + 1 == chunk.size())) close();
        }
    }
    if (!by_unit) close();
    return out;
}

double split_elements(const Portion& portion) {
    double sum = 0.0;
    for (const Segment& segment : portion.segments) {
        if (segment.parts > 1.0) sum += segment.room();
    }
    return sum;
}

double gathered_elements(const Layout& layout, const Portion& portion) {
    double sum = 0.0;
    for (const Segment& segment : portion.segments) {
        if (segment.parts > 1.0 || layout.offload_parameters > 0) sum += segment.room();
    }
    return sum;
}

namespace {

/// What is whole by unit, from the portions that the units are in.
class Windows {
public:
    Windows(const Layout& layout, const StageUnits& units) : layout_(layout), units_(units) {
        const auto wrapped = static_cast<std::size_t>(portion_units(layout));
        for (const Portion& portion : portions_of(layout, units)) {
            gradients_.push_back(split_elements(portion));
            values_.push_back(gathered_elements(layout, portion));
        }
        std::size_t next = 0;
        for (const std::vector<UnitElements>& chunk : units) {
            auto& of = portion_.emplace_back();
            for (std::size_t i = 0; i < chunk.size(); ++i) {
                if (i > 0 && wrapped > 0 && i % wrapped == 0) ++next;
                of.push_back(next);
                if (chunk[i].holds_table) table_ = next;
                if (chunk[i].is_head) head_ = next;
                shares_table_ = shares_table_ || (chunk[i].is_head && chunk[i].reads_table);
            }
            if (!chunk.empty()) ++next;
        }
    }

    StageWindows run() {
        StageWindows out;
        for (std::size_t c = 0; c < units_.size(); ++c) {
            std::vector<UnitWindow>& windows = out.of.emplace_back();
            for (std::size_t u = 0; u < units_[c].size(); ++u)
                windows.push_back(window(c, u));
            start();
            if (!units_[c].empty()) take(first(c), last(c));
            out.gradients.push_back(sum(gradients_));
        }
        start();
        if (head_ != none) left_by_loss();
        out.after_loss = sum(gradients_);
        return out;
    }

private:
    static constexpr std::size_t none = ~std::size_t{0};

    UnitWindow window(std::size_t c, std::size_t u) {
        UnitWindow out;
        const std::size_t at = portion_[c][u];
        for (const PassKind pass : {PassKind::forward, PassKind::backward, PassKind::weight}) {
            const auto p = static_cast<std::size_t>(pass);
            if (layout_.shard == Shard::all) out.values[p] = values(c, at, pass);
            out.gradients[p] = gradients(c, u, pass);
            if (pass == PassKind::backward) {
                taken_[at] = false;
                out.others = sum(gradients_);
            }
        }
        return out;
    }

    double values(std::size_t c, std::size_t at, PassKind pass) {
        start();
        const std::size_t ahead = layout_.prefetch;
        // portions are gathered ahead in the order of use, from the end of one pass into the next,
        // which goes the other way; what is not given back after the forward pass waits for it
        const std::size_t count = last(c) - first(c);
        const bool forward = pass == PassKind::forward;
        if (pass == PassKind::weight) {
            // which reads none, so that those of the next pass are on their way
            if (ahead == 0) return sum(values_);
            read(first(c), std::min(last(c), first(c) + ahead));
            const double begins = sum(values_);
            start();
            read(last(c) < first(c) + ahead ? first(c) : last(c) - ahead, last(c));
            return std::max(begins, sum(values_));
        }
        const std::size_t done = forward ? at - first(c) : last(c) - at; // in this pass
        const std::size_t end = std::min(count, done + ahead);
        const std::size_t turned = done + ahead > count + 1 ? done + ahead - count - 1 : 0;
        const std::size_t back = turned < count ? std::min(done, count - turned) : 0;
        if (forward) {
            read(first(c) + (layout_.reshard ? back : 0), first(c) + end);
        } else {
            read(first(c) + (layout_.reshard ? count - end : 0),
                 layout_.reshard ? last(c) - back : at);
        }
        return sum(values_);
    }

    double gradients(std::size_t c, std::size_t u, PassKind pass) {
        start();
        const std::size_t at = portion_[c][u];
        const bool splits = splits_backward(layout_.schedule);
        if (pass == PassKind::forward) {
            // the products of the loss make those of the table; the norm's follow when logits are
            // gone
            if (units_[c][u].is_head) take_table();
            return sum(gradients_);
        }
        // norms have gradients before those of weights are made up for
        if (pass == PassKind::backward) {
            take(at, splits ? last(c) : at);
        } else {
            take(first(c), at);
        }
        // and those of a table that the loss has begun stay until the embedding's are there
        if (shares_table_ && table_ != head_) take_table();
        return sum(gradients_);
    }

    [[nodiscard]] std::size_t first(std::size_t c) const { return portion_[c].front(); }
    [[nodiscard]] std::size_t last(std::size_t c) const { return portion_[c].back(); }
    void start() { taken_.assign(values_.size(), false); }
    void take(std::size_t from, std::size_t to) {
        for (std::size_t p = from; p <= to; ++p)
            taken_[p] = true;
    }
    /// Portions, and that of the table where units in them read it.
    void read(std::size_t from, std::size_t to) {
        take(from, to);
        for (std::size_t c = 0; c < units_.size() && table_ != none; ++c) {
            for (std::size_t u = 0; u < units_[c].size(); ++u) {
                const std::size_t p = portion_[c][u];
                if (units_[c][u].reads_table && from <= p && p <= to) taken_[table_] = true;
            }
        }
    }
    void left_by_loss() {
        take(head_, head_);
        take_table();
    }
    /// Gradients of the head's table, wherever it lies.
    void take_table() {
        const std::size_t table = shares_table_ ? table_ : head_;
        if (table != none) take(table, table);
    }
    [[nodiscard]] double sum(const std::vector<double>& elements) const {
        double out = 0.0;
        for (std::size_t p = 0; p < taken_.size(); ++p)
            out += taken_[p] ? elements[p] : 0.0;
        return out;
    }

    const Layout& layout_;
    const StageUnits& units_;
    std::vector<double> gradients_;                 ///< elements by portion: that are reduced,
    std::vector<double> values_;                    ///< and that are made whole
    std::vector<std::vector<std::size_t>> portion_; ///< by chunk, then unit
    std::vector<bool> taken_;
    std::size_t table_ = none; ///< portions of the tied table and of the head
    std::size_t head_ = none;
    bool shares_table_ = false; ///< the head is on this rank, and reads it
};

} // namespace

StageWindows windows_of(const Layout& layout, const StageUnits& units) {
    const bool off_device = layout.shard == Shard::all && layout.offload_parameters > 0;
    if (layout.shard < Shard::optimizer_gradients) return {};
    if (shard_degrees(layout).dense <= 1.0 && !off_device) return {};
    return Windows(layout, units).run();
}

} // namespace shardplan::sim
