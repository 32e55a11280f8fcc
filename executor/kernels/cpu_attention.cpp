#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/cpu_kernels.hpp"
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

/// Scaled scores of queries from `query` against keys from `key`; those that a query does not see
/// are minus infinity.
template <class Scalar, class Q, class K>
void scores(const AttentionShape& s, const Q& q, const K& k, Scalar scale, Index query, Index key,
            RowMajor<Scalar>& out) {
    out.noalias() = q * k.transpose();
    out *= scale;
    if (!s.causal || key + k.rows() <= query + 1) return;
    for (Index i = 0; i < q.rows(); ++i) {
        const Index seen = std::clamp<Index>(query + i + 1 - key, 0, k.rows());
        out.row(i).tail(k.rows() - seen).setConstant(-std::numeric_limits<Scalar>::infinity());
    }
}

template <class Scalar>
Heads<Scalar> query_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.query_stride, s.head_dim, s.query_rows};
}
template <class Scalar>
Heads<Scalar> key_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.key_stride, s.head_dim, s.key_rows};
}
template <class Scalar>
Heads<Scalar> output_heads(const AttentionShape& s, Scalar* data) {
    return {data, s.heads * s.head_dim, s.head_dim, s.query_rows};
}

template <class Scalar>
Scalar scale_of(const AttentionShape& s) {
    return static_cast<Scalar>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
}

/// One block of queries: a running maximum and sum of exponentials over the blocks of keys. What
/// other keys have left goes in as if it were one key, whose value is the output.
template <class Scalar, class Q, class Out>
void forward_block(const AttentionShape& s, Index query, const Q& q, const Heads<const Scalar>& k,
                   const Heads<const Scalar>& v, Index sequence, Index kv_head, Out&& out,
                   Scalar* lse) {
    const Index rows = q.rows();
    RowMajor<Scalar> p(rows, block);
    RowMajor<Scalar> sum = RowMajor<Scalar>::Zero(rows, s.head_dim);
    Vector<Scalar> top = Vector<Scalar>::Constant(rows, -std::numeric_limits<Scalar>::infinity());
    Vector<Scalar> total = Vector<Scalar>::Zero(rows);
    if (s.joins) {
        sum = out;
        top = array(lse, rows);
        total.setOnes();
    }
    const Index seen = s.causal ? query + rows : s.keys;
    for (Index key = 0; key < seen; key += block) {
        const Index keys = std::min(block, seen - key);
        p.resize(rows, keys);
        scores(s, q, k.rows(sequence, kv_head, key, keys), scale_of<Scalar>(s), query, key, p);
        for (Index i = 0; i < rows; ++i) {
            auto row = p.row(i).array();
            const Scalar highest = std::max(top[i], row.maxCoeff());
            row = (row - highest).exp();
            const Scalar shrink = std::exp(top[i] - highest);
            total[i] = total[i] * shrink + row.sum();
            sum.row(i) *= shrink;
            top[i] = highest;
        }
        sum.noalias() += p * v.rows(sequence, kv_head, key, keys);
    }
    for (Index i = 0; i < rows; ++i) {
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
    const auto values = key_heads(s, v);
    const auto outputs = output_heads(s, out);
    const Index group = s.heads / s.kv_heads;
    pool_->run(s.sequences * s.heads, [&](Index task) {
        const Index sequence = task / s.heads;
        const Index head = task % s.heads;
        for (Index first = 0; first < s.queries; first += block) {
            const Index rows = std::min(block, s.queries - first);
            forward_block<Scalar>(s, first, queries.rows(sequence, head, first, rows), keys, values,
                                  sequence, head / group, outputs.rows(sequence, head, first, rows),
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
    const Scalar scale = scale_of<Scalar>(s);
    RowMajor<Scalar> p(block, block);
    RowMajor<Scalar> ds(block, block);
    for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Scalar* lse = b.lse + (sequence * s.heads + head) * s.query_rows;
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
            for (Index query = s.causal ? key : 0; query < s.queries; query += block) {
                const Index rows = std::min(block, s.queries - query);
                const auto q = b.q.rows(sequence, head, query, rows);
                const auto dout = b.dout.rows(sequence, head, query, rows);
                p.resize(rows, keys);
                ds.resize(rows, keys);
                scores(s, q, k, scale, query, key, p);
                for (Index i = 0; i < rows; ++i) {
                    p.row(i).array() = (p.row(i).array() - lse[query + i]).exp();
                }
                dv.noalias() += p.transpose() * dout;
                ds.noalias() = dout * v.transpose();
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
    const Backward<Scalar> b{query_heads(s, q),    key_heads(s, k),       key_heads(s, v),
                             output_heads(s, out), output_heads(s, dout), query_heads(s, dq),
                             key_heads(s, dk),     key_heads(s, dv),      lse};
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
