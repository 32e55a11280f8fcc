#include "simulator/compute/op_list.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "simulator/spec/parameters.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

ParameterTable whole_table(const sim::ModelSpec& model) {
    return parameter_table(model, whole_model(model));
}

/// Keeps the shapes of what it runs.
class Recorder : public CpuKernels<double> {
public:
    Recorder() : CpuKernels<double>(1) {}

    void product(ProductForm form, ProductShape s, const double* a, const double* b, double* c,
                 bool accumulate) override {
        if (!in_group_) products.push_back({form, {s.m, s.n, s.k, 1}});
        CpuKernels<double>::product(form, s, a, b, c, accumulate);
    }
    void grouped_product(ProductForm form, std::span<const Index> offsets, ProductShape s,
                         const double* a, const double* b, double* c, bool accumulate) override {
        // as many rows each as if the tokens were spread evenly, which is how a plan counts them
        const auto groups = static_cast<Index>(offsets.size()) - 1;
        (form == ProductForm::tn ? s.k : s.m) = offsets.back() / groups;
        products.push_back({form, {s.m, s.n, s.k, groups}});
        in_group_ = true;
        CpuKernels<double>::grouped_product(form, offsets, s, a, b, c, accumulate);
        in_group_ = false;
    }
    void attention_forward(const AttentionShape& s, const double* q, const double* k,
                           const double* v, double* out, double* lse) override {
        // queries see no more keys than a window has; of both products' widths the mean
        attention.push_back({s.queries, s.window > 0 ? std::min(s.window, s.keys) : s.keys,
                             (s.head_dim + s.value_width()) / 2, s.sequences * s.heads});
        CpuKernels<double>::attention_forward(s, q, k, v, out, lse);
    }

    struct Product {
        ProductForm form;
        sim::Gemm gemm;
        friend bool operator==(const Product&, const Product&) = default;
    };
    std::vector<Product> products;
    std::vector<sim::Gemm> attention;

private:
    bool in_group_ = false;
};

bool multiplies(const sim::Op& op) {
    using sim::OpKind;
    return op.kind == OpKind::linear || op.kind == OpKind::grouped_linear ||
           op.kind == OpKind::router || op.kind == OpKind::head;
}

/// The products that the simulator prices for a step of the model on one rank.
struct Priced {
    std::vector<Recorder::Product> forward;
    std::vector<sim::Gemm> attention;
    sim::Gemm head;
};

Priced priced(const sim::ModelSpec& spec) {
    sim::Resolved resolved;
    resolved.sequence = tiny_sequence;
    resolved.sequence_mean_square = static_cast<double>(tiny_sequence * tiny_sequence);
    resolved.global_batch = tiny_batch;
    sim::ShardingKey sharding;
    sharding.micro_batch = tiny_batch;
    const sim::StackProfile stack = generic_stack();
    Priced out;
    const sim::Part& trunk = spec.parts[0];
    for (Index i = 0; i < sim::block_count(trunk); ++i) {
        const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
        for (const sim::Op& op :
             block_ops(spec.block_kinds[kind], trunk.hidden, spec, resolved, stack, sharding)) {
            if (multiplies(op)) out.forward.push_back({ProductForm::nt, op.gemm});
            if (op.kind == sim::OpKind::attention) out.attention.push_back(op.gemm);
        }
    }
    for (const sim::Op& op : head_ops(spec, resolved, stack, sharding)) {
        if (multiplies(op)) out.head = op.gemm;
    }
    return out;
}

class ExecutedOperators : public ::testing::TestWithParam<const char*> {
protected:
    static sim::ModelSpec spec() {
        const std::string name = GetParam();
        const std::map<std::string, sim::ModelSpec> models = {{"gpt2", tiny_gpt2()},
                                                              {"llama", tiny_llama()},
                                                              {"mixtral", tiny_mixtral()},
                                                              {"qwen3", tiny_qwen3()},
                                                              {"olmo2", tiny_olmo2()},
                                                              {"qwen2_moe", tiny_qwen2_moe()},
                                                              {"deepseek", tiny_deepseek()},
                                                              {"deepseek_lite", tiny_deepseek(0)},
                                                              {"dropping", tiny_dropping()},
                                                              {"one_norm", tiny_parallel(true)},
                                                              {"two_norms", tiny_parallel(false)},
                                                              {"gpt_oss", tiny_gpt_oss()}};
        return models.at(name);
    }
};

TEST_P(ExecutedOperators, AreTheMatrixProductsOfTheOpList) {
    const sim::ModelSpec model_spec = spec();
    const Priced want = priced(model_spec);
    const auto recorder = std::make_shared<Recorder>();
    ModelOptions options;
    options.sequence = tiny_sequence;
    options.micro_batch = tiny_batch;
    const auto model = Model<double>::make(model_spec, options, recorder);
    ASSERT_TRUE(model);
    (*model)->parameters().start(1);
    const TinyBatch batch = tiny_tokens(0);
    Pass<double> pass;
    (*model)->embed(batch.tokens, pass);
    for (Index i = 0; i < 2; ++i)
        (*model)->forward(i, pass, true);
    EXPECT_EQ(recorder->products, want.forward);
    EXPECT_EQ(recorder->attention, want.attention);

    recorder->products.clear();
    Buffer<double> gradient(tiny_sequence * tiny_batch * 24);
    (*model)->head(batch.targets, pass, 1.0, gradient.data());
    const sim::Gemm head = want.head;
    EXPECT_EQ(recorder->products,
              (std::vector<Recorder::Product>{{ProductForm::nt, head},
                                              {ProductForm::nn, {head.m, head.k, head.n, 1}},
                                              {ProductForm::tn, {head.n, head.k, head.m, 1}}}));

    // backward: for each product one for the input and one for the weights, from the last on
    recorder->products.clear();
    for (Index i = 1; i >= 0; --i)
        (*model)->backward(i, pass, gradient.data(), 1.0);
    std::vector<Recorder::Product> backward;
    for (auto p = want.forward.rbegin(); p != want.forward.rend(); ++p) {
        const sim::Gemm& g = p->gemm;
        backward.push_back({ProductForm::nn, {g.m, g.k, g.n, g.count}});
        backward.push_back({ProductForm::tn, {g.n, g.k, g.m, g.count}});
    }
    // the gate of shared experts gets its gradient inside that of their last map, and both of two
    // halves that lie side by side theirs before any that reads the input
    const auto in_order = [](std::vector<Recorder::Product> products) {
        std::sort(products.begin(), products.end(), [](const auto& a, const auto& b) {
            const auto key = [](const Recorder::Product& p) {
                return std::tuple(p.form, p.gemm.m, p.gemm.n, p.gemm.k, p.gemm.count);
            };
            return key(a) < key(b);
        });
        return products;
    };
    const bool mixed =
        model_spec.block_kinds[0].ffn.shared_gate || model_spec.block_kinds[0].norms.parallel;
    EXPECT_EQ(mixed ? in_order(recorder->products) : recorder->products,
              mixed ? in_order(backward) : backward);
}

TEST_P(ExecutedOperators, WorkOnAsManyParametersAsTheSimulatorCounts) {
    EXPECT_EQ(whole_table(spec()).count, sim::count_parameters(spec()).total);
}

INSTANTIATE_TEST_SUITE_P(Models, ExecutedOperators,
                         ::testing::Values("gpt2", "llama", "mixtral", "qwen3", "olmo2",
                                           "qwen2_moe", "deepseek", "deepseek_lite", "dropping",
                                           "one_norm", "two_norms", "gpt_oss"));

TEST(ParameterTable, OfLlama3And70BAndMixtralHaveThePublishedCounts) {
    EXPECT_EQ(whole_table(llama_3_8b()).count, 8030261248);
    EXPECT_EQ(whole_table(mixtral_8x7b()).count, 46702792704);
}

} // namespace
} // namespace shardplan::test
