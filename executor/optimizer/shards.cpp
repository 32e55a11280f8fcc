#include "executor/optimizer/shards.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

namespace {

using sim::TensorKind;

/// Values that are rounded to 16 bits at a time.
constexpr Index packed_at_once = 1 << 14;

/// What of a segment's parameters lies in elements `offset` to `offset` + piece - 1 of it.
std::vector<Stretch> stretches_of(const ParameterTable& table, const Segment& segment, Index part) {
    std::vector<Stretch> out;
    const Index begin = part * segment.piece();
    const Index end = begin + segment.piece();
    Index offset = 0;
    for (const Index i : segment.parameters) {
        const Index from = std::max(begin, offset);
        const Index to = std::min(end, offset + table[i].count());
        if (from < to) out.push_back({i, from - begin, to - begin, from - offset});
        offset += table[i].count();
    }
    return out;
}

} // namespace

template <class Scalar>
sim::Result<Shards<Scalar>> Shards<Scalar>::make(Parameters<Scalar>& parameters,
                                                 std::vector<Index> parts, const ShardRule& rule,
                                                 MemoryCount& memory) {
    Shards made(parameters, rule);
    made.pieces_.resize(parts.size());
    std::array<Index, 2> split = {0, 0};
    for (Index s = 0; s < made.segments(); ++s) {
        if (auto status = made.add(s, parts[static_cast<std::size_t>(s)], memory); !status) {
            return std::move(status).error();
        }
        if (!made.splits_gradients(s)) {
            parameters.hold_gradients(s);
            continue;
        }
        Index& held = split[static_cast<std::size_t>(made.segment(s).holders)];
        made.at(s).gradients = held;
        held += made.segment(s).piece();
    }
    for (std::size_t h = 0; h < split.size(); ++h) {
        made.gradients_[h].reset(split[h]);
        memory.add(TensorKind::gradients, split[h] * static_cast<Index>(sizeof(Scalar)));
    }
    return made;
}

template <class Scalar>
sim::Status Shards<Scalar>::add(Index s, Index part, MemoryCount& memory) {
    Piece& p = at(s);
    const Index count = segment(s).piece();
    const bool packs = parameters_->storage() == Storage::bf16;
    p.part = part;
    p.stretches = stretches_of(parameters_->table(), segment(s), part);
    p.gathers =
        rule_.shard == sim::Shard::all && (segment(s).parts > 1 || rule_.weights.of(count) > 0);
    if (!p.gathers) parameters_->hold_values(s, TensorKind::weights);
    const auto hold = [&](auto& buffer, const Offload& offload, TensorKind kind) -> sim::Status {
        using Tiered = std::remove_reference_t<decltype(buffer)>;
        auto made = Tiered::make(count, offload, kind, memory);
        if (!made) return std::move(made).error();
        buffer = std::move(*made);
        return sim::Done{};
    };
    if (packs || p.gathers) {
        const TensorKind kind = packs ? TensorKind::master_weights : TensorKind::weights;
        if (auto r = hold(p.values, packs ? rule_.states : rule_.weights, kind); !r) return r;
    }
    if (packs && p.gathers) {
        if (auto r = hold(p.packed, rule_.weights, TensorKind::weights); !r) return r;
    }
    if (auto r = hold(p.first, rule_.states, TensorKind::optimizer_states); !r) return r;
    if (rule_.optimizer != OptimizerKind::adamw) return sim::Done{};
    return hold(p.second, rule_.states, TensorKind::optimizer_states);
}

template <class Scalar>
Scalar* Shards<Scalar>::gradients(Index s) {
    if (splits_gradients(s)) return split_gradients(segment(s).holders).data() + at(s).gradients;
    return parameters_->gradients(s) + offset(s);
}

template <class Scalar>
Scalar* Shards<Scalar>::values_at(Index s, Index i) {
    Piece& p = at(s);
    return p.values.empty() ? parameters_->values(s) + offset(s) + i : p.values.at(i);
}

template <class Scalar>
void Shards<Scalar>::each_run(Index s, const std::function<void(const Run&)>& f) {
    Piece& p = at(s);
    for (const Stretch& stretch : p.stretches) {
        for (Index begin = stretch.begin; begin < stretch.end;) {
            Index end = stretch.end;
            for (const Index border : {p.values.border(), p.packed.border(), p.first.border()}) {
                if (border > begin) end = std::min(end, border);
            }
            f({{stretch.parameter, begin, end, stretch.first + begin - stretch.begin},
               values_at(s, begin),
               p.first.at(begin),
               p.second.empty() ? nullptr : p.second.at(begin)});
            begin = end;
        }
    }
}

template <class Scalar>
void Shards<Scalar>::pack_run(Index s, const Run& run) {
    if (parameters_->storage() != Storage::bf16) return;
    Piece& p = at(s);
    const Index begin = run.elements.begin;
    Bf16* out = p.gathers ? p.packed.at(begin) : parameters_->packed(s) + offset(s) + begin;
    pack(run.values, run.elements.end - begin, out);
}

template <class Scalar>
template <class F>
void Shards<Scalar>::each_buffer(Index s, F&& f) {
    f(at(s).values);
    f(at(s).packed);
    f(at(s).first);
    f(at(s).second);
}

template <class Scalar>
void Shards<Scalar>::prefetch(Index s) {
    if (s < segments()) each_buffer(s, [](const auto& buffer) { buffer.prefetch(); });
}

template <class Scalar>
void Shards<Scalar>::update(Index s, const std::function<void(const Run&)>& f) {
    prefetch(s + 1);
    each_run(s, [&](const Run& run) {
        f(run);
        pack_run(s, run);
    });
    each_buffer(s, [](const auto& buffer) { buffer.give_way(); });
}

template <class Scalar>
void Shards<Scalar>::pack_values() {
    if (parameters_->storage() != Storage::bf16) return;
    for (Index s = 0; s < segments(); ++s) {
        each_run(s, [&](const Run& run) { pack_run(s, run); });
    }
}

template <class Scalar>
void Shards<Scalar>::fill(const std::function<void(Index, Index, Index, Scalar*)>& values) {
    std::vector<Scalar> rounded;
    for (Index s = 0; s < segments(); ++s) {
        for (const Index i : at(s).gathers ? std::vector<Index>() : segment(s).parameters) {
            const Index count = parameters_->table()[i].count();
            const Index to = parameters_->offset_of(i);
            if (parameters_->storage() != Storage::bf16) {
                values(i, 0, count, parameters_->values(s) + to);
                continue;
            }
            for (Index begin = 0; begin < count; begin += packed_at_once) {
                const Index n = std::min(packed_at_once, count - begin);
                rounded.resize(static_cast<std::size_t>(n));
                values(i, begin, begin + n, rounded.data());
                pack(rounded.data(), n, parameters_->packed(s) + to + begin);
            }
        }
        if (at(s).values.empty()) continue;
        each_run(s, [&](const Run& run) {
            const Stretch& e = run.elements;
            values(e.parameter, e.first, e.first + e.end - e.begin, run.values);
            pack_run(s, run);
        });
    }
}

template <class Scalar>
void Shards<Scalar>::put_into_whole(Index s) {
    Piece& p = at(s);
    const auto copy = [&](auto& from, auto* to) {
        const Index border = from.border();
        std::copy_n(from.at(0), border, to);
        if (border < from.size()) std::copy_n(from.at(border), from.size() - border, to + border);
    };
    if (parameters_->storage() == Storage::bf16) {
        copy(p.packed, parameters_->packed(s) + offset(s));
    } else {
        copy(p.values, parameters_->values(s) + offset(s));
    }
}

template class Shards<float>;
template class Shards<double>;

} // namespace shardplan::exec
