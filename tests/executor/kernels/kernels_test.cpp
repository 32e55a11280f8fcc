#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "executor/kernels/bf16.hpp"
#include "tests/executor/kernels/kernel_gradients.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
    EXPECT_EQ(to_float(to_bf16(1.0F)), 1.0F);
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F)), 1.0F);           // tie: down to even
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F); // tie: up to even
    EXPECT_EQ(to_float(to_bf16(1.0F + 0x1.1p-8F)), 1.0F + 0x1p-7F);
    EXPECT_EQ(to_float(to_bf16(-3.4e38F)), -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

/// Lengths around those of vectors: what a loop over whole ones leaves over is converted alike.
TEST(Bf16, BuffersOfAnyLengthAreRoundedAsTheirElementsAre) {
    std::vector<float> x;
    for (int i = 0; i < 67; ++i) {
        x.push_back(1.0F + 0x1p-9F * static_cast<float>(i));
    }
    x[3] = std::numeric_limits<float>::quiet_NaN();
    x[40] = -std::numeric_limits<float>::infinity();
    for (std::size_t count = 0; count <= x.size(); ++count) {
        std::vector<Bf16> packed(count + 1);
        std::vector<float> back(count + 1);
        pack(x.data(), static_cast<Index>(count), packed.data());
        unpack(packed.data(), static_cast<Index>(count), back.data());
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(packed[i], to_bf16(x[i]));
            ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), packed[i].bits << 16U);
        }
        EXPECT_EQ(packed.back(), Bf16{});
        EXPECT_EQ(back.back(), 0.0F);
    }
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

TEST_F(KernelGradients, ProductsWithoutInnerElementsAreZero) {
    for (const ProductForm form : {ProductForm::nn, ProductForm::nt, ProductForm::tn}) {
        Values c(6, 7.0);
        kernels.product(form, {2, 3, 0}, nullptr, nullptr, c.data(), true);
        EXPECT_EQ(c, Values(6, 7.0));
        kernels.product(form, {2, 3, 0}, nullptr, nullptr, c.data(), false);
        EXPECT_EQ(c, zeros(6));
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
    const std::vector<Index> positions = {4, 5, 6, 13, 14};
    const RotaryShape shape{10, 5, 3, 8, 6, 30, 10000.0, positions.data()};
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

TEST_F(KernelGradients, RotationOfAPieceOfASequenceIsThatOfItsPositions) {
    const RotaryShape whole{8, 8, 2, 4, 4, 8, 10000.0};
    auto x = random_values(64, 7);
    Values piece(x.begin() + 24, x.begin() + 40); // positions 3 and 4
    const std::vector<Index> positions = {3, 4};
    const RotaryShape part{2, 2, 2, 4, 4, 8, 10000.0, positions.data()};
    kernels.rotate(whole, false, x.data());
    kernels.rotate(part, false, piece.data());
    EXPECT_EQ(piece, Values(x.begin() + 24, x.begin() + 40));
}

TEST_F(KernelGradients, OfTablesAndRowSumsAgreeWithDifferences) {
    const std::vector<Token> tokens = {3, 1, 3, 0, 3, 2};
    const std::vector<Token> places = {0, 1, 2, 0, 1, 2};
    // the table has tokens 1 to 3 alone
    const EmbedShape part{9, 1, 3};
    const EmbedShape all{9, 0, 3};
    auto table = random_values(3 * 9, 1);
    auto positions = random_values(3 * 9, 2);
    auto bias = random_values(9, 3);
    const auto dy = random_values(6 * 9, 4);
    Values y = zeros(54);
    const auto loss = [&] {
        kernels.embed(part, tokens, table.data(), y.data(), false);
        EXPECT_EQ(Values(y.begin() + 27, y.begin() + 36), zeros(9));
        kernels.embed(all, places, positions.data(), y.data(), true);
        kernels.add_rows(6, 9, y.data(), bias.data(), y.data());
        return dot(y, dy);
    };
    Values dtable = zeros(27);
    Values dpositions = zeros(27);
    Values dbias = zeros(9);
    kernels.embed_backward(part, tokens, dy.data(), dtable.data());
    kernels.embed_backward(all, places, dy.data(), dpositions.data());
    kernels.sum_rows(6, 9, dy.data(), dbias.data());
    expect_gradient("table", table, dtable, loss);
    expect_gradient("positions", positions, dpositions, loss);
    expect_gradient("bias", bias, dbias, loss);
}

TEST_F(KernelGradients, OfCrossEntropyInPartsOfTheVocabularyAgreeWithDifferences) {
    const std::vector<Token> targets = {1, 0, 12, 5, 5, 7, 2};
    auto logits = random_values(7 * 13, 1);
    const auto part = [&](const LossShape& s) {
        Values out;
        for (Index r = 0; r < 7; ++r) {
            const auto from = logits.begin() + r * 13 + s.first;
            out.insert(out.end(), from, from + s.vocab);
        }
        return out;
    };
    for (const Index first : {13, 5, 12, 0}) { // columns of the first of two parts
        const LossShape parts[] = {{7, first, 0}, {7, 13 - first, static_cast<Token>(first)}};
        Values exponentials[2];
        Values sums = zeros(7);
        const auto loss = [&] {
            Values top(7, -1e300);
            Values found(7);
            for (const LossShape& s : parts) {
                kernels.loss_top(s, part(s).data(), found.data());
                for (std::size_t r = 0; r < 7; ++r)
                    top[r] = std::max(top[r], found[r]);
            }
            Values chosen = zeros(7);
            Values logit(7);
            sums = zeros(7);
            for (std::size_t i = 0; i < 2; ++i) {
                exponentials[i] = part(parts[i]);
                kernels.loss_sums(parts[i], targets, top.data(), exponentials[i].data(),
                                  found.data(), logit.data());
                for (std::size_t r = 0; r < 7; ++r) {
                    sums[r] += found[r];
                    chosen[r] += logit[r];
                }
            }
            double sum = 0.0;
            for (std::size_t r = 0; r < 7; ++r)
                sum += 0.25 * (top[r] + std::log(sums[r]) - chosen[r]);
            return sum;
        };
        loss();
        Values gradient(logits.size());
        for (std::size_t i = 0; i < 2; ++i) {
            const LossShape& s = parts[i];
            Values d = exponentials[i];
            kernels.loss_gradient(s, targets, 0.25, sums.data(), d.data());
            for (Index r = 0; r < 7; ++r)
                std::copy_n(d.begin() + r * s.vocab, s.vocab, gradient.begin() + r * 13 + s.first);
        }
        expect_gradient("logits", logits, gradient, loss);
    }
}

TEST_F(KernelGradients, OfRoutingAgreeWithDifferences) {
    const RouterShape s{9, 5, 2};
    auto logits = random_values(45, 21);
    auto sorted = random_values(18 * 4, 22);
    const auto dy = random_values(36, 23);
    std::vector<std::int32_t> expert(18);
    std::vector<std::int32_t> place(18);
    std::vector<Index> offsets(6);
    const Routing routing{expert.data(), place.data(), offsets.data()};
    Values p(45);
    Values w(18);
    Values sums(10);
    const Values slopes = {0.3, 0.1, 0.0, 0.7, 0.2};
    const auto loss = [&] {
        kernels.route(s, logits.data(), p.data(), w.data(), expert.data(), sums.data());
        kernels.sort_choices(s, routing);
        Values y = zeros(36);
        kernels.combine(s, 4, routing, w.data(), sorted.data(), y.data());
        // the choices are steps: their share has no slope
        double balance = 0.0;
        for (std::size_t e = 0; e < 5; ++e)
            balance += slopes[e] * sums[e];
        return balance + dot(y, dy);
    };
    loss();
    Values dw(18);
    Values dsorted(72);
    Values dlogits(45);
    // the gradient of a weighted row: of the weight its product with what was weighted
    kernels.dispatch(s, 4, routing, dy.data(), dsorted.data());
    Values dplaced(18);
    Values placed(18);
    kernels.row_products(18, 4, dsorted.data(), sorted.data(), dplaced.data());
    kernels.dispatch_backward({18, 0, 1}, 1, routing, dplaced.data(), dw.data());
    kernels.move_rows(18, 1, place.data(), w.data(), placed.data());
    kernels.scale_rows(18, 4, placed.data(), dsorted.data());
    kernels.route_backward(s, p.data(), w.data(), expert.data(), dw.data(), slopes.data(),
                           dlogits.data());
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
    const RouterShape s{3, 4, 2};
    const Values logits = {0, 0, 0, 0, 1, 5, 1, 3, 2, 2, 2, 9};
    std::vector<std::int32_t> expert(6);
    std::vector<std::int32_t> place(6);
    std::vector<Index> offsets(5);
    Values p(12);
    Values w(6);
    Values sums(8);
    kernels.route(s, logits.data(), p.data(), w.data(), expert.data(), sums.data());
    kernels.sort_choices(s, {expert.data(), place.data(), offsets.data()});
    EXPECT_EQ(expert, (std::vector<std::int32_t>{0, 1, 1, 3, 3, 0}));
    EXPECT_EQ(offsets, (std::vector<Index>{0, 2, 4, 4, 6}));
    EXPECT_EQ(place, (std::vector<std::int32_t>{0, 2, 3, 4, 5, 1}));
    EXPECT_DOUBLE_EQ(w[0], 0.5);
    EXPECT_DOUBLE_EQ(sums[0] + sums[1] + sums[2] + sums[3], 3.0);
    EXPECT_EQ(Values(sums.begin() + 4, sums.end()), (Values{2, 2, 0, 2}));
    Values moved(6);
    kernels.move_rows(6, 1, place.data(), Values{0, 1, 2, 3, 4, 5}.data(), moved.data());
    EXPECT_EQ(moved, (Values{0, 5, 1, 2, 3, 4}));
}

TEST_F(KernelGradients, SquareSumsAreThoseOfAllElementsAndNoOthers) {
    CpuKernels<float> single(2);
    for (const Index count : {0, 1, 15, 16, 17, 16384, 16384 * 3 + 5}) {
        std::vector<float> x(static_cast<std::size_t>(count) + 1);
        single.fill(count + 1, 0.5F, x.data());
        x.back() = 1000.0F;
        EXPECT_EQ(single.square_sum(count, x.data()), 0.25 * static_cast<double>(count));
        single.fill(count, 0.0F, x.data());
        EXPECT_EQ(single.square_sum(count, x.data()), 0.0);
        EXPECT_EQ(x.back(), 1000.0F);
    }
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
