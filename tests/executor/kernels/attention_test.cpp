#include <array>
#include <cmath>

#include "tests/executor/kernels/kernel_gradients.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

/// Attention with all scores at once, in the plainest form.
Values plain_attention(const AttentionShape& s, const Values& qkv) {
    const Index group = s.heads / s.kv_heads;
    Values out(static_cast<std::size_t>(s.sequences * s.queries * s.heads * s.head_dim), 0.0);
    const auto at = [&](Index row, Index head, Index i) {
        return qkv[static_cast<std::size_t>(row * s.query_stride + head * s.head_dim + i)];
    };
    for (Index n = 0; n < s.sequences; ++n) {
        for (Index h = 0; h < s.heads; ++h) {
            for (Index i = 0; i < s.queries; ++i) {
                Values p(static_cast<std::size_t>(i + 1));
                double sum = 0.0;
                for (Index j = 0; j <= i; ++j) {
                    double score = 0.0;
                    for (Index d = 0; d < s.head_dim; ++d)
                        score += at(n * s.queries + i, h, d) *
                                 at(n * s.queries + j, s.heads + h / group, d);
                    p[static_cast<std::size_t>(j)] =
                        std::exp(score / std::sqrt(static_cast<double>(s.head_dim)));
                    sum += p[static_cast<std::size_t>(j)];
                }
                for (Index j = 0; j <= i; ++j) {
                    for (Index d = 0; d < s.head_dim; ++d) {
                        const Index to = ((n * s.queries + i) * s.heads + h) * s.head_dim + d;
                        out[static_cast<std::size_t>(to)] +=
                            p[static_cast<std::size_t>(j)] / sum *
                            at(n * s.queries + j, s.heads + s.kv_heads + h / group, d);
                    }
                }
            }
        }
    }
    return out;
}

TEST_F(KernelGradients, OfAttentionAgreeWithDifferencesAcrossBlockBorders) {
    struct Case {
        Index length, heads, kv_heads, head_dim;
    };
    // lengths below, at and beyond the 64 queries of a block; one key head per, for two, for all
    for (const Case c : {Case{5, 2, 2, 4}, {64, 2, 1, 3}, {130, 4, 2, 5}, {70, 3, 1, 8}}) {
        const Index stride = (c.heads + 2 * c.kv_heads) * c.head_dim;
        const AttentionShape s{2,          c.length, c.length, c.heads,  c.kv_heads,
                               c.head_dim, stride,   stride,   c.length, c.length};
        auto qkv = random_values(static_cast<std::size_t>(2 * c.length * stride), 11);
        const auto outs = static_cast<std::size_t>(2 * c.length * c.heads * c.head_dim);
        const auto dout = random_values(outs, 12);
        Values out(outs);
        Values lse(static_cast<std::size_t>(2 * c.heads * c.length));
        const Index k = c.heads * c.head_dim;
        const Index v = k + c.kv_heads * c.head_dim;
        const auto loss = [&] {
            kernels.attention_forward(s, qkv.data(), qkv.data() + k, qkv.data() + v, out.data(),
                                      lse.data());
            return dot(out, dout);
        };
        loss();
        const Values plain = plain_attention(s, qkv);
        for (std::size_t i = 0; i < outs; ++i)
            ASSERT_NEAR(out[i], plain[i], 1e-12);
        Values d(qkv.size(), 7.0);
        kernels.attention_backward(s, qkv.data(), qkv.data() + k, qkv.data() + v, out.data(),
                                   lse.data(), dout.data(), d.data(), d.data() + k, d.data() + v);
        expect_gradient("qkv", qkv.data(), d.data(), qkv.size(), loss, 90);
    }
}

/// Attention of two pieces of each sequence to earlier pieces, as a context-parallel rank does it.
struct PieceOfAttention {
    static constexpr Index length = 12, piece = 3, heads = 4, kv_heads = 2, head_dim = 5;
    static constexpr Index q_width = heads * head_dim, kv_width = kv_heads * head_dim;
    static constexpr Index stride = q_width + 2 * kv_width;
    /// Queries in pieces 1 and 3 of four; keys in all.
    static constexpr std::array<Index, 2> mine = {1, 3};

    template <class F>
    static void for_pairs(F&& call) {
        for (const Index query : mine) {
            bool joins = false;
            for (Index key = 0; key <= query; ++key) {
                const AttentionShape s{2,      piece,  piece,  heads,  kv_heads,     head_dim,
                                       stride, stride, length, length, key == query, joins};
                call(s, query * piece, key * piece);
                joins = true;
            }
        }
    }
};

TEST_F(KernelGradients, OfAttentionInPiecesAgreeWithAttentionInOneAndWithDifferences) {
    using P = PieceOfAttention;
    auto qkv = random_values(static_cast<std::size_t>(2 * P::length * P::stride), 11);
    const auto outs = static_cast<std::size_t>(2 * P::length * P::q_width);
    auto dout = random_values(outs, 12);
    Values out(outs);
    Values lse(static_cast<std::size_t>(2 * P::heads * P::length));
    const auto is_mine = [](std::size_t i) {
        const auto row = static_cast<Index>(i) / P::q_width % P::length;
        return row / P::piece == P::mine[0] || row / P::piece == P::mine[1];
    };
    for (std::size_t i = 0; i < outs; ++i)
        if (!is_mine(i)) dout[i] = 0.0;
    const auto loss = [&] {
        P::for_pairs([&](const AttentionShape& s, Index q, Index k) {
            const double* keys = qkv.data() + k * P::stride + P::q_width;
            kernels.attention_forward(s, qkv.data() + q * P::stride, keys, keys + P::kv_width,
                                      out.data() + q * P::q_width, lse.data() + q);
        });
        return dot(out, dout);
    };
    loss();
    const AttentionShape whole{2,           P::length, P::length, P::heads,  P::kv_heads,
                               P::head_dim, P::stride, P::stride, P::length, P::length};
    const Values plain = plain_attention(whole, qkv);
    for (std::size_t i = 0; i < outs; ++i) {
        if (is_mine(i)) {
            ASSERT_NEAR(out[i], plain[i], 1e-13);
        }
    }
    Values d = zeros(qkv.size());
    P::for_pairs([&](AttentionShape s, Index q, Index k) {
        s.joins = true;
        const Index keys = k * P::stride + P::q_width;
        kernels.attention_backward(
            s, qkv.data() + q * P::stride, qkv.data() + keys, qkv.data() + keys + P::kv_width,
            out.data() + q * P::q_width, lse.data() + q, dout.data() + q * P::q_width,
            d.data() + q * P::stride, d.data() + keys, d.data() + keys + P::kv_width);
    });
    expect_gradient("qkv", qkv, d, loss);
}

} // namespace
} // namespace shardplan::test
