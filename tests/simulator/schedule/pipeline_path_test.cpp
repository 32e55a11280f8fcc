#include "simulator/schedule/pipeline_path.hpp"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using sim::ChunkPass;
using sim::PassKind;
using sim::PipelinePasses;
using sim::PipelinePath;
using sim::PipelineShape;
using sim::PlayedPaths;
using sim::ScheduleKind;
using sim::Seconds;

PipelinePasses passes_of(std::mt19937& random, std::size_t stages, double scale = 1.0) {
    PipelinePasses out;
    const auto draw = [&] {
        return Seconds(scale * (0.5 + 0.01 * static_cast<double>(random() % 100)));
    };
    for (std::size_t i = 0; i < stages; ++i)
        out.runs.push_back({{draw(), draw(), draw()}, 1});
    out.lengths = {20, 32, 16};
    return out;
}

TEST(PipelinePath, OfOneStageIsAllItsPasses) {
    PipelinePasses passes;
    passes.runs = {{{Seconds(1), Seconds(2), Seconds(0.5)}, 1}};
    passes.chunks = {{Seconds(1), Seconds(2.5), Seconds(0.5)}};
    const PipelinePath path = sim::longest_path({ScheduleKind::zb_h1, 1, 1, 7}, passes);
    EXPECT_EQ((std::vector<double>{7.0, 7.0, 7.0}), path.passes);
    EXPECT_EQ(0.0, path.hops);
}

TEST(PipelinePath, OfOneMicroBatchGoesThroughAllStagesAndBack) {
    PipelinePasses passes;
    passes.runs = {{{Seconds(1), Seconds(2), Seconds(0)}, 4}};
    passes.chunks = {{Seconds(1), Seconds(2), Seconds(0)}};
    const PipelinePath path = sim::longest_path({ScheduleKind::one_f_one_b, 4, 1, 1}, passes);
    EXPECT_EQ((std::vector<double>{4.0, 4.0, 0.0}), path.passes);
    EXPECT_EQ(6.0, path.hops);
}

TEST(PlayedPaths, GrowInProportionWithThePasses) {
    for (const ScheduleKind kind :
         {ScheduleKind::zb_h2, ScheduleKind::zb_v, ScheduleKind::dual_pipe}) {
        std::mt19937 one(4);
        std::mt19937 same(4);
        const PipelinePasses passes = passes_of(one, 4);
        const PipelinePasses longer = passes_of(same, 4, 1024.0);
        PlayedPaths paths;
        const std::int64_t v = kind == ScheduleKind::zb_h2 ? 1 : 2;
        EXPECT_DOUBLE_EQ(1024.0 * paths.seconds(kind, passes, 16, v),
                         paths.seconds(kind, longer, 16, v));
    }
}

TEST(PlayedPaths, SayTheSameWhateverWasAskedBefore) {
    std::mt19937 random(9);
    struct Question {
        ScheduleKind kind;
        PipelinePasses passes;
        std::int64_t micro_batches;
    };
    std::vector<Question> questions;
    for (int i = 0; i < 200; ++i) {
        const std::size_t stages = 2 * (1 + random() % 4);
        questions.push_back({i % 2 == 0 ? ScheduleKind::zb_v : ScheduleKind::dual_pipe,
                             passes_of(random, stages),
                             static_cast<std::int64_t>(2 * stages + random() % 60)});
        // close enough to share a path, and not the same
        if (i % 4 == 3) {
            questions.push_back(questions.back());
            questions.back().passes.runs[0].pass.forward *= 1.0001;
        }
    }
    PlayedPaths all;
    std::vector<double> answers;
    for (const Question& q : questions)
        answers.push_back(all.seconds(q.kind, q.passes, q.micro_batches, 2));
    for (std::size_t i = questions.size(); i-- > 0;) {
        const Question& q = questions[i];
        EXPECT_EQ(answers[i], all.seconds(q.kind, q.passes, q.micro_batches, 2)) << i;
        PlayedPaths alone;
        EXPECT_EQ(answers[i], alone.seconds(q.kind, q.passes, q.micro_batches, 2)) << i;
    }
}

/// How many micro-batches of each direction or chunk are between F and B at once, at most.
std::map<std::int32_t, int> most_alive(const std::vector<sim::ScheduledPass>& order) {
    std::map<std::int32_t, int> alive;
    std::map<std::int32_t, int> most;
    for (const sim::ScheduledPass& pass : order) {
        if (pass.kind == PassKind::forward) {
            most[pass.chunk] = std::max(most[pass.chunk], ++alive[pass.chunk]);
        } else if (pass.kind == PassKind::backward) {
            --alive[pass.chunk];
        }
    }
    return most;
}

TEST(PipelineOrder, DualPipeHoldsOneMicroBatchMoreThanStagesHoweverManyThereAre) {
    for (const std::int32_t p : {2, 4, 8, 16}) {
        for (const std::int32_t m : {2 * p, 3 * p, 8 * p}) {
            const auto orders = sim::pipeline_order({ScheduleKind::dual_pipe, p, 2, m});
            for (std::int32_t stage = 0; stage < p; ++stage) {
                auto most = most_alive(orders[static_cast<std::size_t>(stage)]);
                // p + 1 in all (DeepSeek-V3, table 2), fewer the further a direction has come
                EXPECT_LE(most[0] + most[1], p + 1) << "p" << p << " m" << m << " stage " << stage;
                EXPECT_LE(most[0], p - stage) << "p" << p << " m" << m << " stage " << stage;
                EXPECT_LE(most[1], stage + 1) << "p" << p << " m" << m << " stage " << stage;
            }
        }
    }
}

TEST(PipelineOrder, ZeroBubbleVHoldsTheSameOnEveryStage) {
    for (const std::int32_t p : {2, 3, 8}) {
        for (const std::int32_t m : {2 * p, 8 * p}) {
            for (const auto& order : sim::pipeline_order({ScheduleKind::zb_v, p, 2, m})) {
                int alive = 0;
                int most = 0;
                for (const sim::ScheduledPass& pass : order) {
                    if (pass.kind == PassKind::weight) continue;
                    alive += pass.kind == PassKind::forward ? 1 : -1;
                    most = std::max(most, alive);
                }
                // halves of a stage: as much as 1F1B holds on its first stage (Qi et al. 2024)
                EXPECT_LE(most, 2 * p) << "p" << p << " m" << m;
            }
        }
    }
}

} // namespace
} // namespace shardplan::test
