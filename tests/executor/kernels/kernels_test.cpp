#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "executor/kernels/bf16.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "tests/executor/gradient_check.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

using Values = std::vector<double>;

Values zeros(std::size_t count) { return Values(count, 0.0); }

class KernelGradients : public ::testing::Test {
protected:
    CpuKernels<double> kernels{2};
};

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
    EXPECT_EQ(to_float(to_bf16(1.0F)), 1.0F);
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F)), 1.0F);           // tie: down to even
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F); // tie: up to even
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x1.1p-8F)), 1.0F + 0x1p-7F);
    EXPECT_EQ(to_float(to_bf16(-3.4e38F)), -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

/// Products against three loops, for sizes around the borders between threads.
TEST_F(KernelGradients, ProductsOfAllFormsAreTheSumsTheyStandFor) {
    for (const ProductShape s : {ProductShape{1, 1, 1}, {7, 5, 3}, {97, 49, 33}, {50, 130, 64}}) {
        const auto a = random_values(static_cast<std::size_t>(s.m * s.k), 1);
        const auto b = random_values(static_cast<std::size_t>(s.k * s.n), 2);
        for (const ProductForm form : {ProductForm::nn, ProductForm::nt, ProductForm::tn}) {
            Values c(static_cast<std::size_t>(s.m * s.n), 0.5);
            kernels.product(form, s, a.data(), b.data(), c.data(), true);
            for (Index i = 0; i < s.m; ++i) {
                for (Index j = 0; j < s.n; ++j) {
                    double sum = 0.5;
                    for (Index l = 0; l < s.k; ++l) {
                        const Index ai = form == ProductForm::tn ? l * s.m + i : i * s.k + l;
                        const Index bi = form == ProductForm::nt ? j * s.k + l : l * s.n + j;
                        sum += a[static_cast<std::size_t>(ai)] * b[static_cast<std::size_t>(bi)];
                    }
                    ASSERT_NEAR(c[static_cast<std::size_t>(i * s.n + j)], sum, 1e-12);
                }
            }
        }
    }
}

TEST_F(KernelGradients, GroupedProductsSkipExpertsWithoutRows) {
    const std::vector<Index> offsets = {0, 2, 2, 5};
    const auto x = random_values(5 * 4, 1);
    const auto w = random_values(3 * 6 * 4, 2);
    Values y(5 * 6, 9.0);
    kernels.grouped_product(ProductForm::nt, offsets, {0, 6, 4}, x.data(), w.data(), y.data(),
                            false);
    for (std::size_t row = 0; row < 5; ++row) {
        const std::size_t expert = row < 2 ? 0 : 2;
        for (std::size_t j = 0; j < 6; ++j) {
            double sum = 0.0;
            for (std::size_t l = 0; l < 4; ++l)
                sum += x[row * 4 + l] * w[(expert * 6 + j) * 4 + l];
            EXPECT_NEAR(y[row * 6 + j], sum, 1e-13);
        }
    }
    Values dw(3 * 6 * 4, 9.0);
    kernels.grouped_product(ProductForm::tn, offsets, {6, 4, 0}, y.data(), x.data(), dw.data(),
                            false);
    for (std::size_t i = 24; i < 48; ++i)
        EXPECT_EQ(dw[i], 0.0);
}

TEST_F(KernelGradients, OfNormsAgreeWithDifferences) {
    for (const sim::NormKind kind : {sim::NormKind::layernorm, sim::NormKind::rmsnorm}) {
        const NormShape shape{kind, 5, 67, 1e-5};
        auto x = random_values(5 * 67, 1);
        auto scale = random_values(67, 2);
        auto shift = random_values(67, 3);
        const auto dy = random_values(5 * 67, 4);
        Values y = zeros(x.size());
        Values stats = zeros(10);
        const auto loss = [&] {
            kernels.norm_forward(shape, x.data(), scale.data(), shift.data(), y.data(),
                                 stats.data());
            return dot(y, dy);
        };
        loss();
        Values dx = zeros(x.size());
        Values dscale = zeros(67);
        Values dshift = zeros(67);
        kernels.norm_backward(shape, dy.data(), x.data(), scale.data(), stats.data(), dx.data(),
                              dscale.data(), dshift.data());
        expect_gradient("x", x, dx, loss);
        expect_gradient("scale", scale, dscale, loss);
        expect_gradient("shift", shift, dshift, loss);
    }
}

TEST_F(KernelGradients, OfActivationsAgreeWithDifferences) {
    using sim::Activation;
    for (const Activation kind :
         {Activation::gelu, Activation::silu, Activation::squared_relu, Activation::relu}) {
        for (const bool gated : {false, true}) {
            const ActivationShape shape{kind, gated, 3, 37};
            auto x = random_values(gated ? 222 : 111, 5);
            // away from the corner, where a difference is no derivative
            for (double& v : x)
                if (std::abs(v) < 0.01) v = 0.5;
            const auto dy = random_values(111, 6);
            Values y = zeros(111);
            const auto loss = [&] {
                kernels.activation_forward(shape, x.data(), y.data());
                return dot(y, dy);
            };
            Values dx = zeros(x.size());
            kernels.activation_backward(shape, x.data(), dy.data(), dx.data());
            expect_gradient("x", x, dx, loss);
        }
    }
}

TEST_F(KernelGradients, OfActivationsInSinglePrecisionStayCloseToDouble) {
    CpuKernels<float> single(1);
    const auto x = random_values(4096, 5, 4.0);
    const std::vector<float> x32(x.begin(), x.end());
    const Values ones(4096, 1.0);
    const std::vector<float> ones32(4096, 1.0F);
    for (const sim::Activation kind : {sim::Activation::gelu, sim::Activation::silu}) {
        const ActivationShape shape{kind, false, 1, 4096};
        Values y(4096);
        Values dx(4096);
        std::vector<float> y32(4096);
        std::vector<float> dx32(4096);
        kernels.activation_forward(shape, x.data(), y.data());
        kernels.activation_backward(shape, x.data(), ones.data(), dx.data());
        single.activation_forward(shape, x32.data(), y32.data());
        single.activation_backward(shape, x32.data(), ones32.data(), dx32.data());
        for (std::size_t i = 0; i < x.size(); ++i) {
            ASSERT_NEAR(static_cast<double>(y32[i]), y[i], 2e-6 * std::max(1.0, std::abs(y[i])));
            // where the tangent is one but for its last bits, its slope is lost
            ASSERT_NEAR(static_cast<double>(dx32[i]), dx[i], 5e-6);
        }
    }
}

TEST_F(KernelGradients, OfRotationAgreeWithDifferencesAndTurnBack) {
    const RotaryShape shape{10, 5, 3, 8, 6, 30, 10000.0};
    auto x = random_values(300, 7);
    const auto start = x;
    const auto dy = random_values(300, 8);
    const auto loss = [&] {
        Values y = x;
        kernels.rotate(shape, false, y.data());
        return dot(y, dy);
    };
    Values dx = dy;
    kernels.rotate(shape, true, dx.data());
    expect_gradient("x", x, dx, loss);
    kernels.rotate(shape, false, x.data());
    EXPECT_NE(x, start);
    kernels.rotate(shape, true, x.data());
    for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(x[i], start[i], 1e-12);
}

TEST_F(KernelGradients, OfTablesAndRowSumsAgreeWithDifferences) {
    const std::vector<Token> tokens = {3, 1, 3, 0, 3, 2};
    auto table = random_values(4 * 9, 1);
    auto positions = random_values(3 * 9, 2);
    auto bias = random_values(9, 3);
    const auto dy = random_values(6 * 9, 4);
    Values y = zeros(54);
    const auto loss = [&] {
        kernels.embed(tokens, 9, 3, table.data(), positions.data(), y.data());
        kernels.add_rows(6, 9, y.data(), bias.data(), y.data());
        return dot(y, dy);
    };
    Values dtable = zeros(36);
    Values dpositions = zeros(27);
    Values dbias = zeros(9);
    kernels.embed_backward(tokens, 9, 3, dy.data(), dtable.data(), dpositions.data());
    kernels.sum_rows(6, 9, dy.data(), dbias.data());
    expect_gradient("table", table, dtable, loss);
    expect_gradient("positions", positions, dpositions, loss);
    expect_gradient("bias", bias, dbias, loss);
}

/// Attention with all scores at once, in the plainest form.
Values plain_attention(const AttentionShape& s, const Values& qkv) {
    const Index group = s.heads / s.kv_heads;
    Values out(static_cast<std::size_t>(s.sequences * s.length * s.heads * s.head_dim), 0.0);
    const auto at = [&](Index row, Index head, Index i) {
        return qkv[static_cast<std::size_t>(row * s.stride + head * s.head_dim + i)];
    };
    for (Index n = 0; n < s.sequences; ++n) {
        for (Index h = 0; h < s.heads; ++h) {
            for (Index i = 0; i < s.length; ++i) {
                Values p(static_cast<std::size_t>(i + 1));
                double sum = 0.0;
                for (Index j = 0; j <= i; ++j) {
                    double score = 0.0;
                    for (Index d = 0; d < s.head_dim; ++d)
                        score += at(n * s.length + i, h, d) *
                                 at(n * s.length + j, s.heads + h / group, d);
                    p[static_cast<std::size_t>(j)] =
                        std::exp(score / std::sqrt(static_cast<double>(s.head_dim)));
                    sum += p[static_cast<std::size_t>(j)];
                }
                for (Index j = 0; j <= i; ++j) {
                    for (Index d = 0; d < s.head_dim; ++d) {
                        const Index to = ((n * s.length + i) * s.heads + h) * s.head_dim + d;
                        out[static_cast<std::size_t>(to)] +=
                            p[static_cast<std::size_t>(j)] / sum *
                            at(n * s.length + j, s.heads + s.kv_heads + h / group, d);
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
        const AttentionShape s{2, c.length, c.heads, c.kv_heads, c.head_dim, stride};
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

TEST_F(KernelGradients, OfCrossEntropyAgreeWithDifferencesForEveryChunk) {
    const std::vector<Token> targets = {1, 0, 12, 5, 5, 7, 2};
    auto x = random_values(7 * 6, 1);
    auto head = random_values(13 * 6, 2);
    for (const Index chunk : {1, 3, 7, 100}) {
        const LossShape s{7, 6, 13, chunk};
        const auto loss = [&] {
            return 0.25 *
                   kernels.cross_entropy(s, x.data(), head.data(), targets, 0.0, nullptr, nullptr);
        };
        Values dx(x.size(), 7.0);
        Values dhead = zeros(head.size());
        EXPECT_DOUBLE_EQ(0.25 * kernels.cross_entropy(s, x.data(), head.data(), targets, 0.25,
                                                      dx.data(), dhead.data()),
                         loss());
        expect_gradient("x", x, dx, loss);
        expect_gradient("head", head, dhead, loss);
    }
}

TEST_F(KernelGradients, OfRoutingAgreeWithDifferences) {
    const RouterShape s{9, 5, 2, 0.3};
    auto logits = random_values(45, 21);
    auto sorted = random_values(18 * 4, 22);
    const auto dy = random_values(36, 23);
    std::vector<std::int32_t> expert(18);
    std::vector<std::int32_t> place(18);
    std::vector<Index> offsets(6);
    const Routing routing{expert.data(), place.data(), offsets.data()};
    Values p(45);
    Values w(18);
    const auto loss = [&] {
        const double balance = kernels.route(s, logits.data(), p.data(), w.data(), routing);
        Values y = zeros(36);
        kernels.combine(s, 4, routing, w.data(), sorted.data(), y.data());
        return 0.5 * balance + dot(y, dy);
    };
    loss();
    Values dw(18);
    Values dsorted(72);
    Values dlogits(45);
    kernels.combine_backward(s, 4, routing, w.data(), sorted.data(), dy.data(), dw.data(),
                             dsorted.data());
    kernels.route_backward(s, p.data(), w.data(), routing, dw.data(), 0.5, dlogits.data());
    expect_gradient("logits", logits, dlogits, loss);
    expect_gradient("sorted", sorted, dsorted, loss);

    auto x = random_values(36, 24);
    const auto dsent = random_values(72, 25);
    const auto sent_loss = [&] {
        Values sent(72);
        kernels.dispatch(s, 4, routing, x.data(), sent.data());
        return dot(sent, dsent);
    };
    Values dx = zeros(36);
    kernels.dispatch_backward(s, 4, routing, dsent.data(), dx.data());
    expect_gradient("x", x, dx, sent_loss);
}

TEST_F(KernelGradients, RoutingSendsEveryChoiceAndPrefersTheLowerNumber) {
    const RouterShape s{3, 4, 2, 1.0};
    const Values logits = {0, 0, 0, 0, 1, 5, 1, 3, 2, 2, 2, 9};
    std::vector<std::int32_t> expert(6);
    std::vector<std::int32_t> place(6);
    std::vector<Index> offsets(5);
    Values p(12);
    Values w(6);
    kernels.route(s, logits.data(), p.data(), w.data(),
                  {expert.data(), place.data(), offsets.data()});
    EXPECT_EQ(expert, (std::vector<std::int32_t>{0, 1, 1, 3, 3, 0}));
    EXPECT_EQ(offsets, (std::vector<Index>{0, 2, 4, 4, 6}));
    EXPECT_EQ(place, (std::vector<std::int32_t>{0, 2, 3, 4, 5, 1}));
    EXPECT_DOUBLE_EQ(w[0], 0.5);
}

TEST_F(KernelGradients, ResultsDoNotDependOnTheNumberOfThreads) {
    CpuKernels<double> one(1);
    CpuKernels<double> three(3);
    const NormShape shape{sim::NormKind::layernorm, 64, 256, 1e-5};
    const auto x = random_values(64 * 256, 1);
    const auto dy = random_values(64 * 256, 2);
    std::vector<Values> found;
    for (CpuKernels<double>* k : {&one, &three}) {
        Values y(x.size());
        Values stats(128);
        Values dscale = zeros(256);
        Values dx = zeros(x.size());
        k->norm_forward(shape, x.data(), nullptr, nullptr, y.data(), stats.data());
        k->norm_backward(shape, dy.data(), x.data(), nullptr, stats.data(), dx.data(),
                         dscale.data(), nullptr);
        y.insert(y.end(), dx.begin(), dx.end());
        y.insert(y.end(), dscale.begin(), dscale.end());
        y.push_back(k->square_sum(static_cast<Index>(x.size()), x.data()));
        found.push_back(y);
    }
    EXPECT_EQ(found[0], found[1]);
}

} // namespace
} // namespace shardplan::test
