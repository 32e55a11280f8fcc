#include <fstream>
#include <iostream>
#include <map>

#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

using Values = std::map<std::string, double>;

/// What the script beside the file found for one model.
Values reference(const std::string& model) {
    std::ifstream file(SHARDPLAN_SOURCE_DIR "/tests/executor/data/pytorch_reference.txt");
    Values values;
    std::string name;
    std::string what;
    double value = 0.0;
    while (file >> name >> what >> value) {
        if (name == model) values[what] = value;
    }
    return values;
}

double wave(Index i, double phase) {
    const double angle = 1.7 * static_cast<double>(i) + phase;
    return std::sin(angle * angle);
}

template <class Scalar>
double norm_of(const Scalar* values, Index count) {
    double sum = 0.0;
    for (Index i = 0; i < count; ++i)
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    return std::sqrt(sum);
}

template <class Scalar>
void run_block(Model<Scalar>& model, Values& found) {
    const Index count = tiny_sequence * tiny_batch * 24;
    Pass<Scalar> pass;
    pass.blocks.resize(2);
    Scalar* x = pass.blocks[0].input.write(model.arena(), Storage::scalar, count);
    Buffer<Scalar> gradient(count);
    for (Index i = 0; i < count; ++i) {
        x[i] = static_cast<Scalar>(wave(i, 3.0));
        gradient[i] = static_cast<Scalar>(wave(i, 5.0));
    }
    model.forward(0, pass, true);
    const Reading<Scalar> out = pass.blocks[1].input.read();
    for (Index i = 0; i < count; ++i)
        found["block"] += static_cast<double>(static_cast<const Scalar*>(out)[i]) * wave(i, 5.0);
    model.backward(0, pass, gradient.data(), 0.0);
    for (Index i = 0; i < count; ++i)
        found["block_gradient"] += static_cast<double>(gradient[i]) * wave(i, 5.0);
    CpuKernels<Scalar> kernels(1);
    model.parameters().clear_gradients(kernels);
}

template <class Scalar>
void run_steps(Model<Scalar>& model, Values& found) {
    Parameters<Scalar>& p = model.parameters();
    OptimizerOptions options;
    options.epsilon = 1e-5;
    const auto optimizer = DataParallel<Scalar>::make(model.kernels(), p, options);
    constexpr double tokens = tiny_sequence * tiny_batch;
    for (Index step = 0; step < 10; ++step) {
        const TinyBatch batch = tiny_tokens(step);
        const auto loss = model.train(batch.tokens, batch.targets, {1.0 / tokens, 1.0});
        ASSERT_TRUE(loss);
        for (const Parameter& at : p.table().parameters) {
            if (step > 0) break;
            found["gradient." + at.name] = norm_of(p.gradients() + at.offset, at.count());
        }
        const auto report = optimizer->step(1e-2);
        ASSERT_TRUE(report);
        found["loss." + std::to_string(step)] = loss->sum / tokens;
        found["norm." + std::to_string(step)] = report->gradient_norm;
    }
    for (const Parameter& at : p.table().parameters)
        found["value." + at.name] = norm_of(p.values() + at.offset, at.count());
}

template <class Scalar>
void expect_as_pytorch(const std::string& name, const sim::ModelSpec& spec, double allowed) {
    ModelOptions options;
    options.sequence = tiny_sequence;
    options.micro_batch = tiny_batch;
    const auto model = Model<Scalar>::make(spec, options, std::make_shared<CpuKernels<Scalar>>(2));
    ASSERT_TRUE(model);
    fill_with_waves((*model)->parameters());
    Values found;
    run_block(**model, found);
    run_steps(**model, found);
    const Values want = reference(name);
    ASSERT_EQ(found.size(), want.size());
    double worst = 0.0;
    for (const auto& [what, value] : want) {
        ASSERT_TRUE(found.count(what)) << what;
        EXPECT_NEAR(found[what], value, allowed * std::abs(value)) << name << " " << what;
        worst = std::max(worst, std::abs(found[what] / value - 1.0));
    }
    std::cout << name << ", " << sizeof(Scalar) << " bytes: worst relative difference " << worst
              << "\n";
}

TEST(PyTorch, HasTheSameGpt2BlockAndTenSteps) {
    expect_as_pytorch<double>("gpt2", tiny_gpt2(true), 1e-12);
    expect_as_pytorch<float>("gpt2", tiny_gpt2(true), 1e-4);
}

TEST(PyTorch, HasTheSameLlamaBlockAndTenSteps) {
    expect_as_pytorch<double>("llama", tiny_llama(), 1e-12);
    expect_as_pytorch<float>("llama", tiny_llama(), 1e-4);
}

TEST(PyTorch, HasTheSameMixtralBlockAndTenSteps) {
    expect_as_pytorch<double>("mixtral", tiny_mixtral(), 1e-12);
    expect_as_pytorch<float>("mixtral", tiny_mixtral(), 1e-4);
}

TEST(PyTorch, HasTheSameNormsOfHeadsWindowsSharedExpertsAndCompressedKeysInTenSteps) {
    expect_as_pytorch<double>("qwen3", tiny_qwen3(), 1e-12);
    expect_as_pytorch<double>("olmo2", tiny_olmo2(), 1e-12);
    expect_as_pytorch<double>("qwen2_moe", tiny_qwen2_moe(), 1e-12);
    expect_as_pytorch<double>("deepseek", tiny_deepseek(), 1e-12);
    expect_as_pytorch<float>("deepseek", tiny_deepseek(), 1e-4);
}

} // namespace
} // namespace shardplan::test
