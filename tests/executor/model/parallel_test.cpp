#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "tests/executor/model/parallel_run.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

ModelOptions parallel_options(std::vector<Recompute> recompute = {}) {
    ModelOptions options;
    options.sequence = parallel_sequence;
    options.micro_batch = 2;
    options.recompute = std::move(recompute);
    options.loss_chunk = 7;
    return options;
}

sim::ModelSpec gpt2(bool tied) {
    sim::ModelSpec model = tiny_gpt2(tied);
    model.embedding.position_rows = parallel_sequence;
    return model;
}

/// With as many key heads as four ranks split.
sim::ModelSpec wide(sim::ModelSpec model) {
    sim::Attention& attention = model.block_kinds[0].attention;
    attention.heads = 8;
    attention.kv_heads = 4;
    return model;
}

void expect_as_on_one_rank(const sim::ModelSpec& model, const std::vector<std::string>& layouts,
                           const ModelOptions& options = parallel_options(),
                           bool deferred = false) {
    Deviation worst;
    for (const std::string& layout : layouts) {
        SCOPED_TRACE(layout);
        const Deviation d = deviation_of<double>({model, layout, options, deferred});
        EXPECT_LE(d.loss, 1e-11);
        EXPECT_LE(d.gradient, 1e-11) << d.parameter;
        worst.loss = std::max(worst.loss, d.loss);
        worst.gradient = std::max(worst.gradient, d.gradient);
    }
    std::cout << "worst relative difference: losses " << worst.loss << ", gradients "
              << worst.gradient << '\n';
}

const std::vector<std::string> tensor = {"tp2,dp1,mb2", "tp4,dp1,mb2", "tp2,dp2,mb2"};
const std::vector<std::string> sequence = {"tp2,sp,dp1,mb2", "tp4,sp,dp1,mb2", "tp2,sp,dp2,mb2"};

TEST(TensorParallel, OfAGpt2TrainsAsOneRankTiedAndUntied) {
    for (const bool tied : {true, false}) {
        expect_as_on_one_rank(gpt2(tied), tensor);
        expect_as_on_one_rank(gpt2(tied), sequence);
    }
}

TEST(TensorParallel, OfALlamaTrainsAsOneRankTiedAndUntied) {
    for (const bool tied : {true, false}) {
        expect_as_on_one_rank(wide(tiny_llama(tied)), tensor);
        expect_as_on_one_rank(wide(tiny_llama(tied)), sequence);
    }
}

TEST(TensorParallel, OfAMixtralTrainsAsOneRank) {
    expect_as_on_one_rank(wide(tiny_mixtral()), tensor);
    expect_as_on_one_rank(wide(tiny_mixtral()), sequence);
}

TEST(TensorParallel, WithFewerRowsOfTheVocabularyThanFillTheRanksTrainsAsOneRank) {
    sim::ModelSpec model = gpt2(false);
    model.embedding.vocab = 5; // 2, 2, 1 and none
    expect_as_on_one_rank(model, {"tp4,dp1,mb2", "tp4,sp,dp1,mb2"});
}

TEST(ContextParallel, ByARingTrainsAsOneRank) {
    const std::vector<std::string> layouts = {"cp2,dp1,mb2", "cp3,dp1,mb2", "cp4,dp1,mb2",
                                              "cp2,dp2,mb2"};
    for (const sim::ModelSpec& model : {gpt2(true), tiny_llama(), tiny_mixtral()})
        expect_as_on_one_rank(model, layouts);
}

TEST(ContextParallel, ByGatheredKeysTrainsAsOneRank) {
    const std::vector<std::string> layouts = {"cp2:allgather,dp1,mb2", "cp3:allgather,dp1,mb2",
                                              "cp4:allgather,dp1,mb2"};
    for (const sim::ModelSpec& model : {gpt2(true), tiny_llama(), tiny_mixtral()})
        expect_as_on_one_rank(model, layouts);
}

TEST(ContextParallel, ByExchangedHeadsTrainsAsOneRank) {
    expect_as_on_one_rank(gpt2(false), {"cp2:a2a,dp1,mb2", "cp4:a2a,dp1,mb2"});
    expect_as_on_one_rank(wide(tiny_llama()), {"cp2:a2a,dp1,mb2", "cp4:a2a,dp1,mb2"});
    sim::ModelSpec three = tiny_mixtral();
    three.block_kinds[0].attention.heads = 6;
    three.block_kinds[0].attention.kv_heads = 3;
    expect_as_on_one_rank(three, {"cp3:a2a,dp1,mb2"});
}

TEST(ContextParallel, ByExchangedHeadsOverMoreRanksThanKeyHeadsTrainsAsOneRank) {
    expect_as_on_one_rank(tiny_llama(), {"cp4:a2a,dp1,mb2", "cp4:a2a,dp1,mb1",
                                         "tp2,cp2:a2a,dp1,mb2", "tp2,sp,cp2:a2a,dp1,mb1"});
    sim::ModelSpec one = wide(tiny_llama());
    one.block_kinds[0].attention.kv_heads = 1;
    expect_as_on_one_rank(one, {"cp2:a2a,dp1,mb2", "tp2,cp4:a2a,dp1,mb2", "tp4,cp2:a2a,dp1,mb2"});
    expect_as_on_one_rank(wide(tiny_mixtral()), {"tp2,cp4:a2a,dp1,mb2"});
}

/// Ways to split a layer that norms of heads, windows and the like have to go along with.
const std::vector<std::string> ways = {
    "tp2,dp1,mb2",     "tp4,sp,dp1,mb2",         "cp2,dp1,mb2",
    "cp4,dp1,mb1",     "cp3:allgather,dp1,mb2",  "cp4:a2a,dp1,mb2",
    "tp2,cp2,dp1,mb2", "tp2,sp,cp2:a2a,dp1,mb2", "tp2,sp,cp2:allgather,dp1,mb1"};

void expect_all_ways(const sim::ModelSpec& model, std::vector<std::string> more = {}) {
    more.insert(more.end(), ways.begin(), ways.end());
    for (const bool deferred : {false, true}) {
        expect_as_on_one_rank(model, more, parallel_options(), deferred);
    }
    expect_as_on_one_rank(model, more, parallel_options({Recompute::full}));
    expect_as_on_one_rank(model, more, parallel_options({Recompute::selective}), true);
}

TEST(AllWays, OfNormsOfHeadsAndWindowsTrainAsOneRank) {
    expect_all_ways(tiny_qwen3());
    expect_all_ways(tiny_olmo2());
}

const std::vector<std::string> expert_ways = {"dp2,ep2,mb2", "tp2,dp1,ep2,etp1,mb2",
                                              "tp2,sp,dp2,ep2,mb1", "tp2,dp2,ep4,etp1,mb2"};

TEST(AllWays, OfSharedExpertsTrainAsOneRank) { expect_all_ways(tiny_qwen2_moe(), expert_ways); }

TEST(AllWays, OfCompressedKeysTrainAsOneRank) {
    expect_all_ways(tiny_deepseek(), expert_ways);
    expect_all_ways(tiny_deepseek(0));
}

TEST(AllWays, OfHalvesSideBySideTrainAsOneRank) {
    expect_all_ways(tiny_parallel(true));
    expect_all_ways(tiny_parallel(false));
}

TEST(AllWays, OfSinksAndBiasesOfExpertsTrainAsOneRank) {
    expect_all_ways(tiny_gpt_oss(), {"dp2,ep2,mb2", "tp2,dp2,ep4,etp1,mb2"});
}

TEST(AllWays, OfDroppedValuesDropTheSame) { expect_all_ways(tiny_dropping()); }

TEST(ExpertParallel, TrainsAsOneRank) {
    expect_as_on_one_rank(tiny_mixtral(), {"dp2,ep2,mb2", "dp4,ep4,mb2", "dp4,ep2,mb2"});
}

TEST(ExpertParallel, OverTensorParallelRanksTrainsAsOneRank) {
    // experts split as the rest; not split, so that the ranks share out the tokens; split otherwise
    expect_as_on_one_rank(wide(tiny_mixtral()),
                          {"tp2,dp2,ep2,mb2", "tp2,dp1,ep2,etp1,mb2", "tp2,dp2,ep4,etp1,mb2",
                           "tp4,dp1,ep2,etp2,mb2", "tp2,dp2,etp4,mb2", "tp2,dp1,etp1,mb2"});
}

TEST(ExpertParallel, OverSequenceParallelRanksTrainsAsOneRank) {
    expect_as_on_one_rank(wide(tiny_mixtral()), {"tp2,sp,dp2,ep2,mb2", "tp2,sp,dp1,ep2,etp1,mb2",
                                                 "tp2,sp,dp2,ep4,etp1,mb2",
                                                 "tp4,sp,dp1,ep2,etp2,mb2", "tp2,sp,dp2,etp4,mb2"});
}

TEST(ExpertParallel, OverContextParallelRanksTrainsAsOneRank) {
    expect_as_on_one_rank(wide(tiny_mixtral()),
                          {"cp2,dp1,ep2,mb2", "cp2,dp2,ep4,mb2", "tp2,cp2,dp1,ep2,mb2",
                           "tp2,sp,cp2,dp1,ep4,etp1,mb2", "tp2,cp2:a2a,dp1,ep2,mb2"});
}

TEST(MixedParallel, TrainsAsOneRankInEveryOrderOfRanks) {
    expect_as_on_one_rank(gpt2(true), {"tp2,cp2,dp1,mb2", "tp2,sp,cp2:allgather,dp2,mb2"});
    expect_as_on_one_rank(wide(tiny_llama()), {"tp2,sp,cp2,dp1,mb2", "tp2,cp2:a2a,dp1,mb2",
                                               "tp2,sp,cp2,dp2,mb2,order=dp-cp-tp-ep-pp"});
    expect_as_on_one_rank(wide(tiny_mixtral()), {"tp2,cp2,dp2,ep2,mb2,order=dp-tp-cp-ep-pp",
                                                 "tp2,sp,dp2,ep2,mb2,order=dp-tp-cp-ep-pp",
                                                 "tp2,dp2,ep2,etp1,mb2,order=ep-dp-tp-cp-pp"});
}

TEST(ParallelRecompute, RepeatsTheExchanges) {
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        expect_as_on_one_rank(gpt2(true), {"tp2,sp,dp1,mb2", "tp2,cp2,dp1,mb2"},
                              parallel_options({recompute}));
        expect_as_on_one_rank(wide(tiny_mixtral()),
                              {"tp2,sp,cp2:a2a,dp1,ep2,mb2", "tp2,dp1,ep2,etp1,mb2"},
                              parallel_options({recompute, Recompute::none}));
    }
}

TEST(ParallelDeferral, LeavesWeightsForLater) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const ModelOptions options = parallel_options({recompute});
        expect_as_on_one_rank(gpt2(true), {"tp2,sp,dp1,mb2", "tp2,cp2,dp1,mb2"}, options, true);
        expect_as_on_one_rank(wide(tiny_mixtral()),
                              {"tp2,sp,dp2,ep4,etp1,mb2", "tp2,dp1,ep2,etp1,mb2"}, options, true);
    }
}

TEST(ParallelArithmetic, InSinglePrecisionAndIn16BitStorageStaysClose) {
    for (const char* layout : {"tp2,sp,cp2,dp1,mb2", "tp2,cp2:a2a,dp1,mb2", "tp2,dp2,ep2,mb2"}) {
        SCOPED_TRACE(layout);
        ModelOptions options = parallel_options();
        const sim::ModelSpec model = std::string(layout).find("ep") == std::string::npos
                                         ? wide(tiny_llama())
                                         : wide(tiny_mixtral());
        const Deviation single = deviation_of<float>({model, layout, options});
        EXPECT_LE(single.loss, 1e-5);
        EXPECT_LE(single.gradient, 1e-4) << single.parameter;
        options.storage = Storage::bf16;
        const Deviation narrow = deviation_of<float>({model, layout, options});
        EXPECT_LE(narrow.loss, 1e-2);
        EXPECT_LE(narrow.gradient, 0.1) << narrow.parameter;
        std::cout << "float: losses " << single.loss << ", gradients " << single.gradient
                  << "; 16 bits: " << narrow.loss << ", " << narrow.gradient << '\n';
    }
}

/// A layout on up to eight ranks, whether or not the model goes into it.
sim::Layout drawn_layout(std::mt19937& engine, bool routed) {
    const auto one_of = [&](std::initializer_list<int> values) {
        return *(values.begin() + static_cast<std::ptrdiff_t>(engine() % values.size()));
    };
    sim::Layout layout;
    do {
        layout.tp = static_cast<std::uint16_t>(one_of({1, 1, 2, 4}));
        layout.cp = static_cast<std::uint16_t>(one_of({1, 1, 2, 3, 4}));
        layout.dp = static_cast<std::uint32_t>(one_of({1, 2, 3, 4}));
    } while (sim::rank_count(layout) > 8);
    layout.micro_batch = static_cast<std::uint32_t>(one_of({1, 2, 3}));
    layout.sp = layout.tp > 1 && one_of({0, 1}) == 1;
    layout.cp_kind = static_cast<sim::CpKind>(layout.cp > 1 ? one_of({0, 1, 2}) : 0);
    layout.order = static_cast<std::uint8_t>(engine() % sim::order_count);
    if (routed) {
        layout.ep = static_cast<std::uint16_t>(one_of({1, 2, 4}));
        layout.etp = static_cast<std::uint16_t>(one_of({0, 0, 1, 2, 4}));
    }
    return sim::normal_form(layout);
}

TEST(MixedParallel, LayoutsDrawnByChanceTrainAsOneRank) {
    std::mt19937 engine(20);
    sim::ModelSpec long_gpt2 = wide(tiny_gpt2());
    long_gpt2.embedding.position_rows = 48;
    const sim::ModelSpec models[] = {long_gpt2,
                                     wide(tiny_llama()),
                                     tiny_qwen3(),
                                     tiny_olmo2(),
                                     tiny_dropping(),
                                     wide(tiny_mixtral()),
                                     wide(tiny_mixtral(true)),
                                     tiny_deepseek(),
                                     tiny_qwen2_moe()};
    constexpr std::size_t dense = 5;
    Deviation worst;
    int trained = 0;
    for (int i = 0; i < 60; ++i) {
        const std::size_t number = engine() % std::size(models);
        const sim::LayoutTables tables;
        const sim::Layout layout = drawn_layout(engine, number >= dense);
        ParallelCase c{models[number], to_text(layout, tables), parallel_options()};
        c.options.sequence = 48;
        c.options.micro_batch = layout.micro_batch;
        c.options.recompute = {static_cast<Recompute>(engine() % 3)};
        c.deferred = engine() % 2 == 0;
        if (!share_of(c.model, layout, tables, 0)) continue; // does not go into the degrees
        SCOPED_TRACE(c.layout);
        const Deviation d = deviation_of<double>(c);
        ASSERT_LE(d.loss, 1e-11) << d.parameter;
        ASSERT_LE(d.gradient, 1e-11) << d.parameter;
        worst.loss = std::max(worst.loss, d.loss);
        worst.gradient = std::max(worst.gradient, d.gradient);
        ++trained;
    }
    EXPECT_GE(trained, 35);
    std::cout << trained << " layouts, worst relative difference: losses " << worst.loss
              << ", gradients " << worst.gradient << '\n';
}

} // namespace
} // namespace shardplan::test
