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

/// The queries, keys or values of one sequence and head.
template <class Scalar>
struct Heads {
    const AttentionShape& s;
    Scalar* data = nullptr;
    Index stride = 0;

    auto rows(Index sequence, Index head, Index first, Index count) const {
        Scalar* at = data + (sequence * s.length + first) * stride + head * s.head_dim;
        return matrix(at, count, s.head_dim, stride);
    }
};

/// Scaled scores of queries from `query` against keys from `key`; those of later keys are minus
/// infinity.
template <class Scalar, class Q, class K>
void scores(const Q& q, const K& k, Scalar scale, Index query, Index key, RowMajor<Scalar>& out) {
    out.noalias() = q * k.transpose();
    out *= scale;
    if (key + k.rows() <= query + 1) return;
    for (Index i = 0; i < q.rows(); ++i) {
        const Index seen = std::clamp<Index>(query + i + 1 - key, 0, k.rows());
        out.row(i).tail(k.rows() - seen).setConstant(-std::numeric_limits<Scalar>::infinity());
    }
}

template <class Scalar>
Scalar scale_of(const AttentionShape& s) {
    return static_cast<Scalar>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
}

/// One block of queries: a running maximum and sum of exponentials over the blocks of keys.
template <class Scalar, class Q, class Out>
void forward_block(const AttentionShape& s, Index query, const Q& q, const Heads<const Scalar>& k,
                   const Heads<const Scalar>& v, Index sequence, Index kv_head, Out&& out,
                   Scalar* lse) {
    const Index rows = q.rows();
    RowMajor<Scalar> p(rows, block);
    RowMajor<Scalar> sum = RowMajor<Scalar>::Zero(rows, s.head_dim);
    Vector<Scalar> top = Vector<Scalar>::Constant(rows, -std::numeric_limits<Scalar>::infinity());
    Vector<Scalar> total = Vector<Scalar>::Zero(rows);
    for (Index key = 0; key < query + rows; key += block) {
        const Index keys = std::min(block, query + rows - key);
        p.resize(rows, keys);
        scores(q, k.rows(sequence, kv_head, key, keys), scale_of<Scalar>(s), query, key, p);
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
    const Heads<const Scalar> queries{s, q, s.stride};
    const Heads<const Scalar> keys{s, k, s.stride};
    const Heads<const Scalar> values{s, v, s.stride};
    const Heads<Scalar> outputs{s, out, s.heads * s.head_dim};
    const Index group = s.heads / s.kv_heads;
    pool_->run(s.sequences * s.heads, [&](Index task) {
        const Index sequence = task / s.heads;
        const Index head = task % s.heads;
        for (Index first = 0; first < s.length; first += block) {
            const Index rows = std::min(block, s.length - first);
            forward_block<Scalar>(s, first, queries.rows(sequence, head, first, rows), keys, values,
                                  sequence, head / group, outputs.rows(sequence, head, first, rows),
                                  lse + task * s.length + first);
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
        const Scalar* lse = b.lse + (sequence * s.heads + head) * s.length;
        const auto whole = b.dout.rows(sequence, head, 0, s.length);
        const Vector<Scalar> along =
            (whole.array() * b.out.rows(sequence, head, 0, s.length).array()).rowwise().sum();
        b.dq.rows(sequence, head, 0, s.length).setZero();
        for (Index key = 0; key < s.length; key += block) {
            const Index keys = std::min(block, s.length - key);
            const auto k = b.k.rows(sequence, kv_head, key, keys);
            const auto v = b.v.rows(sequence, kv_head, key, keys);
            auto dk = b.dk.rows(sequence, kv_head, key, keys);
            auto dv = b.dv.rows(sequence, kv_head, key, keys);
            if (head == kv_head * group) {
                dk.setZero();
                dv.setZero();
            }
            for (Index query = key; query < s.length; query += block) {
                const Index rows = std::min(block, s.length - query);
                const auto q = b.q.rows(sequence, head, query, rows);
                const auto dout = b.dout.rows(sequence, head, query, rows);
                p.resize(rows, keys);
                ds.resize(rows, keys);
                scores(q, k, scale, query, key, p);
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
    const Index width = s.heads * s.head_dim;
    const Backward<Scalar> b{{s, q, s.stride},  {s, k, s.stride},  {s, v, s.stride},
                             {s, out, width},   {s, dout, width},  {s, dq, s.stride},
                             {s, dk, s.stride}, {s, dv, s.stride}, lse};
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
