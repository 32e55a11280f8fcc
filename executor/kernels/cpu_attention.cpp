#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/drawn.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

namespace {

/// Queries and keys of one block of scores.
constexpr Index block = 64;

template <class Scalar>
using Vector = Eigen::Array<Scalar, Eigen::Dynamic, 1>;

/// Queries, keys, values or outputs: rows of all sequences with all heads.
template <class Scalar>
struct Heads {
    Scalar* data = nullptr;
    Index stride = 0;
    Index head_dim = 0;
    Index rows_apart = 0; ///< from one sequence to the next

    auto rows(Index sequence, Index head, Index first, Index count) const {
        Scalar* at = data + (sequence * rows_apart + first) * stride + head * head_dim;
        return matrix(at, count, head_dim, stride);
    }
};

/// Keys of a block that a query sees: the first of them, and the one behind the last.
struct Seen {
    Index begin = 0;
    Index end = 0;
};
Seen seen_of(const AttentionShape& s, Index query, Index key, Index keys) {
    const Index own = query + s.ahead() - key; // the key of its own position
    Seen seen{0, keys};
    if (s.causal) seen.end = std::clamp<Index>(own + 1, 0, keys);
    if (s.window > 0) seen.begin = std::clamp<Index>(own + 1 - s.window, 0, seen.end);
    return seen;
}

/// The first block of keys that queries from `query` on see something of.
Index first_seen(const AttentionShape& s, Index query) {
    if (s.window == 0) return 0;
    return std::max<Index>(0, query + s.ahead() + 1 - s.window) / block * block;
}
/// Keys that the last of the queries before `end` sees none behind.
Index keys_seen(const AttentionShape& s, Index end) {
    return s.causal ? std::clamp<Index>(end + s.ahead(), 0, s.keys) : s.keys;
}

/// What scores of a head fall by with each position.
double slope_of(const AttentionShape& s, Index head) {
    if (s.falling_heads == 0) return 0.0;
    // of a number of heads that is no power of two, those beyond take every second slope of twice
    // as many
    Index whole = 1;
    while (2 * whole <= s.falling_heads)
        whole *= 2;
    const Index number = s.first_head + head;
    const auto exponent = [](Index i, Index of) {
        return -8.0 * static_cast<double>(i) / static_cast<double>(of);
    };
    return std::exp2(number < whole ? exponent(number + 1, whole)
                                    : exponent(2 * (number - whole) + 1, 2 * whole));
}

/// Scaled scores of queries from `query` against keys from `key`; those that a query does not see
/// are minus infinity.
template <class Scalar, class Q, class K>
void scores(const AttentionShape& s, const Q& q, const K& k, Scalar slope, Index query, Index key,
            RowMajor<Scalar>& out) {
    out.noalias() = q * k.transpose();
    out *= static_cast<Scalar>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
    const Index keys = k.rows();
    if (slope > 0) {
        for (Index i = 0; i < q.rows(); ++i) {
            const Index own = query + i + s.ahead() - key;
            for (Index j = 0; j < keys; ++j) {
                out(i, j) -= slope * static_cast<Scalar>(own - j);
            }
        }
    }
    const Seen first = seen_of(s, query, key, keys);
    const Seen last = seen_of(s, query + q.rows() - 1, key, keys);
    if (first.end == keys && last.begin == 0) return;
    constexpr Scalar unseen = -std::numeric_limits<Scalar>::infinity();
    for (Index i = 0; i < q.rows(); ++i) {
        const Seen seen = seen_of(s, query + i, key, keys);
        out.row(i).head(seen.begin).setConstant(unseen);
        out.row(i).tail(keys - seen.end).setConstant(unseen);
    }
}

/// Which weights of one head and sequence are dropped.
class Drops {
public:
    Drops(const AttentionShape& s, Index sequence, Index head)
        : s_(s),
          key_(sim::hash_mix(sim::hash_mix(s.dropout.draw,
                                           static_cast<std::uint64_t>(s.first_sequence + sequence)),
                             static_cast<std::uint64_t>(s.first_head + head))) {}

    /// Multiplies the weights of queries from `query` for keys from `key` with 0 or 1 / (1 - rate).
    template <class Scalar>
    void apply(Index query, Index key, RowMajor<Scalar>& p) const {
        for (Index i = 0; i < p.rows(); ++i) {
            const std::size_t row =
                sim::hash_mix(key_, static_cast<std::uint64_t>(s_.first_query + query + i));
            for (Index j = 0; j < p.cols(); ++j) {
                p(i, j) *= kept<Scalar>(s_.dropout, row,
                                        static_cast<std::uint64_t>(s_.first_key + key + j));
            }
        }
    }

private:
    const AttentionShape& s_;
    std::size_t key_;
};

template <class Scalar>
Heads<Scalar> query_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.query_stride, s.head_dim, s.query_rows};
}
template <class Scalar>
Heads<Scalar> key_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.key_stride, s.head_dim, s.key_rows};
}
template <class Scalar>
Heads<Scalar> value_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.key_stride, s.value_width(), s.key_rows};
}
template <class Scalar>
Heads<Scalar> output_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.heads * s.value_width(), s.value_width(), s.query_rows};
}

/// One block of queries: a running maximum and sum of exponentials over the blocks of keys. What
/// other keys have left goes in as if it were one key, whose value is the output.
template <class Scalar, class Q, class Out>
void forward_block(const AttentionShape& s, Index query, const Q& q, const Heads<const Scalar>& k,
                   const Heads<const Scalar>& v, Index sequence, Index head, Out&& out,
                   Scalar* lse) {
    const Index rows = q.rows();
    const Index kv_head = head / (s.heads / s.kv_heads);
    const auto slope = static_cast<Scalar>(slope_of(s, head));
    const Drops drops(s, sequence, head);
    RowMajor<Scalar> p(rows, block);
    RowMajor<Scalar> sum = RowMajor<Scalar>::Zero(rows, s.value_width());
    Vector<Scalar> top = Vector<Scalar>::Constant(rows, -std::numeric_limits<Scalar>::infinity());
    Vector<Scalar> total = Vector<Scalar>::Zero(rows);
    if (s.joins) {
        sum = out;
        top = array(lse, rows);
        total.setOnes();
    }
    const Index seen = keys_seen(s, query + rows);
    for (Index key = first_seen(s, query); key < seen; key += block) {
        const Index keys = std::min(block, seen - key);
        p.resize(rows, keys);
        scores(s, q, k.rows(sequence, kv_head, key, keys), slope, query, key, p);
        for (Index i = 0; i < rows; ++i) {
            auto row = p.row(i).array();
            const Scalar highest = std::max(top[i], row.maxCoeff());
            if (highest == -std::numeric_limits<Scalar>::infinity()) {
                row.setZero(); // it has seen nothing yet
                continue;
            }
            row = (row - highest).exp();
            const Scalar shrink = std::exp(top[i] - highest);
            total[i] = total[i] * shrink + row.sum();
            sum.row(i) *= shrink;
            top[i] = highest;
        }
        if (s.dropout.drops()) drops.apply(query, key, p);
        sum.noalias() += p * v.rows(sequence, kv_head, key, keys);
    }
    for (Index i = 0; i < rows; ++i) {
        if (total[i] == Scalar(0)) total[i] = Scalar(1); // of no keys at all
        out.row(i) = sum.row(i) / total[i];
    }
    array(lse, rows) = top + total.log();
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::attention_forward(const AttentionShape& s, const Scalar* q,
                                           const Scalar* k, const Scalar* v, Scalar* out,
                                           Scalar* lse) {
    const auto queries = query_heads(s, q);
    const auto keys = key_heads(s, k);
    const auto values = value_heads(s, v);
    const auto outputs = output_heads(s, out);
    pool_->run(s.sequences * s.heads, [&](Index task) {
        const Index sequence = task / s.heads;
        const Index head = task % s.heads;
        for (Index first = 0; first < s.queries; first += block) {
            const Index rows = std::min(block, s.queries - first);
            forward_block<Scalar>(s, first, queries.rows(sequence, head, first, rows), keys, values,
                                  sequence, head, outputs.rows(sequence, head, first, rows),
                                  lse + task * s.query_rows + first);
        }
    });
}

namespace {

/// What the backward pass of one key head reads and writes.
template <class Scalar>
struct Backward {
    Heads<const Scalar> q, k, v, out, dout;
    Heads<Scalar> dq, dk, dv;
    const Scalar* lse = nullptr;
};

/// Gradients of one key head from all query heads it serves.
template <class Scalar>
void backward_head(const AttentionShape& s, const Backward<Scalar>& b, Index sequence,
                   Index kv_head) {
    const Index group = s.heads / s.kv_heads;
    const auto scale = static_cast<Scalar>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
    RowMajor<Scalar> p(block, block);
    RowMajor<Scalar> ds(block, block);
    RowMajor<Scalar> kept(block, block); // factors of what is not dropped
    for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Scalar* lse = b.lse + (sequence * s.heads + head) * s.query_rows;
        const auto slope = static_cast<Scalar>(slope_of(s, head));
        const Drops drops(s, sequence, head);
        const auto whole = b.dout.rows(sequence, head, 0, s.queries);
        const Vector<Scalar> along =
            (whole.array() * b.out.rows(sequence, head, 0, s.queries).array()).rowwise().sum();
        if (!s.joins) b.dq.rows(sequence, head, 0, s.queries).setZero();
        for (Index key = 0; key < s.keys; key += block) {
            const Index keys = std::min(block, s.keys - key);
            const auto k = b.k.rows(sequence, kv_head, key, keys);
            const auto v = b.v.rows(sequence, kv_head, key, keys);
            auto dk = b.dk.rows(sequence, kv_head, key, keys);
            auto dv = b.dv.rows(sequence, kv_head, key, keys);
            if (head == kv_head * group && !s.joins) {
                dk.setZero();
                dv.setZero();
            }
            for (Index query = 0; query < s.queries; query += block) {
                const Index rows = std::min(block, s.queries - query);
                if (seen_of(s, query + rows - 1, key, keys).end == 0) continue;
                if (s.window > 0 && seen_of(s, query, key, keys).begin == keys) break;
                const auto q = b.q.rows(sequence, head, query, rows);
                const auto dout = b.dout.rows(sequence, head, query, rows);
                p.resize(rows, keys);
                ds.resize(rows, keys);
                scores(s, q, k, slope, query, key, p);
                for (Index i = 0; i < rows; ++i) {
                    p.row(i).array() = (p.row(i).array() - lse[query + i]).exp();
                }
                ds.noalias() = dout * v.transpose();
                if (s.dropout.drops()) {
                    kept.setOnes(rows, keys);
                    drops.apply(query, key, kept);
                    ds.array() *= kept.array();
                    kept.array() *= p.array();
                    dv.noalias() += kept.transpose() * dout;
                } else {
                    dv.noalias() += p.transpose() * dout;
                }
                for (Index i = 0; i < rows; ++i) {
                    ds.row(i).array() =
                        p.row(i).array() * (ds.row(i).array() - along[query + i]) * scale;
                }
                b.dq.rows(sequence, head, query, rows).noalias() += ds * k;
                dk.noalias() += ds.transpose() * q;
            }
        }
    }
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::attention_backward(const AttentionShape& s, const Scalar* q,
                                            const Scalar* k, const Scalar* v, const Scalar* out,
                                            const Scalar* lse, const Scalar* dout, Scalar* dq,
                                            Scalar* dk, Scalar* dv) {
    const Backward<Scalar> b{query_heads(s, q),    key_heads(s, k),       value_heads(s, v),
                             output_heads(s, out), output_heads(s, dout), query_heads(s, dq),
                             key_heads(s, dk),     value_heads(s, dv),    lse};
    pool_->run(s.sequences * s.kv_heads,
               [&](Index task) { backward_head(s, b, task / s.kv_heads, task % s.kv_heads); });
}

#define SHARDPLAN_INSTANTIATE(S)                                                                \
    template void CpuKernels<S>::attention_forward(const AttentionShape&, const S*, const S*,   \
                                                   const S*, S*, S*);                           \
    template void CpuKernels<S>::attention_backward(const AttentionShape&, const S*, const S*,  \
                                                    const S*, const S*, const S*, const S*, S*, \
                                                    S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
