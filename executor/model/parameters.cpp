#include "executor/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "executor/model/parameter_adder.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

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
            table.embedding_scale = add.vector(e.norm && trunk.norm_affine, "embedding_norm.scale",
                                               hidden, Start::ones);
            table.embedding_shift = add.vector(e.norm && trunk.norm_affine && trunk.norm_bias,
                                               "embedding_norm.shift", hidden, Start::zeros);
        }
        for (Index i = chunk.first; i < chunk.first + chunk.count; ++i) {
            add.begin_unit(number);
            const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
            table.blocks.push_back(
                add_block(add, share, model.block_kinds[kind],
                          {hidden, "blocks." + std::to_string(i) + ".", into_residual}));
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
        if (e.head_bias) table.head_bias = add.vocabulary_bias("head.bias", e.vocab);
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
