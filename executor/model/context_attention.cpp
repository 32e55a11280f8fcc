#include "executor/model/context_attention.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::exec {

template <class Scalar>
ContextAttention<Scalar>::ContextAttention(Kernels<Scalar>* kernels, Arena* arena, Links* links,
                                           const RowShare* rows, const Sizes& sizes)
    : kernels_(kernels),
      arena_(arena),
      links_(links),
      rows_(rows),
      sizes_(sizes),
      qkv_{sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim,
           sizes.kv_heads * sizes.value_dim} {
    const Index ranks = links->share().cp.parts;
    const Index key_parts = std::min(ranks, sizes.kv_heads);
    exchanged_qkv_ = {{{qkv_[0], ranks}, {qkv_[1], key_parts}, {qkv_[2], key_parts}}};
    exchanged_out_ = {sizes.heads * sizes.value_dim, ranks};
}

template <class Scalar>
bool ContextAttention<Scalar>::exchanges_heads() const {
    return links_->share().cp.parts > 1 && links_->share().cp_kind == sim::CpKind::all_to_all;
}

// ---- Heads for tokens --------------------------------------------------------------------------

namespace {

/// Columns of all heads, and of the part that one rank gets.
struct RowWidths {
    Index all = 0;
    Index part = 0;
};
template <class Sections>
RowWidths widths_of(const Sections& sections) {
    RowWidths out;
    for (const auto& section : sections) {
        out.all += section.width;
        out.part += section.width / section.parts;
    }
    return out;
}

/// Calls `f(in_row, in_message, width)` for each part of each of `rows` rows with all heads, and of
/// the messages of rank after rank: its heads of every row.
template <class Sections, class F>
void each_part(const Sections& sections, Index rows, Index ranks, F&& f) {
    const Index width = widths_of(sections).all;
    Index in_message = 0;
    for (Index rank = 0; rank < ranks; ++rank) {
        for (Index row = 0; row < rows; ++row) {
            Index in_row = row * width;
            for (const auto& section : sections) {
                const Index part = section.width / section.parts;
                f(in_row + rank * section.parts / ranks * part, in_message, part);
                in_message += part;
                in_row += section.width;
            }
        }
    }
}

/// Copies between the order of messages (rank after rank, each with its rows of all samples) and
/// that of sequences (sample after sample, each with the rows of all ranks).
template <class Scalar>
void sort_pieces(Index ranks, Index samples, Index piece, bool to_samples, const Scalar* from,
                 Scalar* to) {
    for (Index i = 0; i < ranks * samples; ++i) {
        const Index in_messages = i * piece;
        const Index in_samples = (i % samples * ranks + i / samples) * piece;
        std::copy_n(from + (to_samples ? in_messages : in_samples), piece,
                    to + (to_samples ? in_samples : in_messages));
    }
}

/// Messages of all ranks back into rows; parts that several ranks have are added up.
template <class Sections, class Scalar>
void join_parts(const Sections& sections, Index rows, Index ranks, const Scalar* from, Scalar* to) {
    const auto is_own = [&](const auto& section) { return section.parts == ranks; };
    if (std::all_of(sections.begin(), sections.end(), is_own)) {
        each_part(sections, rows, ranks, [&](Index in_row, Index in_message, Index width) {
            std::copy_n(from + in_message, width, to + in_row);
        });
        return;
    }
    std::fill_n(to, rows * widths_of(sections).all, Scalar(0));
    each_part(sections, rows, ranks, [&](Index in_row, Index in_message, Index width) {
        for (Index i = 0; i < width; ++i) {
            to[in_row + i] += from[in_message + i];
        }
    });
}

} // namespace

template <class Scalar>
Index ContextAttention<Scalar>::core_count() const {
    const Index ranks = links_->share().cp.parts;
    return exchanges_heads() ? rows_->all * ranks * widths_of(exchanged_qkv_).part
                             : rows_->all * (qkv_[0] + kv_width());
}

template <class Scalar>
void ContextAttention<Scalar>::to_heads(std::span<const Section> sections, const Scalar* rows,
                                        Scalar* whole) const {
    const Index ranks = links_->share().cp.parts;
    const Index width = widths_of(sections).part;
    const Index count = rows_->all * ranks * width;
    Scratch<Scalar> sent(*arena_, count);
    each_part(sections, rows_->all, ranks, [&](Index in_row, Index in_message, Index part) {
        std::copy_n(rows + in_row, part, sent.data() + in_message);
    });
    if (sizes_.samples == 1) {
        links_->all_to_all(sim::Group::cp, sent.data(), whole, count);
        return;
    }
    Scratch<Scalar> received(*arena_, count);
    links_->all_to_all(sim::Group::cp, sent.data(), received.data(), count);
    sort_pieces(ranks, sizes_.samples, rows_->length() * width, true, received.data(), whole);
}

template <class Scalar>
void ContextAttention<Scalar>::to_tokens(std::span<const Section> sections, const Scalar* whole,
                                         Scalar* rows) const {
    const Index ranks = links_->share().cp.parts;
    const Index width = widths_of(sections).part;
    const Index count = rows_->all * ranks * width;
    Scratch<Scalar> received(*arena_, count);
    if (sizes_.samples == 1) {
        links_->all_to_all(sim::Group::cp, whole, received.data(), count);
        join_parts(sections, rows_->all, ranks, received.data(), rows);
        return;
    }
    Scratch<Scalar> sent(*arena_, count);
    sort_pieces(ranks, sizes_.samples, rows_->length() * width, false, whole, sent.data());
    links_->all_to_all(sim::Group::cp, sent.data(), received.data(), count);
    join_parts(sections, rows_->all, ranks, received.data(), rows);
}

// ---- Keys and values of other ranks ------------------------------------------------------------

template <class Scalar>
void ContextAttention<Scalar>::take_kv(const Scalar* qkv, Scalar* kv) const {
    const Index width = kv_width();
    for (Index row = 0; row < rows_->all; ++row) {
        std::copy_n(qkv + row * (qkv_[0] + width) + qkv_[0], width, kv + row * width);
    }
}

template <class Scalar>
void ContextAttention<Scalar>::put_kv(const Scalar* kv, Scalar* qkv) const {
    const Index width = kv_width();
    for (Index row = 0; row < rows_->all; ++row) {
        std::copy_n(kv + row * width, width, qkv + row * (qkv_[0] + width) + qkv_[0]);
    }
}

template <class Scalar>
void ContextAttention<Scalar>::attend(Queries& own, Index rank, const Scalar* kv,
                                      Scalar* dkv) const {
    const RankShare& share = links_->share();
    AttentionShape s = shape_of(own.drawn);
    s.query_stride = qkv_[0] + kv_width();
    s.key_stride = kv_width();
    s.query_rows = s.key_rows = rows_->length();
    Index query_row = 0;
    for (std::size_t i = 0; i < rows_->pieces.size(); ++i) {
        const Piece& mine = rows_->pieces[i];
        Index key_row = 0;
        for (const Piece& theirs :
             pieces_of(sizes_.sequence, {rank, share.cp.parts}, share.cp_kind)) {
            const Index q = query_row * s.query_stride;
            const Index out = query_row * exchanged_out_.width;
            const Index k = key_row * s.key_stride;
            const Index v = k + qkv_[1];
            key_row += theirs.length;
            const Index between = mine.first - (theirs.first + theirs.length - 1);
            if (theirs.first > mine.first || (s.window > 0 && between >= s.window)) continue;
            s.first_query = mine.first;
            s.first_key = theirs.first;
            s.queries = mine.length;
            s.keys = theirs.length;
            s.causal = theirs.first == mine.first;
            if (dkv != nullptr) {
                s.joins = true;
                kernels_->attention_backward(s, own.q + q, kv + k, kv + v, own.kept_out + out,
                                             own.kept_lse + query_row, own.dout + out, own.dq + q,
                                             dkv + k, dkv + v);
                continue;
            }
            s.joins = own.begun[i];
            kernels_->attention_forward(s, own.q + q, kv + k, kv + v, own.out + out,
                                        own.lse + query_row);
            own.begun[i] = true;
        }
        query_row += mine.length;
    }
}

namespace {

/// A block of keys and values on its way round the ranks, of which each has it in turn; in 16 bits
/// where activations wait so, as which it loses nothing.
template <class Scalar>
class TravellingBlock {
public:
    TravellingBlock(Links& links, Arena& arena, Scratch<Scalar>& block, Index count)
        : links_(links), block_(block), count_(count), next_(arena, count) {
        if (!links_.packs<Scalar>()) return;
        going_ = reinterpret_cast<Bf16*>(next_.data());
        coming_ = going_ + count_;
        pack_in_place(block_.data(), count_, going_);
    }
    /// The block may be read until the turn is finished.
    void start_turn() {
        if (going_ != nullptr) {
            links_.start_turn(sim::Group::cp, going_, coming_, count_, 0, sent_, received_);
        } else {
            links_.start_turn(sim::Group::cp, block_.data(), next_.data(), count_, 0, sent_,
                              received_);
        }
    }
    void finish_turn() {
        links_.finish_turn(sim::Group::cp, sent_, received_);
        if (going_ != nullptr) {
            unpack_in_place(coming_, count_, block_.data());
            std::swap(going_, coming_);
        } else {
            std::swap(block_, next_);
        }
    }

private:
    Links& links_;
    Scratch<Scalar>& block_;
    Index count_;
    Scratch<Scalar> next_;   ///< room for what comes, or for both in 16 bits
    Bf16* going_ = nullptr;  ///< in 16 bits
    Bf16* coming_ = nullptr; ///< likewise
    Request sent_;
    Request received_;
};

/// The gradient of such a block, one step behind it.
template <class Scalar>
class TravellingGradient {
public:
    TravellingGradient(Links& links, Kernels<Scalar>& kernels, Arena& arena, Index count)
        : links_(links), kernels_(kernels), count_(count), going_(arena, count) {
        if (links_.packs<Scalar>()) {
            packed_ = reinterpret_cast<Bf16*>(going_.data());
        } else {
            coming_ = Scratch<Scalar>(arena, count);
        }
    }
    /// Sends `found` on, which may be written again at once, and waits for nothing.
    void start_turn(Scratch<Scalar>& found) {
        if (packed_ != nullptr) {
            pack_in_place(found.data(), count_, packed_);
            links_.start_turn(sim::Group::cp, packed_, packed_ + count_, count_, 1, sent_,
                              received_);
            return;
        }
        std::swap(found, going_);
        links_.start_turn(sim::Group::cp, going_.data(), coming_.data(), count_, 1, sent_,
                          received_);
    }
    /// Adds what has come.
    void finish_turn(Scalar* found) {
        links_.finish_turn(sim::Group::cp, sent_, received_);
        if (packed_ == nullptr) {
            kernels_.add(count_, coming_.data(), found);
            return;
        }
        for (Index i = 0; i < count_; ++i) {
            found[i] += static_cast<Scalar>(to_float(packed_[count_ + i]));
        }
    }

private:
    Links& links_;
    Kernels<Scalar>& kernels_;
    Index count_;
    Scratch<Scalar> going_; ///< or room for both in 16 bits
    Scratch<Scalar> coming_;
    Bf16* packed_ = nullptr; ///< in 16 bits: what goes, then what comes
    Request sent_;
    Request received_;
};

} // namespace

/// Blocks travel to the next rank while the one at hand is worked on.
template <class Scalar>
void ContextAttention<Scalar>::forward_ring(Queries& own, Scratch<Scalar>& kv) const {
    const PartOf cp = links_->share().cp;
    TravellingBlock<Scalar> block(*links_, *arena_, kv, kv_count());
    for (Index step = 0; step < cp.parts; ++step) {
        const bool last = step + 1 == cp.parts;
        if (!last) block.start_turn();
        attend(own, (cp.part + cp.parts - step) % cp.parts, kv.data(), nullptr);
        if (!last) block.finish_turn();
    }
}

/// Gradients of a block travel behind it, one step later, and end where it came from, whose own
/// part in them has waited there.
template <class Scalar>
void ContextAttention<Scalar>::backward_ring(Queries& own, Scratch<Scalar>& kv,
                                             Scalar* dqkv) const {
    const PartOf cp = links_->share().cp;
    TravellingBlock<Scalar> block(*links_, *arena_, kv, kv_count());
    Scratch<Scalar> found(*arena_, kv_count());
    TravellingGradient<Scalar> gradient(*links_, *kernels_, *arena_, kv_count());
    for (Index step = 0; step < cp.parts; ++step) {
        const bool last = step + 1 == cp.parts;
        if (!last) block.start_turn();
        std::fill_n(found.data(), kv_count(), Scalar(0));
        attend(own, (cp.part + cp.parts - step) % cp.parts, kv.data(), found.data());
        if (step > 1) gradient.finish_turn(found.data());
        if (step == 0) {
            put_kv(found.data(), dqkv);
        } else {
            gradient.start_turn(found);
        }
        if (!last) block.finish_turn();
    }
    take_kv(dqkv, found.data());
    gradient.finish_turn(found.data());
    put_kv(found.data(), dqkv);
}

template <class Scalar>
AttentionShape ContextAttention<Scalar>::shape_of(const Drawn& drawn) const {
    AttentionShape s;
    s.sequences = sizes_.samples;
    s.heads = sizes_.heads;
    s.kv_heads = sizes_.kv_heads;
    s.head_dim = sizes_.head_dim;
    s.value_dim = sizes_.value_dim;
    s.window = sizes_.window;
    s.falling_heads = sizes_.falling_heads;
    s.first_head = links_->share().tp.part * sizes_.heads;
    s.first_sequence = drawn.first_sample;
    if (drawn.drops) s.dropout = {sizes_.dropout, drawn.draw};
    return s;
}

template <class Scalar>
AttentionShape ContextAttention<Scalar>::whole_shape(const Drawn& drawn) const {
    AttentionShape s = shape_of(drawn);
    s.queries = s.keys = s.query_rows = s.key_rows = sizes_.sequence;
    s.query_stride = qkv_[0] + kv_width();
    if (exchanges_heads()) {
        const PartOf cp = links_->share().cp;
        s.heads /= cp.parts;
        s.kv_heads /= exchanged_qkv_[1].parts;
        s.first_head += cp.part * s.heads;
        s.query_stride = widths_of(exchanged_qkv_).part;
    }
    s.key_stride = s.query_stride;
    return s;
}

template <class Scalar>
Index ContextAttention<Scalar>::first_core_head() const {
    const PartOf cp = links_->share().cp;
    return exchanges_heads() ? cp.part * (sizes_.heads / cp.parts) : 0;
}

template <class Scalar>
void ContextAttention<Scalar>::attend_to_sinks(const AttentionShape& s, const Scalar* sinks,
                                               Scalar* out, Scalar* lse) const {
    std::fill_n(out, s.sequences * s.query_rows * s.heads * s.value_width(), Scalar(0));
    for (Index i = 0; i < s.sequences * s.heads; ++i) {
        std::fill_n(lse + i * s.query_rows, s.query_rows, sinks[first_core_head() + i % s.heads]);
    }
}

/// The sink's weight times what it takes off the outputs, whose value is none.
template <class Scalar>
void ContextAttention<Scalar>::sinks_backward(const Scalar* sinks, const Scalar* out,
                                              const Scalar* lse, const Scalar* dout,
                                              Scalar* dsinks) const {
    AttentionShape s = whole_shape({});
    if (!exchanges_heads()) s.query_rows = rows_->length();
    const Index rows = s.sequences * s.query_rows * s.heads;
    Scratch<Scalar> along(*arena_, rows);
    kernels_->row_products(rows, s.value_width(), out, dout, along.data());
    for (Index i = 0; i < rows; ++i) {
        const Index head = i % s.heads;
        const Index row = i / s.heads;
        const Index sequence = row / s.query_rows;
        const Index at = (sequence * s.heads + head) * s.query_rows + row % s.query_rows;
        const Index own = first_core_head() + head;
        dsinks[own] -= std::exp(sinks[own] - lse[at]) * along.data()[i];
    }
}

template <class Scalar>
void ContextAttention<Scalar>::forward(const Drawn& drawn, const Scalar* qkv, const Scalar* sinks,
                                       Scalar* out, Scalar* lse) const {
    const PartOf cp = links_->share().cp;
    if (cp.parts == 1 || exchanges_heads()) {
        AttentionShape s = whole_shape(drawn);
        s.joins = sinks != nullptr;
        if (s.joins) attend_to_sinks(s, sinks, out, lse);
        const Scalar* k = qkv + s.heads * s.head_dim;
        kernels_->attention_forward(s, qkv, k, k + s.kv_heads * s.head_dim, out, lse);
        return;
    }
    Queries own;
    own.q = qkv;
    own.out = out;
    own.lse = lse;
    own.drawn = drawn;
    own.begun.assign(rows_->pieces.size(), sinks != nullptr);
    if (sinks != nullptr) {
        AttentionShape s = shape_of(drawn);
        s.query_rows = rows_->length();
        attend_to_sinks(s, sinks, out, lse);
    }
    if (links_->share().cp_kind == sim::CpKind::ring) {
        Scratch<Scalar> kv(*arena_, kv_count());
        take_kv(qkv, kv.data());
        forward_ring(own, kv);
        return;
    }
    Scratch<Scalar> all(*arena_, kv_count() * cp.parts);
    Scalar* mine = all.data() + cp.part * kv_count();
    take_kv(qkv, mine);
    links_->all_gather(sim::Group::cp, mine, kv_count(), all.data());
    for (Index rank = 0; rank < cp.parts; ++rank) {
        attend(own, rank, all.data() + rank * kv_count(), nullptr);
    }
}

template <class Scalar>
void ContextAttention<Scalar>::backward(const Drawn& drawn, const Scalar* qkv, const Scalar* out,
                                        const Scalar* lse, const Scalar* dout, Scalar* dqkv) const {
    const PartOf cp = links_->share().cp;
    if (cp.parts == 1 || exchanges_heads()) {
        const AttentionShape s = whole_shape(drawn);
        const Index k = s.heads * s.head_dim;
        const Index v = k + s.kv_heads * s.head_dim;
        kernels_->attention_backward(s, qkv, qkv + k, qkv + v, out, lse, dout, dqkv, dqkv + k,
                                     dqkv + v);
        return;
    }
    Queries own;
    own.q = qkv;
    own.kept_out = out;
    own.kept_lse = lse;
    own.dout = dout;
    own.dq = dqkv;
    own.drawn = drawn;
    std::fill_n(dqkv, rows_->all * (qkv_[0] + kv_width()), Scalar(0));
    if (links_->share().cp_kind == sim::CpKind::ring) {
        Scratch<Scalar> kv(*arena_, kv_count());
        take_kv(qkv, kv.data());
        backward_ring(own, kv, dqkv);
        return;
    }
    Scratch<Scalar> all(*arena_, kv_count() * cp.parts);
    Scratch<Scalar> gradients(*arena_, kv_count() * cp.parts);
    Scalar* mine = all.data() + cp.part * kv_count();
    take_kv(qkv, mine);
    links_->all_gather(sim::Group::cp, mine, kv_count(), all.data());
    std::fill_n(gradients.data(), kv_count() * cp.parts, Scalar(0));
    for (Index rank = 0; rank < cp.parts; ++rank) {
        attend(own, rank, all.data() + rank * kv_count(), gradients.data() + rank * kv_count());
    }
    links_->reduce_scatter(sim::Group::cp, gradients.data(), mine, kv_count());
    put_kv(mine, dqkv);
}

template class ContextAttention<float>;
template class ContextAttention<double>;

} // namespace shardplan::exec
