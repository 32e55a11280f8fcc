#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "tests/executor/gradient_check.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

std::vector<sim::ModelSpec> all_kinds() {
    return {tiny_gpt2(),         tiny_llama(),     tiny_mixtral(),      tiny_qwen3(),
            tiny_olmo2(),        tiny_qwen2_moe(), tiny_deepseek(),     tiny_dropping(),
            tiny_parallel(true), tiny_gpt_oss(),   tiny_parallel(false)};
}

ModelOptions tiny_options(std::vector<Recompute> recompute = {}) {
    ModelOptions options;
    options.sequence = tiny_sequence;
    options.micro_batch = tiny_batch;
    options.recompute = std::move(recompute);
    options.loss_chunk = 7;
    return options;
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> tiny(const sim::ModelSpec& spec, const ModelOptions& options) {
    auto model = Model<Scalar>::make(spec, options, std::make_shared<CpuKernels<Scalar>>(2));
    EXPECT_TRUE(model) << to_text(model.error());
    fill_with_waves((*model)->parameters());
    return std::move(model).value();
}

constexpr LossFactors mean = {1.0 / (tiny_sequence * tiny_batch), 1.0};

/// The gradients of one step.
template <class Scalar>
std::vector<Scalar> gradients(const sim::ModelSpec& spec, const ModelOptions& options) {
    const auto model = tiny<Scalar>(spec, options);
    const TinyBatch batch = tiny_tokens(0);
    EXPECT_TRUE(model->train(batch.tokens, batch.targets, mean));
    const Parameters<Scalar>& p = model->parameters();
    EXPECT_EQ(model->arena().bytes_in_use(), 0);
    return {p.gradients(), p.gradients() + p.table().count};
}

void expect_whole_model(const sim::ModelSpec& spec) {
    const auto model = tiny<double>(spec, tiny_options());
    const TinyBatch batch = tiny_tokens(0);
    const auto loss = [&](const Loss& l) { return mean.token * l.sum + mean.balance * l.balance; };
    const auto trained = model->train(batch.tokens, batch.targets, mean);
    ASSERT_TRUE(trained);
    const auto evaluate = [&] { return loss(*model->evaluate(batch.tokens, batch.targets)); };
    EXPECT_DOUBLE_EQ(evaluate(), loss(*trained));
    Parameters<double>& p = model->parameters();
    for (std::size_t i = 0; i < p.table().parameters.size(); ++i) {
        const Parameter& at = p.table().parameters[i];
        expect_gradient(at.name.c_str(), p.values() + at.offset, p.gradient(static_cast<Index>(i)),
                        static_cast<std::size_t>(at.count()), evaluate, 25);
    }
}

TEST(ModelGradients, OfAGpt2AgreeWithDifferencesTiedAndUntied) {
    expect_whole_model(tiny_gpt2(true));
    expect_whole_model(tiny_gpt2(false));
}

TEST(ModelGradients, OfALlamaAgreeWithDifferencesTiedAndUntied) {
    expect_whole_model(tiny_llama(true));
    expect_whole_model(tiny_llama(false));
}

TEST(ModelGradients, OfAMixtralAgreeWithDifferencesTiedAndUntied) {
    expect_whole_model(tiny_mixtral(true));
    expect_whole_model(tiny_mixtral(false));
}

TEST(ModelGradients, WithNormsOfHeadsWindowsAndNormsBehindAgreeWithDifferences) {
    expect_whole_model(tiny_qwen3());
    expect_whole_model(tiny_olmo2());
}

TEST(ModelGradients, WithSharedExpertsAgreeWithDifferences) {
    expect_whole_model(tiny_qwen2_moe());
    sim::ModelSpec plain = tiny_mixtral();
    plain.block_kinds[0].ffn.shared_width = 8;
    expect_whole_model(plain);
}

TEST(ModelGradients, FromCompressedQueriesKeysAndValuesAgreeWithDifferences) {
    expect_whole_model(tiny_deepseek());
    expect_whole_model(tiny_deepseek(0));
}

TEST(ModelGradients, OfHalvesSideBySideAgreeWithDifferences) {
    expect_whole_model(tiny_parallel(true));
    expect_whole_model(tiny_parallel(false));
}

TEST(ModelGradients, WithSinksBiasesOfExpertsAndANormBehindTheTablesAgreeWithDifferences) {
    expect_whole_model(tiny_gpt_oss());
}

TEST(ModelGradients, WithValuesDroppedAgreeWithDifferences) {
    const auto model = tiny<double>(tiny_dropping(), tiny_options());
    const TinyBatch batch = tiny_tokens(0);
    const auto loss = [&] {
        return mean.token * model->train(batch.tokens, batch.targets, mean)->sum;
    };
    const double dropped = loss();
    EXPECT_NE(dropped, mean.token * model->evaluate(batch.tokens, batch.targets)->sum);
    Parameters<double>& p = model->parameters();
    const std::vector<double> gradients(p.gradients(), p.gradients() + p.table().count);
    EXPECT_EQ(dropped, loss());
    for (const Parameter& at : p.table().parameters) {
        expect_gradient(at.name.c_str(), p.values() + at.offset, gradients.data() + at.offset,
                        static_cast<std::size_t>(at.count()), loss, 25);
    }
}

TEST(ModelGradients, OfDenseAndRoutedBlocksInOneModelAgreeWithDifferences) {
    sim::ModelSpec spec = tiny_mixtral();
    sim::BlockKind plain = tiny_llama().block_kinds[0];
    plain.name = "plain";
    plain.attention.rope_dim = 4; // a part of each head
    plain.ffn.activation = sim::Activation::gelu;
    plain.norms.kind = sim::NormKind::layernorm;
    plain.norms.affine = false;
    spec.block_kinds.push_back(plain);
    spec.parts[0].runs = {{1, 1}, {0, 1}};
    spec.parts[0].final_norm = false;
    expect_whole_model(spec);
}

TEST(ModelGradients, AreTheSameBitsWhateverIsComputedAgain) {
    for (const sim::ModelSpec& spec : all_kinds()) {
        const auto kept = gradients<float>(spec, tiny_options());
        EXPECT_EQ(gradients<float>(spec, tiny_options({Recompute::full})), kept);
        EXPECT_EQ(gradients<float>(spec, tiny_options({Recompute::selective})), kept);
        EXPECT_EQ(gradients<float>(spec, tiny_options({Recompute::full, Recompute::none})), kept);
    }
}

TEST(ModelGradients, AreTheSameBitsWhateverIsComputedAgainIn16BitStorage) {
    for (const sim::ModelSpec& spec : all_kinds()) {
        ModelOptions options = tiny_options();
        options.storage = Storage::bf16;
        const auto kept = gradients<float>(spec, options);
        options.recompute = {Recompute::full, Recompute::selective};
        EXPECT_EQ(gradients<float>(spec, options), kept);
        const auto exact = gradients<float>(spec, tiny_options());
        EXPECT_NE(kept, exact);
        double difference = 0.0;
        double square = 0.0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            difference += std::pow(static_cast<double>(kept[i] - exact[i]), 2);
            square += std::pow(static_cast<double>(exact[i]), 2);
        }
        // eight bits of mantissa: each rounding is off by up to 0.4 %
        EXPECT_LT(std::sqrt(difference / square), 0.03);
    }
}

TEST(ModelGradients, AddUpOverMicroBatches) {
    const auto whole = tiny<double>(tiny_llama(), tiny_options());
    ModelOptions one = tiny_options();
    one.micro_batch = 1;
    const auto parts = tiny<double>(tiny_llama(), one);
    const TinyBatch batch = tiny_tokens(3);
    const std::span<const Token> tokens(batch.tokens);
    const std::span<const Token> targets(batch.targets);
    const double sum = whole->train(tokens, targets, mean)->sum;
    double in_parts = 0.0;
    for (const std::size_t first : {std::size_t{0}, std::size_t{tiny_sequence}}) {
        in_parts += parts
                        ->train(tokens.subspan(first, tiny_sequence),
                                targets.subspan(first, tiny_sequence), mean)
                        ->sum;
    }
    EXPECT_NEAR(in_parts, sum, 1e-12 * sum);
    for (Index i = 0; i < whole->parameters().table().count; ++i) {
        ASSERT_NEAR(parts->parameters().gradients()[i], whole->parameters().gradients()[i], 1e-13);
    }
}

/// Gradients of a batch, block by block as a pipeline runs them, weights last.
std::vector<double> deferred_gradients(const sim::ModelSpec& spec, const ModelOptions& options) {
    const auto model = tiny<double>(spec, options);
    const TinyBatch batch = tiny_tokens(3);
    Pass<double> pass;
    model->embed(batch.tokens, pass);
    for (const Index block : {Index{0}, Index{1}})
        model->forward(block, pass, true);
    Buffer<double> gradient(model->boundary());
    model->head(batch.targets, pass, mean.token, gradient.data());
    pass.output.release();
    for (const Index block : {Index{1}, Index{0}})
        model->backward(block, pass, gradient.data(), mean.balance, true);
    model->embed_backward(batch.tokens, pass, gradient.data());
    EXPECT_FALSE(pass.deferred.empty());
    model->weight_gradients(pass);
    EXPECT_EQ(model->arena().bytes_in_use(), 0);
    const double* first = model->parameters().gradients();
    return {first, first + model->parameters().table().count};
}

TEST(ModelGradients, OfWeightsLeftForLaterAreTheSameToTheBit) {
    for (const sim::ModelSpec& spec : all_kinds()) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            const ModelOptions options = tiny_options({recompute});
            const auto model = tiny<double>(spec, options);
            const TinyBatch batch = tiny_tokens(3);
            ASSERT_TRUE(model->train(batch.tokens, batch.targets, mean));
            const double* first = model->parameters().gradients();
            EXPECT_EQ(deferred_gradients(spec, options),
                      std::vector<double>(first, first + model->parameters().table().count));
        }
    }
}

TEST(ModelMemory, RecomputationAndNarrowStorageLowerThePeak) {
    const auto peak = [](Storage storage, std::vector<Recompute> recompute) {
        sim::ModelSpec spec = tiny_llama();
        spec.parts[0].runs = {{0, 6}};
        ModelOptions options = tiny_options(std::move(recompute));
        options.storage = storage;
        const auto model = tiny<float>(spec, options);
        const TinyBatch batch = tiny_tokens(0);
        EXPECT_TRUE(model->train(batch.tokens, batch.targets, mean));
        return model->arena().high_water();
    };
    const Index none = peak(Storage::scalar, {});
    const Index selective = peak(Storage::scalar, {Recompute::selective});
    const Index full = peak(Storage::scalar, {Recompute::full});
    // attended and its sums: 24 and 4 values for each of 24 tokens in each of 6 blocks, less those
    // of the block whose turn it is in the backward pass
    EXPECT_LE(selective, none - 5 * 24 * 28 * 4);
    EXPECT_LT(full, none / 2);
    EXPECT_LT(peak(Storage::bf16, {}), none * 7 / 10);
}

TEST(ModelErrors, NameWhatCannotBeTrained) {
    const auto kernels = std::make_shared<CpuKernels<double>>(1);
    const auto refusal = [&](const sim::ModelSpec& spec, const ModelOptions& options) {
        const auto model = Model<double>::make(spec, options, kernels);
        return model ? std::string("accepted") : model.error().where;
    };
    sim::ModelSpec spec = tiny_llama();
    spec.block_kinds[0].attention.kind = sim::AttentionKind::ssm;
    EXPECT_EQ(refusal(spec, tiny_options()), "/block_kinds/0/attention/kind");
    spec = tiny_mixtral();
    spec.block_kinds[0].ffn.router_correction = true;
    EXPECT_EQ(refusal(spec, tiny_options()), "/block_kinds/0/ffn/router_correction");
    spec = tiny_gpt2();
    spec.hidden_dropout = 1.0;
    EXPECT_EQ(refusal(spec, tiny_options()), "/hidden_dropout");
    ModelOptions options = tiny_options({Recompute::full, Recompute::full, Recompute::full});
    EXPECT_EQ(refusal(tiny_gpt2(), options), "options/recompute");
    options = tiny_options();
    options.sequence = 13;
    EXPECT_EQ(refusal(tiny_gpt2(), options), "options/sequence");
    options = tiny_options();
    options.storage = Storage::bf16;
    EXPECT_EQ(refusal(tiny_gpt2(), options), "options/storage");
}

TEST(ModelErrors, NameTheTokenThatIsNotInTheVocabulary) {
    const auto model = tiny<float>(tiny_llama(), tiny_options());
    TinyBatch batch = tiny_tokens(0);
    batch.targets[5] = 50;
    EXPECT_EQ(model->train(batch.tokens, batch.targets, mean).error().where, "targets/5");
    batch.tokens.pop_back();
    EXPECT_EQ(model->evaluate(batch.tokens, batch.targets).error().where, "tokens");
}

} // namespace
} // namespace shardplan::test
