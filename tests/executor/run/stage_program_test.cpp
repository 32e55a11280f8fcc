#include "executor/run/stage_program.hpp"

#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "simulator/schedule/layout_schedule.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using exec::StageTask;
using sim::ScheduleKind;

sim::Schedule schedule_of(const sim::Layout& layout, std::int64_t micro_batches) {
    sim::ModelSpec model = tiny_gpt2();
    model.parts[0].runs = {{0, 24}};
    auto schedule =
        sim::make_schedule(sim::executed_input(model, layout, sim::LayoutTables(), micro_batches));
    EXPECT_TRUE(schedule);
    return std::move(*schedule);
}

/// Plays all stages task by task; a receive waits until its message has been sent, a send for
/// nothing. False: all wait.
bool runs_to_the_end(const sim::Schedule& s) {
    std::vector<std::vector<StageTask>> programs;
    for (std::int32_t stage = 0; stage < s.shape.stages; ++stage) {
        programs.push_back(exec::stage_program(s, stage));
    }
    std::vector<std::size_t> next(programs.size(), 0);
    // by sender, receiver and tag: the micro-batches under way
    std::map<std::tuple<int, int, int>, std::vector<std::uint32_t>> sent;
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t stage = 0; stage < programs.size(); ++stage) {
            for (; next[stage] < programs[stage].size(); ++next[stage], moved = true) {
                const StageTask& task = programs[stage][next[stage]];
                const auto own = static_cast<int>(stage);
                if (s.kind[task.id] == sim::TaskKind::send) {
                    sent[{own, task.peer, task.tag}].push_back(s.micro_batch[task.id]);
                } else if (s.kind[task.id] == sim::TaskKind::receive) {
                    auto& waiting = sent[{task.peer, own, task.tag}];
                    if (waiting.empty()) break;
                    EXPECT_EQ(waiting.front(), s.micro_batch[task.id]);
                    waiting.erase(waiting.begin());
                }
            }
        }
    }
    for (std::size_t stage = 0; stage < programs.size(); ++stage) {
        if (next[stage] != programs[stage].size()) return false;
    }
    for (const auto& [lane, left] : sent)
        EXPECT_TRUE(left.empty());
    return true;
}

TEST(StageProgram, NoScheduleMakesStagesWaitForEachOther) {
    for (const ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
          ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v, ScheduleKind::dual_pipe}) {
        for (const std::uint16_t pp : std::initializer_list<std::uint16_t>{1, 2, 3, 4, 6}) {
            for (const std::uint16_t chunks : std::initializer_list<std::uint16_t>{1, 2, 3, 4}) {
                for (const std::int64_t m : {1, 2, 3, 5, 8, 13}) {
                    sim::Layout layout;
                    layout.pp = pp;
                    layout.chunks = chunks;
                    layout.schedule = kind;
                    EXPECT_TRUE(runs_to_the_end(schedule_of(layout, m)))
                        << sim::name_of(kind) << " pp" << pp << " v" << chunks << " m" << m;
                }
            }
        }
    }
}

TEST(StageProgram, AChunkThatFollowsOnTheSameStageTakesWhatTheOneBeforeLeft) {
    sim::Layout layout;
    layout.pp = 2;
    layout.chunks = 2;
    layout.schedule = ScheduleKind::zb_v;
    const sim::Schedule s = schedule_of(layout, 4);
    int turns = 0;
    for (const StageTask& task : exec::stage_program(s, 1)) {
        if (task.handed_on_by < 0) continue;
        ++turns;
        const bool forward = s.kind[task.id] == sim::TaskKind::forward;
        EXPECT_EQ(task.handed_on_by, forward ? 0 : 1);
        EXPECT_EQ(s.chunk[task.id], forward ? 1 : 0);
    }
    EXPECT_EQ(turns, 8);
}

} // namespace
} // namespace shardplan::test
