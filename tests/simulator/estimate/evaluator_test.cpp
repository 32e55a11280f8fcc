#include "simulator/estimate/evaluator.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/estimate/estimated.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Estimate;
using sim::Layout;
using sim::TimeKind;

/// A scenario, a layout of it, and everything one can ask.
class Priced {
public:
    Priced(const sim::Scenario& scenario, std::string_view layout) {
        Evaluated own = evaluated(scenario, layout);
        layout_ = own.layout;
        evaluator_ = std::make_unique<sim::Evaluator>(std::move(own.evaluator));
        for (const sim::Refusal& refusal : check_layout(
                 evaluator_->scenario(), evaluator_->resolved(), layout_, evaluator_->tables())) {
            ADD_FAILURE() << layout << " is refused: " << refusal.rule;
        }
        estimate_ = evaluator_->estimate(layout_, workspace_);
    }

    [[nodiscard]] const Estimate& estimate() const { return estimate_; }
    [[nodiscard]] double step() const { return estimate_.time.total.value.value(); }
    [[nodiscard]] double exposed(TimeKind kind) const {
        return estimate_.time.exposed[kind].value();
    }
    [[nodiscard]] double hidden(TimeKind kind) const { return estimate_.time.hidden[kind].value(); }
    [[nodiscard]] sim::Score score() { return evaluator_->score(layout_, workspace_); }
    [[nodiscard]] sim::Result<sim::Term> explain(std::string_view path) {
        return evaluator_->explain(layout_, path, workspace_);
    }
    [[nodiscard]] const sim::Evaluator& evaluator() const { return *evaluator_; }
    [[nodiscard]] const Layout& layout() const { return layout_; }

private:
    Layout layout_;
    std::unique_ptr<sim::Evaluator> evaluator_;
    sim::Workspace workspace_;
    Estimate estimate_;
};

sim::Scenario llama_70b() {
    return scenario(llama_3_70b(), dgx_h100(64), job(8192, 1024), megatron_core_stack());
}
sim::Scenario gpt3() {
    return scenario(gpt3_175b(), dgx_a100(128), job(2048, 1536), megatron_core_stack());
}

const std::vector<std::pair<sim::Scenario, const char*>>& cases() {
    static const std::vector<std::pair<sim::Scenario, const char*>> all = {
        {llama_70b(), "tp8,sp,pp4,mb1,zero1"},
        {llama_70b(), "tp8,sp,cp2,pp4,mb1,zero1,rc=full"},
        {scenario(llama_3_70b(), dgx_h100(64), job(8192, 1024), fsdp2_stack()),
         "mb1,zero3,rc=full"},
        {gpt3(), "tp8,sp,pp16,mb1,zero1,rc=selective"},
        {gpt3(), "tp8,pp16,v2,mb1"},
        {scenario(mixtral_8x7b(), dgx_h100(8), job(4096, 1024), megatron_core_stack()),
         "tp2,sp,pp4,ep8,etp1,mb1,zero1"},
        {llama_8b(generic_stack()), "tp2,mb1,zero2,off=opt:0.5:host"},
    };
    return all;
}

TEST(Evaluator, ScoresAndEvaluatesToTheSameBits) {
    for (const auto& [given, layout] : cases()) {
        Priced p(given, layout);
        const sim::Score score = p.score();
        EXPECT_EQ(score.step_time, p.estimate().time.total.value) << layout;
        const auto& deciding =
            p.estimate().classes.at(static_cast<std::size_t>(p.estimate().deciding_class));
        EXPECT_EQ(score.peak, deciding.reserved.value) << layout;
        EXPECT_EQ(score.verdict, p.estimate().verdict) << layout;
        EXPECT_EQ(score.deciding, p.estimate().deciding) << layout;
        EXPECT_EQ(score.time_sigma, p.estimate().time.sigma) << layout;
        EXPECT_EQ(score.memory_sigma, p.estimate().memory_sigma) << layout;
        EXPECT_EQ(score.money_per_million_tokens, p.estimate().money_per_million_tokens);
    }
}

TEST(Evaluator, SaysTheSameWithWarmCachesAndCold) {
    for (const auto& [given, layout] : cases()) {
        Priced p(given, layout);
        sim::Workspace cold;
        EXPECT_EQ(p.evaluator().estimate(p.layout(), cold), p.estimate()) << layout;
        EXPECT_EQ(p.evaluator().estimate(p.layout(), cold), p.estimate()) << layout;
    }
}

/// Layouts that differ in one field each, and more than one per field that caches are keyed by.
std::vector<std::string> variations(const char* of) {
    std::vector<std::string> out;
    for (const char* change : {"",
                               ",mb2",
                               ",mb4",
                               ",zero0",
                               ",zero2",
                               ",zero3",
                               ",zero3,noreshard",
                               ",zero3,prefetch2",
                               ",zero3,wrap=2blocks",
                               ",zero3:4",
                               ",rc=full",
                               ",rc=full:2",
                               ",rc=selective",
                               ",v2",
                               ",sched=gpipe",
                               ",sched=zb-h1",
                               ",off=opt:0.5:host",
                               ",off=opt:1.0:host",
                               ",off=act:0.5:host",
                               ",off=opt:1.0:nvme",
                               ",order=dp-tp-cp-ep-pp",
                               ",order=tp-pp-cp-ep-dp"}) {
        for (const char* degrees :
             {"tp2,pp2", "tp2,sp,pp2", "tp4,pp2,cp2", "tp4,pp2,cp2:a2a", "tp2,pp4", "tp8,pp1"}) {
            const bool again = std::string_view(change).find("mb") != std::string_view::npos;
            const bool sharded = std::string_view(change).find("zero") != std::string_view::npos;
            out.push_back(std::string(degrees) + of + (again ? "" : ",mb1") +
                          (sharded ? "" : ",zero1") + change);
        }
    }
    return out;
}

TEST(Evaluator, SaysTheSameWhateverItWasAskedBefore) {
    const std::pair<sim::Scenario, std::vector<const char*>> given[] = {
        {scenario(llama_3_8b(), dgx_h100(8), job(4096, 256), generic_stack()), {""}},
        {scenario(mixtral_8x7b(), dgx_h100(8), job(4096, 256), megatron_core_stack()),
         {"", ",ep4", ",ep4,etp1", ",ep8,etp1"}},
    };
    for (const auto& [scenario, experts] : given) {
        sim::LayoutTables tables;
        std::vector<Layout> layouts;
        for (const char* split : experts) {
            for (const std::string& text : variations(split)) {
                const auto parsed = sim::parse_layout(text, "layout", tables);
                ASSERT_TRUE(parsed) << text << ": " << sim::to_text(parsed.error());
                const auto whole =
                    sim::complete_layout(*parsed, sim::device_count(scenario.cluster), "layout");
                ASSERT_TRUE(whole) << text << ": " << sim::to_text(whole.error());
                layouts.push_back(*whole);
            }
        }
        const auto evaluator = sim::Evaluator::make(scenario, tables);
        ASSERT_TRUE(evaluator);
        sim::Workspace shared;
        // a stride that is coprime to the number of layouts meets each once, far from the last
        constexpr std::size_t stride = 101;
        ASSERT_NE(layouts.size() % stride, 0U);
        for (std::size_t i = 0; i < 2 * layouts.size(); ++i) {
            // first as they stand, which changes one field at a time
            const Layout& layout = layouts[i < layouts.size() ? i : i * stride % layouts.size()];
            sim::Workspace fresh;
            sim::Workspace fresh_memory;
            const std::string text = sim::to_text(layout, tables);
            EXPECT_EQ(evaluator->score(layout, shared), evaluator->score(layout, fresh)) << text;
            EXPECT_EQ(evaluator->estimate(layout, shared), evaluator->estimate(layout, fresh))
                << text;
            sim::Score warm = evaluator->score_memory(layout, shared);
            sim::Score cold = evaluator->score_memory(layout, fresh_memory);
            evaluator->add_least_time(layout, shared, warm);
            evaluator->add_least_time(layout, fresh_memory, cold);
            EXPECT_EQ(warm, cold) << text;
        }
    }
}

TEST(Evaluator, SaysTheSameOfRankOrdersAndOffloadingOneAfterTheOther) {
    const sim::Scenario given =
        scenario(llama_3_8b(), dgx_h100(8), job(4096, 256), generic_stack());
    const auto evaluator = sim::Evaluator::make(given);
    ASSERT_TRUE(evaluator);
    sim::LayoutTables tables;
    sim::Workspace shared;
    for (const char* degrees : {"tp2,pp4,cp2,zero1", "tp4,pp2,zero3:4"}) {
        for (const char* offload : {"", ",off=opt:0.5:host", ",off=opt:1.0:host",
                                    ",off=act:0.5:host", ",off=par:0.5:host"}) {
            for (const char* order :
                 {"", ",order=tp-cp-ep-pp-dp", ",order=dp-tp-cp-ep-pp", ",order=pp-dp-cp-tp-ep"}) {
                for (const char* micro_batch : {",mb1", ",mb2", ",mb4", ",mb2"}) {
                    const std::string text = std::string(degrees) + micro_batch + offload + order;
                    const auto parsed = sim::parse_layout(text, "layout", tables);
                    ASSERT_TRUE(parsed) << text << ": " << sim::to_text(parsed.error());
                    const auto whole =
                        sim::complete_layout(*parsed, sim::device_count(given.cluster), "layout");
                    ASSERT_TRUE(whole) << text << ": " << sim::to_text(whole.error());
                    sim::Workspace fresh;
                    EXPECT_EQ(evaluator->score(*whole, shared), evaluator->score(*whole, fresh))
                        << text;
                    EXPECT_EQ(evaluator->estimate(*whole, shared),
                              evaluator->estimate(*whole, fresh))
                        << text;
                }
            }
        }
    }
}

TEST(Evaluator, StartsAWorkspaceAfreshForAnotherScenario) {
    Priced a(llama_8b(), "tp2,mb1,zero1");
    sim::Scenario slower = llama_8b();
    slower.stack.time.gemm_efficiency.value /= 2.0;
    Priced b(slower, "tp2,mb1,zero1");
    sim::Workspace shared;
    EXPECT_EQ(a.evaluator().estimate(a.layout(), shared), a.estimate());
    EXPECT_EQ(b.evaluator().estimate(b.layout(), shared), b.estimate());
}

TEST(Evaluator, ExposedTimesAddUpToTheStep) {
    for (const auto& [given, layout] : cases()) {
        Priced p(given, layout);
        EXPECT_EQ(p.estimate().time.exposed.total(), p.estimate().time.total.value) << layout;
    }
}

TEST(Explain, LeavesAddUpToTheFigure) {
    for (const auto& [given, layout] : cases()) {
        Priced p(given, layout);
        const auto tree = p.explain("time");
        ASSERT_TRUE(tree) << sim::to_text(tree.error());
        EXPECT_NEAR(sum_of_leaves(*tree) / p.step(), 1.0, 1e-12) << layout;
        for (std::size_t i = 0; i < sim::time_kind_count; ++i) {
            const auto kind = static_cast<TimeKind>(i);
            if (p.exposed(kind) == 0.0) continue;
            const auto part = p.explain("time." + std::string(name_of(kind)));
            ASSERT_TRUE(part) << sim::to_text(part.error());
            EXPECT_NEAR(sum_of_leaves(*part) / p.exposed(kind), 1.0, 1e-12)
                << layout << " " << name_of(kind);
        }
    }
}

TEST(Explain, LeadsToTheOperators) {
    Priced p(llama_70b(), "tp8,sp,pp4,mb1,zero1");
    const auto term = p.explain("time.gemm");
    ASSERT_TRUE(term);
    const sim::Term* qkv = find_term(*term, "qkv");
    ASSERT_NE(qkv, nullptr);
    EXPECT_NE(qkv->detail.find("8192 x 1280 x 8192"), std::string::npos) << qkv->detail;
}

TEST(Explain, NamesTheNearestTermToOneThatDoesNotExist) {
    Priced p(llama_8b(), "tp2,mb1,zero1");
    const auto term = p.explain("time.gem");
    ASSERT_FALSE(term);
    EXPECT_EQ(term.error().where, "time.gem");
    EXPECT_NE(term.error().hint.find("time.gemm"), std::string::npos) << term.error().hint;
    EXPECT_FALSE(p.explain("memory.99.weights"));
    EXPECT_FALSE(p.explain("speed"));
}

TEST(Explain, FindsMemoryByClassAndKind) {
    Priced p(llama_70b(), "tp8,sp,pp4,mb1,zero1");
    const auto weights = p.explain("memory.3.weights");
    ASSERT_TRUE(weights) << sim::to_text(weights.error());
    EXPECT_NEAR(weights->value,
                p.estimate().classes.at(3).at_peak[sim::TensorKind::weights].value(), 1.0);
}

TEST(StepTime, RunsForwardAgainUnderFullRecomputation) {
    Priced none(llama_8b(), "tp2,sp,mb1,zero1");
    Priced full(llama_8b(), "tp2,sp,mb1,zero1,rc=full");
    Priced some(llama_8b(), "tp2,sp,mb1,zero1,rc=selective");
    EXPECT_EQ(none.exposed(TimeKind::recompute), 0.0);
    EXPECT_GT(some.exposed(TimeKind::recompute), 0.0);
    EXPECT_GT(full.exposed(TimeKind::recompute), 2.0 * some.exposed(TimeKind::recompute));
    EXPECT_GT(full.step(), none.step() + 0.9 * full.exposed(TimeKind::recompute));
    EXPECT_GT(full.estimate().hfu, full.estimate().mfu);
    EXPECT_EQ(none.estimate().hfu, none.estimate().mfu);
}

TEST(StepTime, RecomputesOnlyTheFirstBlocksOfAStageWhenSaidSo) {
    Priced all(llama_8b(), "tp2,sp,mb1,zero1,rc=full");
    Priced quarter(llama_8b(), "tp2,sp,mb1,zero1,rc=full:8");
    EXPECT_DOUBLE_EQ(quarter.exposed(TimeKind::recompute),
                     all.exposed(TimeKind::recompute) * 8.0 / 32.0);
}

TEST(StepTime, DividesTheBubbleByTheChunks) {
    Priced plain(gpt3(), "tp8,pp16,mb1,rc=selective");
    Priced chunks(gpt3(), "tp8,pp16,v3,mb1,rc=selective");
    // by nearly three: what the last stage has more than the others waits for in neither
    EXPECT_LT(chunks.exposed(TimeKind::bubble), 0.45 * plain.exposed(TimeKind::bubble));
    // every chunk sends its messages
    EXPECT_GT(chunks.exposed(TimeKind::pp_comm), 2.0 * plain.exposed(TimeKind::pp_comm));
}

TEST(StepTime, HidesGradientReductionUnderTheBackwardPass) {
    Priced with(llama_8b(), "tp2,mb1,zero0");
    sim::Scenario without = llama_8b();
    without.stack.features.push_back(sim::Feature::no_overlap);
    Priced exposed(without, "tp2,mb1,zero0");
    EXPECT_EQ(exposed.hidden(TimeKind::dp_comm), 0.0);
    EXPECT_GT(with.hidden(TimeKind::dp_comm), 0.0);
    EXPECT_LT(with.exposed(TimeKind::dp_comm), exposed.exposed(TimeKind::dp_comm));
}

TEST(StepTime, GathersParametersForEveryMicroBatchUnderZero3) {
    const auto dp_bytes = [](const Priced& p) {
        for (const sim::LinkLoad& link : p.estimate().links) {
            if (link.dim == "dp") return link.per_step.value();
        }
        return 0.0;
    };
    sim::Scenario s = llama_8b(generic_stack());
    Priced four(s, "mb1,zero3");
    s.job.global_batch.sequences = 128;
    Priced eight(s, "mb1,zero3");
    EXPECT_EQ(eight.estimate().micro_batches, 2 * four.estimate().micro_batches);
    EXPECT_DOUBLE_EQ(dp_bytes(eight), 2.0 * dp_bytes(four));
    s.job.global_batch.sequences = 64;
    Priced states(s, "mb1,zero1");
    // 2 bytes gathered and 4 reduced per parameter, once
    EXPECT_NEAR(dp_bytes(states), 15.0 / 16.0 * 6.0 * 8030261248.0, 1e6);
}

TEST(Links, AreToldOfEveryStageAndThoseAtTheEndsSendHalfTheMessages) {
    sim::Scenario s = llama_8b(generic_stack());
    s.model.embedding.tied = true;
    const Priced p(s, "pp4,dp4,mb1");
    std::vector<std::pair<std::int64_t, std::int64_t>> messages;
    std::vector<double> sent(4, 0.0);
    for (const sim::LinkLoad& link : p.estimate().links) {
        if (link.dim == "pp") {
            messages.emplace_back(link.first_stage, link.stages);
            sent[static_cast<std::size_t>(link.first_stage)] = link.per_step.value();
        }
    }
    EXPECT_EQ(messages,
              (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {1, 2}, {3, 1}}));
    EXPECT_EQ(sent[1], 2.0 * sent[0]);
    EXPECT_EQ(sent[1], 2.0 * sent[3]);
    // first and last stage reduce a table more, and add it up between them
    const std::vector<sim::LinkLoad>& links = p.estimate().links;
    EXPECT_EQ("dp", links.back().dim);
    EXPECT_EQ(3, links.back().first_stage);
    EXPECT_NEAR(4.0 * 128256.0 * 4096.0, links.back().per_step.value(), 4.0 * 4096.0);
    EXPECT_GT(most_sent(links, "dp"), links.back().per_step);
    EXPECT_EQ(sim::Bytes(sent[1]), most_sent(links, "pp"));
    EXPECT_EQ(sim::Bytes{}, most_sent(links, "cp"));
}

TEST(StepTime, CountsMessagesOfTensorParallelismByHand) {
    Priced p(llama_8b(), "tp2,mb1,zero1");
    double bytes = 0.0;
    for (const sim::LinkLoad& link : p.estimate().links) {
        if (link.dim == "tp") bytes = link.per_step.value();
    }
    // 8 micro-batches; 32 blocks with 4 all-reduces; embedding 1, head 1 and its three small ones
    const double message = 67108864.0;
    EXPECT_NEAR(bytes, 8.0 * ((32.0 * 4.0 + 2.0) * message + 3.0 * 8192.0 * 4.0), 1.0);
}

TEST(StepTime, WaitsForLaunchesWhereKernelsAreSmall) {
    sim::Scenario s = scenario(small_model(4, 8, 8), dgx_h100(1), job(128, 8), generic_stack());
    Priced eager(s, "mb1,zero0");
    EXPECT_GT(eager.exposed(TimeKind::launch), 0.5 * eager.step() - 5e-3);
    s.stack.features.push_back(sim::Feature::cuda_graphs);
    Priced graphs(s, "mb1,zero0");
    EXPECT_EQ(graphs.exposed(TimeKind::launch), 0.0);
}

TEST(StepTime, LaunchesNoFewerKernelsThanTheOperatorsThemselves) {
    sim::Scenario s = scenario(small_model(4, 8, 8), dgx_h100(1), job(128, 8), generic_stack());
    const auto launch = [&](double kernels) {
        s.stack.time.kernels_per_block.value = kernels;
        return Priced(s, "mb1,zero0").exposed(TimeKind::launch);
    };
    // a stack's count adds views, casts and copies to the operators; it takes none of them away
    EXPECT_EQ(launch(0.0), launch(1.0));
    EXPECT_GT(launch(100.0), launch(1.0));
}

TEST(StepTime, SpendsTimeOnTheHostForOffloadedStates) {
    Priced on_device(llama_8b(generic_stack()), "tp2,mb1,zero1");
    Priced off(llama_8b(generic_stack()), "tp2,mb1,zero1,off=opt:1.0:host");
    EXPECT_EQ(on_device.exposed(TimeKind::offload), 0.0);
    EXPECT_GT(off.exposed(TimeKind::offload), 0.0);
    EXPECT_LT(off.exposed(TimeKind::optimizer), on_device.exposed(TimeKind::optimizer));
}

TEST(StepTime, UpdatesOnTheHostAtTheShareOfItsBandwidthThatItsOptimizerReaches) {
    const auto offload = [](double efficiency) {
        sim::Scenario given = llama_8b(generic_stack());
        given.stack.time.host_update_efficiency.value = efficiency;
        Priced p(given, "tp2,mb1,zero1,off=opt:1.0:host");
        return p.exposed(TimeKind::offload);
    };
    const sim::Scenario given = llama_8b(generic_stack());
    const auto& node = given.cluster.node_groups.front().node;
    const double rate = node.host.memory_bandwidth.value() / static_cast<double>(node.devices);
    const double update = offload(0.5) - offload(1.0);           // s at the peak, once more
    const double own = update * rate / (4.0 + 8.0 + 16.0 + 2.0); // gradient, states, copy
    const double ranks = static_cast<double>(node.devices) *
                         static_cast<double>(given.cluster.node_groups.front().count);
    EXPECT_NEAR(own * ranks, 8.03e9, 0.01e9); // parameters, each updated once
    EXPECT_NEAR(offload(0.25) - offload(0.5), 2.0 * update, 1e-9 * update);
}

TEST(StepTime, FetchesOffloadedParametersInEveryPassOfEveryMicroBatch) {
    const sim::Scenario given = llama_8b(generic_stack());
    const sim::Host& host = given.cluster.node_groups.front().node.host;
    const double link = usable(host.pcie_per_device).value();
    const double passes = 2.0 * 64.0 / 16.0; // forward and backward of the sequences of a rank
    const auto fetches = [&](const char* layout) {
        Priced p(given, layout);
        const double seconds = p.exposed(TimeKind::offload) + p.hidden(TimeKind::offload);
        return seconds * link / (8.03e9 * 2.0 / 16.0); // of the bf16 parameters of a rank
    };
    EXPECT_NEAR(fetches("mb1,zero3,off=par:1.0:host"), passes, 0.05 * passes);
    EXPECT_NEAR(fetches("mb2,zero3,off=par:1.0:host"), passes / 2.0, 0.05 * passes);
    EXPECT_NEAR(fetches("mb1,zero3,off=par:0.5:host"), passes / 2.0, 0.05 * passes);
}

TEST(StepTime, LeavesUtilisationBelowThePeak) {
    for (const auto& [given, layout] : cases()) {
        Priced p(given, layout);
        EXPECT_GT(p.estimate().mfu, 0.05) << layout;
        EXPECT_LT(p.estimate().mfu, 0.7) << layout;
        const double tokens = p.estimate().tokens_per_second * p.step();
        EXPECT_NEAR(tokens,
                    static_cast<double>(p.evaluator().resolved().global_batch) *
                        static_cast<double>(p.evaluator().resolved().sequence),
                    1e-6 * tokens);
    }
}

TEST(Verdict, IsOneSentenceWithMarginAndTheTermThatDecides) {
    Priced p(llama_70b(), "tp8,sp,pp4,mb1,zero1");
    const std::string& text = p.estimate().verdict_text;
    EXPECT_EQ(text, describe_verdict(p.estimate()));
    EXPECT_NE(text.find("GiB to spare"), std::string::npos) << text;
    EXPECT_NE(text.find("stage "), std::string::npos) << text;
    EXPECT_NE(text.find(std::string(name_of(p.estimate().deciding))), std::string::npos) << text;
}

TEST(Verdict, DoesNotFitWhereAModelIsTooLarge) {
    Priced p(scenario(llama_3_70b(), dgx_h100(1), job(8192, 8), megatron_core_stack()), "tp8,mb1");
    EXPECT_EQ(p.estimate().verdict, sim::Verdict::does_not_fit);
    EXPECT_LT(p.estimate().margin.value(), 0.0);
    EXPECT_NE(p.estimate().verdict_text.find("too much"), std::string::npos);
}

TEST(Warnings, TellOfExposedCommunication) {
    Priced p(llama_8b(generic_stack()), "tp16,mb1,zero1");
    bool told = false;
    for (const sim::Warning& warning : p.estimate().warnings) {
        told = told || warning.id == "exposed-communication";
    }
    EXPECT_TRUE(told);
}

TEST(Evaluator, RefusesADeviceWhosePeakIsNotKnown) {
    sim::Scenario s = llama_8b();
    s.devices[0].peak_dense.clear();
    const auto made = sim::Evaluator::make(s);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().what.find("peak"), std::string::npos) << sim::to_text(made.error());
    EXPECT_FALSE(made.error().hint.empty());
}

} // namespace
} // namespace shardplan::test
