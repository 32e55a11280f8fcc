#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/executor/model/parallel_run.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

/// Trains until rank 0 leaves at the beginning of its exchange `leaves_at`, counted from 0. The
/// others have to find the error, whatever they were about to do; true if rank 1 was done by then.
bool goes_on_without(const sim::ModelSpec& model, const std::string& text, Recompute recompute,
                     int leaves_at) {
    sim::LayoutTables tables;
    const sim::Layout layout = sim::parse_layout(text, "layout", tables)->layout;
    ModelOptions options;
    options.sequence = parallel_sequence;
    options.micro_batch = layout.micro_batch;
    options.recompute = {recompute};
    int begun = 0; // by rank 0
    const auto body = [&](Communicator& world) -> Status {
        auto rank = rank_model<float>(world, model, layout, tables, options);
        if (!rank) return rank.error();
        Model<float>& trained = *rank->model;
        for (std::size_t i = 0; world.rank() == 0 && i < sim::group_count; ++i) {
            const auto leave = [&](const CommCall&) {
                if (begun++ == leaves_at) throw std::runtime_error("the power is gone");
            };
            (*rank->groups)[static_cast<sim::Group>(i)].set_hooks({leave, {}});
        }
        const TinyBatch batch = parallel_tokens(options, rank->share.dp.part);
        const auto loss = trained.train(batch.tokens, batch.targets, {0.1, 1.0});
        EXPECT_EQ(static_cast<bool>(loss), static_cast<bool>(trained.failure()));
        EXPECT_EQ(trained.arena().bytes_in_use(), 0);
        if (loss) return sim::Done{};
        const auto again = trained.evaluate(batch.tokens, batch.targets);
        EXPECT_FALSE(again);
        if (!again) {
            EXPECT_EQ(again.error(), loss.error());
        }
        EXPECT_EQ(trained.arena().bytes_in_use(), 0);
        return loss.error();
    };
    const auto outcome = run_ranks(static_cast<int>(sim::rank_count(layout)), body,
                                   {.timeout = std::chrono::seconds(60)});
    for (const Status& status : outcome.ranks) {
        if (!status) {
            const std::string said = to_text(status.error());
            EXPECT_NE(said.find("the power is gone"), std::string::npos) << said;
        }
    }
    return static_cast<bool>(outcome.ranks[1]);
}

/// At every exchange of a step in turn, up to the last that another rank needs.
void expect_errors_everywhere(const sim::ModelSpec& model, const std::string& layout,
                              Recompute recompute = Recompute::none) {
    SCOPED_TRACE(layout);
    int exchange = 0;
    while (exchange < 1000 && !goes_on_without(model, layout, recompute, exchange)) {
        ++exchange;
    }
    EXPECT_GT(exchange, 8);
    EXPECT_LT(exchange, 1000);
}

TEST(ModelFailure, OfAnyExchangeOfTensorParallelLayersIsAnError) {
    expect_errors_everywhere(tiny_llama(), "tp2,dp1,mb1");
    expect_errors_everywhere(tiny_llama(), "tp2,sp,dp1,mb1");
}

TEST(ModelFailure, OfAnyExchangeOfContextParallelLayersIsAnError) {
    expect_errors_everywhere(tiny_llama(), "cp3,dp1,mb1");
    expect_errors_everywhere(tiny_llama(), "cp2:allgather,dp1,mb1", Recompute::full);
    expect_errors_everywhere(tiny_llama(), "cp2:a2a,dp1,mb2", Recompute::selective);
}

TEST(ModelFailure, OfAnyExchangeOfExpertParallelLayersIsAnError) {
    expect_errors_everywhere(tiny_mixtral(), "dp2,ep2,mb1");
    expect_errors_everywhere(tiny_mixtral(), "tp2,dp1,ep2,etp1,mb1", Recompute::full);
    expect_errors_everywhere(tiny_mixtral(), "tp2,sp,dp1,mb1");
    expect_errors_everywhere(tiny_mixtral(), "tp2,dp2,ep2,mb1");
}

} // namespace
} // namespace shardplan::test
