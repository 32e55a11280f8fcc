#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "executor/run/token_source.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

TEST(RateSchedule, RisesFallsAndStays) {
    const RateSchedule rate{1.0, 0.1, 10, 110};
    EXPECT_DOUBLE_EQ(rate.at(1), 0.1);
    EXPECT_DOUBLE_EQ(rate.at(10), 1.0);
    EXPECT_NEAR(rate.at(60), 0.55, 1e-15);
    EXPECT_DOUBLE_EQ(rate.at(110), 0.1);
    EXPECT_DOUBLE_EQ(rate.at(1000), 0.1);
    EXPECT_DOUBLE_EQ((RateSchedule{0.5, 0.0, 0, 0}).at(7), 0.5);
}

/// One matrix of two values and one vector of one.
ParameterTable two_parameters() {
    ParameterTable table;
    table.parameters = {{"matrix", 1, 2, 0, Start::ones, 0.0, true},
                        {"vector", 1, 1, 2, Start::ones, 0.0, false}};
    table.count = 3;
    return table;
}

void set_gradients(Parameters<double>& p, double a, double b, double c) {
    p.gradients()[0] = a;
    p.gradients()[1] = b;
    p.gradients()[2] = c;
}

TEST(Optimizer, AdamWMovesByTheRateAndDecaysMatricesAlone) {
    CpuKernels<double> kernels(1);
    Parameters<double> p(two_parameters(), Storage::scalar);
    p.start(0);
    OptimizerOptions options;
    options.clip = 0.0;
    options.epsilon = 0.0;
    const auto optimizer = DataParallel<double>::make(kernels, p, options);
    set_gradients(p, 3.0, -0.5, 2.0);
    ASSERT_TRUE(optimizer->step(0.01));
    // the first step is the gradient's sign, whatever its size
    EXPECT_NEAR(p.values()[0], 1.0 - 0.01 * 0.1 - 0.01, 1e-14);
    EXPECT_NEAR(p.values()[1], 1.0 - 0.01 * 0.1 + 0.01, 1e-14);
    EXPECT_NEAR(p.values()[2], 1.0 - 0.01, 1e-14);
    EXPECT_EQ(p.gradients()[0], 0.0);
}

TEST(Optimizer, SgdGathersVelocity) {
    CpuKernels<double> kernels(1);
    Parameters<double> p(two_parameters(), Storage::scalar);
    p.start(0);
    OptimizerOptions options;
    options.kind = OptimizerKind::sgd;
    options.clip = 0.0;
    options.decay = 0.0;
    const auto optimizer = DataParallel<double>::make(kernels, p, options);
    for (int i = 0; i < 2; ++i) {
        set_gradients(p, 1.0, 2.0, 3.0);
        ASSERT_TRUE(optimizer->step(0.1));
    }
    EXPECT_NEAR(p.values()[0], 1.0 - 0.1 - 0.1 * 1.9, 1e-15);
    EXPECT_NEAR(p.values()[2], 1.0 - 0.3 - 0.3 * 1.9, 1e-15);
}

TEST(Optimizer, ClipsByTheNormOfAllGradientsTogether) {
    CpuKernels<double> kernels(1);
    Parameters<double> p(two_parameters(), Storage::scalar);
    p.start(0);
    OptimizerOptions options;
    options.kind = OptimizerKind::sgd;
    options.momentum = 0.0;
    options.decay = 0.0;
    const auto optimizer = DataParallel<double>::make(kernels, p, options);
    set_gradients(p, 2.0, 3.0, 6.0);
    const auto report = optimizer->step(1.0);
    ASSERT_TRUE(report);
    EXPECT_DOUBLE_EQ(report->gradient_norm, 7.0);
    EXPECT_NEAR(p.values()[2], 1.0 - 6.0 / 7.0, 1e-6);
}

TEST(Optimizer, LeavesParametersAloneWhenGradientsAreNotNumbers) {
    CpuKernels<double> kernels(1);
    Parameters<double> p(two_parameters(), Storage::scalar);
    p.start(0);
    const auto optimizer = DataParallel<double>::make(kernels, p, {});
    set_gradients(p, 1.0, std::numeric_limits<double>::quiet_NaN(), 1.0);
    const auto report = optimizer->step(1.0);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().where, "step 1");
    EXPECT_EQ(p.values()[0], 1.0);
    EXPECT_EQ(optimizer->steps(), 0);
}

/// Mean loss of the first and of the last five of `steps` steps on the project's licence.
std::pair<double, double> losses_on_a_text(Storage storage, OptimizerKind kind, Index steps) {
    sim::ModelSpec spec = tiny_llama();
    spec.embedding.vocab = 256;
    ModelOptions options;
    options.sequence = 32;
    options.micro_batch = 4;
    options.storage = storage;
    auto model = Model<float>::make(spec, options, std::make_shared<CpuKernels<float>>(2));
    auto source = TokenSource::open(SHARDPLAN_SOURCE_DIR "/LICENSE", TokenFormat::bytes);
    EXPECT_TRUE(source);
    auto stream = SampleStream::make(std::move(source).value(), 32, {});
    Parameters<float>& p = (*model)->parameters();
    p.start(42);
    OptimizerOptions chosen;
    chosen.kind = kind;
    const auto optimizer = DataParallel<float>::make((*model)->kernels(), p, chosen);
    const double peak = kind == OptimizerKind::adamw ? 0.01 : 0.3;
    const RateSchedule rate{peak, peak / 10.0, 5, steps};
    std::vector<Token> tokens(128);
    std::vector<Token> targets(128);
    std::pair<double, double> found;
    for (Index step = 1; step <= steps; ++step) {
        stream->next(tokens, targets);
        const auto loss = (*model)->train(tokens, targets, {1.0 / 128.0, 1.0});
        EXPECT_TRUE(optimizer->step(rate.at(step)));
        if (step <= 5) found.first += loss->sum / 128.0 / 5.0;
        if (step > steps - 5) found.second += loss->sum / 128.0 / 5.0;
    }
    return found;
}

TEST(Training, LowersTheLossOnAText) {
    for (const Storage storage : {Storage::scalar, Storage::bf16}) {
        const auto [first, last] = losses_on_a_text(storage, OptimizerKind::adamw, 150);
        EXPECT_NEAR(first, std::log(256.0), 0.4); // nothing learned yet
        EXPECT_LT(last, 2.9);                     // letters alone, without context: about 3.1
    }
    const auto [first, last] = losses_on_a_text(Storage::scalar, OptimizerKind::sgd, 150);
    EXPECT_LT(last, first - 1.5);
}

} // namespace
} // namespace shardplan::test
