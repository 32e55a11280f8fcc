#include "executor/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

constexpr double deviation = 0.02;

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

BlockParameters add_block(Adder& add, const RankShare& share, const sim::BlockKind& kind,
                          Index hidden, const std::string& block, double into_residual) {
    const sim::Attention& a = kind.attention;
    const sim::Ffn& f = kind.ffn;
    const sim::Norms& n = kind.norms;
    const Index queries = a.heads * a.qk_head_dim;
    const Index keys = a.kv_heads * a.qk_head_dim;
    const Cut qkv{{queries, keys, keys}, share.tp, {}, key_part(share.tp, a.kv_heads)};
    BlockParameters p;
    p.attention_scale = add.vector(n.affine, block + "attention_norm.scale", hidden, Start::ones);
    p.attention_shift =
        add.vector(n.affine && n.bias, block + "attention_norm.shift", hidden, Start::zeros);
    p.qkv = add.matrix(block + "qkv.weight", hidden, qkv);
    p.qkv_bias = add.bias(a.qkv_bias, block + "qkv.bias", qkv);
    p.attention_out = add.matrix(block + "attention_out.weight", queries, {{hidden}, {}, share.tp},
                                 into_residual);
    p.attention_out_bias =
        add.vector(a.out_bias, block + "attention_out.bias", hidden, Start::zeros);
    p.ffn_scale = add.vector(n.affine, block + "ffn_norm.scale", hidden, Start::ones);
    p.ffn_shift = add.vector(n.affine && n.bias, block + "ffn_norm.shift", hidden, Start::zeros);
    const auto sections = [&](Index width) {
        return f.gated ? std::vector<Index>{width, width} : std::vector<Index>{width};
    };
    if (f.kind == sim::FfnKind::moe) {
        p.router = add.whole(block + "router.weight", f.experts, hidden, Start::normal, true, true);
        p.up = add.experts(block + "expert_up.weight", f.experts, hidden,
                           {sections(f.expert_width), share.etp, {}});
        p.down = add.experts(block + "expert_down.weight", f.experts, f.expert_width,
                             {{hidden}, {}, share.etp}, into_residual);
        return p;
    }
    const Cut up{sections(f.width), share.tp, {}};
    p.up = add.matrix(block + "mlp_up.weight", hidden, up);
    p.up_bias = add.bias(f.bias, block + "mlp_up.bias", up);
    p.down =
        add.matrix(block + "mlp_down.weight", f.width, {{hidden}, {}, share.tp}, into_residual);
    p.down_bias = add.vector(f.bias, block + "mlp_down.bias", hidden, Start::zeros);
    return p;
}

/// Of the standard normal distribution, by Box and Muller.
double normal(std::size_t key, std::uint64_t i) {
    constexpr double unit = 0x1.0p-53;
    const auto uniform = [&](std::uint64_t n) {
        return (static_cast<double>(sim::hash_mix(key, n) >> 11U) + 0.5) * unit;
    };
    return std::sqrt(-2.0 * std::log(uniform(2 * i))) *
           std::cos(2.0 * std::numbers::pi * uniform(2 * i + 1));
}

std::size_t key_of(std::uint64_t seed, const std::string& name) {
    std::size_t key = sim::hash_mix(0, seed);
    for (const char c : name) {
        key = sim::hash_mix(key, static_cast<std::uint8_t>(c));
    }
    return key;
}

} // namespace

ParameterTable parameter_table(const sim::ModelSpec& model, const RankShare& share) {
    const sim::Part& trunk = *sim::trunk_of(model);
    const sim::Embedding& e = model.embedding;
    const Index hidden = trunk.hidden;
    const double into_residual =
        1.0 / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, sim::block_count(trunk))));
    const bool scaled = trunk.final_norm && trunk.norm_affine;
    ParameterTable table;
    Adder add(table, share);
    for (std::size_t c = 0; c < share.chunks.size(); ++c) {
        const ChunkShare& chunk = share.chunks[c];
        const auto number = static_cast<Index>(c);
        if (chunk.embeds) {
            add.begin_unit(number);
            if (!table.token_table) {
                table.token_table = add.vocabulary("token_table", e.vocab, hidden);
            }
            if (e.positions == sim::Positions::learned) {
                table.position_table = add.whole("position_table", e.position_rows, hidden,
                                                 Start::normal, false, true);
            }
        }
        for (Index i = chunk.first; i < chunk.first + chunk.count; ++i) {
            add.begin_unit(number);
            const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
            table.blocks.push_back(add_block(add, share, model.block_kinds[kind], hidden,
                                             "blocks." + std::to_string(i) + ".", into_residual));
        }
        if (!chunk.has_head) continue;
        add.begin_unit(number);
        table.final_scale = add.vector(scaled, "final_norm.scale", hidden, Start::ones);
        table.final_shift =
            add.vector(scaled && trunk.norm_bias, "final_norm.shift", hidden, Start::zeros);
        if (e.tied && !table.token_table) {
            table.token_table = add.vocabulary("token_table", e.vocab, hidden);
        }
        table.head = e.tied ? *table.token_table : add.vocabulary("head.weight", e.vocab, hidden);
    }
    return table;
}

template <class T>
Buffer<T> Spares<T>::take(Index count, bool zeros) {
    std::vector<Buffer<T>>& kept = kept_[count];
    if (kept.empty()) return Buffer<T>(count);
    Buffer<T> buffer = std::move(kept.back());
    kept.pop_back();
    if (zeros) std::fill_n(buffer.data(), count, T{});
    return buffer;
}

template <class T>
void Spares<T>::give(Buffer<T> buffer) {
    kept_[buffer.size()].push_back(std::move(buffer));
}

template <class Scalar>
Parameters<Scalar>::Parameters(ParameterTable table, Storage storage)
    : table_(std::move(table)), storage_(storage) {
    Segment all;
    all.parameters.resize(table_.parameters.size());
    std::iota(all.parameters.begin(), all.parameters.end(), Index{0});
    all.count = table_.count;
    place({std::move(all)});
}

template <class Scalar>
void Parameters<Scalar>::place(std::vector<Segment> segments) {
    segments_ = std::move(segments);
    whole_ = std::vector<Whole>(segments_.size());
    places_.resize(table_.parameters.size());
    for (std::size_t s = 0; s < segments_.size(); ++s) {
        Index offset = 0;
        for (const Index i : segments_[s].parameters) {
            places_[static_cast<std::size_t>(i)] = {static_cast<Index>(s), offset};
            offset += table_[i].count();
        }
    }
}

template <class Scalar>
void Parameters<Scalar>::hold_all() {
    Whole& all = whole_.front();
    if (count_ != nullptr || !all.values.empty()) return;
    all.values.reset(table_.count);
    if (storage_ == Storage::bf16) all.packed.reset(table_.count);
}

template <class Scalar>
Scalar* Parameters<Scalar>::values() {
    hold_all();
    return whole_.front().values.data();
}

template <class Scalar>
Scalar* Parameters<Scalar>::gradients() {
    hold_gradients(0);
    return whole_.front().gradients.data();
}

template <class Scalar>
void Parameters<Scalar>::changed() {
    Whole& all = whole_.front();
    if (!all.packed.empty()) pack(all.values.data(), table_.count, all.packed.data());
}

template <class Scalar>
void Parameters<Scalar>::clear_gradients(Kernels<Scalar>& kernels) {
    for (Whole& whole : whole_) {
        kernels.fill(whole.gradients.size(), Scalar(0), whole.gradients.data());
    }
}

template <class Scalar>
void start_values(const Parameter& p, std::uint64_t seed, Index begin, Index end, Scalar* out) {
    if (p.start != Start::normal) {
        std::fill_n(out, end - begin, Scalar(p.start == Start::ones ? 1 : 0));
        return;
    }
    const std::size_t key = key_of(seed, p.name);
    std::fill_n(out, end - begin, Scalar(0));
    for (const RowRange& range : p.ranges) {
        const Index first = range.row * p.columns;
        const Index last = (range.row + range.rows) * p.columns;
        for (Index i = std::max(begin, first); i < std::min(end, last); ++i) {
            const Index row = range.first_row + i / p.columns - range.row;
            const Index whole = row * p.whole_columns + p.first_column + i % p.columns;
            out[i - begin] =
                static_cast<Scalar>(p.deviation * normal(key, static_cast<std::uint64_t>(whole)));
        }
    }
}

template <class Scalar>
void Parameters<Scalar>::start(std::uint64_t seed) {
    Scalar* all = values();
    for (const Parameter& p : table_.parameters) {
        start_values(p, seed, 0, p.count(), all + p.offset);
    }
    changed();
}

template <class Scalar>
Reading<Scalar> Parameters<Scalar>::read(Arena& arena, Index i) {
    hold_all();
    const Place& place = places_[static_cast<std::size_t>(i)];
    const Whole& whole = at(place.segment);
    if (storage_ == Storage::scalar) return Reading<Scalar>(whole.values.data() + place.offset);
    return {arena, whole.packed.data() + place.offset, table_[i].count()};
}

template <class Scalar>
Scalar* Parameters<Scalar>::gradient(Index i) {
    const Place& place = places_[static_cast<std::size_t>(i)];
    hold_gradients(place.segment);
    return at(place.segment).gradients.data() + place.offset;
}

template <class Scalar>
Buffer<Scalar> Parameters<Scalar>::arrange(std::vector<Segment> segments, MemoryCount& count) {
    Buffer<Scalar> before = std::move(whole_.front().values);
    count_ = &count;
    place(std::move(segments));
    return before;
}

template <class Scalar>
void Parameters<Scalar>::hold_values(Index segment, sim::TensorKind kind) {
    Whole& whole = at(segment);
    whole.kind = kind;
    if (storage_ == Storage::bf16) {
        whole.packed = packed_spares_.take(room(segment), false);
        count_->add(kind, room(segment) * static_cast<Index>(sizeof(Bf16)));
    } else {
        whole.values = spares_.take(room(segment), false);
        count_->add(kind, room(segment) * static_cast<Index>(sizeof(Scalar)));
    }
}

template <class Scalar>
void Parameters<Scalar>::drop_values(Index segment) {
    Whole& whole = at(segment);
    if (storage_ == Storage::bf16) {
        packed_spares_.give(std::exchange(whole.packed, {}));
        count_->remove(whole.kind, room(segment) * static_cast<Index>(sizeof(Bf16)));
    } else {
        spares_.give(std::exchange(whole.values, {}));
        count_->remove(whole.kind, room(segment) * static_cast<Index>(sizeof(Scalar)));
    }
}

template <class Scalar>
void Parameters<Scalar>::hold_gradients(Index segment) {
    Whole& whole = at(segment);
    if (!whole.gradients.empty()) return;
    whole.gradients = spares_.take(room(segment), true);
    if (count_ == nullptr) return;
    count_->add(sim::TensorKind::gradients, room(segment) * static_cast<Index>(sizeof(Scalar)));
}

template <class Scalar>
void Parameters<Scalar>::drop_gradients(Index segment) {
    spares_.give(std::exchange(at(segment).gradients, {}));
    count_->remove(sim::TensorKind::gradients, room(segment) * static_cast<Index>(sizeof(Scalar)));
}

#define SHARDPLAN_INSTANTIATE(S)  \
    template class Parameters<S>; \
    template class Spares<S>;     \
    template void start_values<S>(const Parameter&, std::uint64_t, Index, Index, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE
template class Spares<Bf16>;

} // namespace shardplan::exec
