#include "executor/model/context_attention.hpp"

#include <algorithm>
#include <numeric>

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
           sizes.kv_heads * sizes.head_dim} {}

template <class Scalar>
bool ContextAttention<Scalar>::exchanges_heads() const {
    return links_->share().cp.parts > 1 && links_->share().cp_kind == sim::CpKind::all_to_all;
}

// ---- Heads for tokens --------------------------------------------------------------------------

namespace {

/// Copies between rows with all heads and the message of rank after rank: its heads of every row.
template <class From, class To>
void copy_parts(std::span<const Index> sections, Index rows, Index ranks, bool to_message,
                From* from, To* to) {
    const Index width = std::accumulate(sections.begin(), sections.end(), Index{0});
    Index in_message = 0;
    for (Index rank = 0; rank < ranks; ++rank) {
        for (Index row = 0; row < rows; ++row) {
            Index in_row = row * width;
            for (const Index section : sections) {
                const Index part = section / ranks;
                const Index at = in_row + rank * part;
                std::copy_n(from + (to_message ? at : in_message), part,
                            to + (to_message ? in_message : at));
                in_message += part;
                in_row += section;
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

} // namespace

template <class Scalar>
void ContextAttention<Scalar>::to_heads(std::span<const Index> sections, const Scalar* rows,
                                        Scalar* whole) const {
    const Index ranks = links_->share().cp.parts;
    const Index width = std::accumulate(sections.begin(), sections.end(), Index{0});
    const Index count = rows_->all * width;
    Scratch<Scalar> sent(*arena_, count);
    copy_parts(sections, rows_->all, ranks, true, rows, sent.data());
    if (sizes_.samples == 1) {
        links_->all_to_all(sim::Group::cp, sent.data(), whole, count);
        return;
    }
    Scratch<Scalar> received(*arena_, count);
    links_->all_to_all(sim::Group::cp, sent.data(), received.data(), count);
    sort_pieces(ranks, sizes_.samples, rows_->length() * width / ranks, true, received.data(),
                whole);
}

template <class Scalar>
void ContextAttention<Scalar>::to_tokens(std::span<const Index> sections, const Scalar* whole,
                                         Scalar* rows) const {
    const Index ranks = links_->share().cp.parts;
    const Index width = std::accumulate(sections.begin(), sections.end(), Index{0});
    const Index count = rows_->all * width;
    Scratch<Scalar> received(*arena_, count);
    if (sizes_.samples == 1) {
        links_->all_to_all(sim::Group::cp, whole, received.data(), count);
        copy_parts(sections, rows_->all, ranks, false, received.data(), rows);
        return;
    }
    Scratch<Scalar> sent(*arena_, count);
    sort_pieces(ranks, sizes_.samples, rows_->length() * width / ranks, false, whole, sent.data());
    links_->all_to_all(sim::Group::cp, sent.data(), received.data(), count);
    copy_parts(sections, rows_->all, ranks, false, received.data(), rows);
}

// ---- Keys and values of other ranks ------------------------------------------------------------

template <class Scalar>
void ContextAttention<Scalar>::take_kv(const Scalar* qkv, Scalar* kv) const {
    const Index width = 2 * qkv_[1];
    for (Index row = 0; row < rows_->all; ++row) {
        std::copy_n(qkv + row * (qkv_[0] + width) + qkv_[0], width, kv + row * width);
    }
}

template <class Scalar>
void ContextAttention<Scalar>::put_kv(const Scalar* kv, Scalar* qkv) const {
    const Index width = 2 * qkv_[1];
    for (Index row = 0; row < rows_->all; ++row) {
        std::copy_n(kv + row * width, width, qkv + row * (qkv_[0] + width) + qkv_[0]);
    }
}

template <class Scalar>
void ContextAttention<Scalar>::attend(Queries& own, Index rank, const Scalar* kv,
                                      Scalar* dkv) const {
    const RankShare& share = links_->share();
    AttentionShape s;
    s.sequences = sizes_.samples;
    s.heads = sizes_.heads;
    s.kv_heads = sizes_.kv_heads;
    s.head_dim = sizes_.head_dim;
    s.query_stride = qkv_[0] + 2 * qkv_[1];
    s.key_stride = 2 * qkv_[1];
    s.query_rows = s.key_rows = rows_->length();
    Index query_row = 0;
    for (std::size_t i = 0; i < rows_->pieces.size(); ++i) {
        const Piece& mine = rows_->pieces[i];
        Index key_row = 0;
        for (const Piece& theirs :
             pieces_of(sizes_.sequence, {rank, share.cp.parts}, share.cp_kind)) {
            const Index q = query_row * s.query_stride;
            const Index out = query_row * qkv_[0];
            const Index k = key_row * s.key_stride;
            const Index v = k + qkv_[1];
            key_row += theirs.length;
            if (theirs.first > mine.first) continue;
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
AttentionShape ContextAttention<Scalar>::whole_shape() const {
    const Index parts = exchanges_heads() ? links_->share().cp.parts : 1;
    const Index stride = (qkv_[0] + 2 * qkv_[1]) / parts;
    return {sizes_.samples,          sizes_.sequence, sizes_.sequence, sizes_.heads / parts,
            sizes_.kv_heads / parts, sizes_.head_dim, stride,          stride,
            sizes_.sequence,         sizes_.sequence};
}

template <class Scalar>
void ContextAttention<Scalar>::forward(const Scalar* qkv, Scalar* out, Scalar* lse) const {
    const PartOf cp = links_->share().cp;
    if (cp.parts == 1 || exchanges_heads()) {
        const AttentionShape s = whole_shape();
        const Scalar* k = qkv + s.heads * s.head_dim;
        kernels_->attention_forward(s, qkv, k, k + s.kv_heads * s.head_dim, out, lse);
        return;
    }
    Queries own;
    own.q = qkv;
    own.out = out;
    own.lse = lse;
    own.begun.resize(rows_->pieces.size());
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
void ContextAttention<Scalar>::backward(const Scalar* qkv, const Scalar* out, const Scalar* lse,
                                        const Scalar* dout, Scalar* dqkv) const {
    const PartOf cp = links_->share().cp;
    if (cp.parts == 1 || exchanges_heads()) {
        const AttentionShape s = whole_shape();
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
    std::fill_n(dqkv, rows_->all * (qkv_[0] + 2 * qkv_[1]), Scalar(0));
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
