#include "simulator/io/trace.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "simulator/engine/simulate.hpp"
#include "simulator/io/json.hpp"
#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;
using namespace shardplan::sim;

Simulation small_step() {
    LayoutTables tables;
    const Scenario scenario =
        test::scenario(test::small_model(8, 16, 8), test::dgx_h100(1), test::job(2048, 16));
    const auto parsed = parse_layout("tp2,pp2,v2,dp2,mb1,zero1", "layout", tables);
    const auto layout = complete_layout(*parsed, 8, "layout");
    const auto evaluator = Evaluator::make(scenario, tables);
    return *simulate(*evaluator, *layout);
}

std::string text_of(const JsonValue& event, const char* key) {
    return *event.find(key)->as_string();
}

TEST(Trace, NamesProcessesAndStreamsAndHoldsEverySpan) {
    const Simulation s = small_step();
    const auto json = JsonValue::parse(trace_json(s.timeline, s.schedule), "trace");
    ASSERT_TRUE(json);
    const JsonValue events = *json->find("traceEvents");
    std::size_t spans = 0;
    std::set<std::string> streams;
    std::set<std::string> counters;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const JsonValue event = events.at(i);
        const std::string kind = text_of(event, "ph");
        if (kind == "X") {
            ++spans;
            EXPECT_GT(*event.find("dur")->as_double(), 0.0);
        } else if (kind == "C") {
            counters.insert(text_of(event, "name"));
        } else if (text_of(event, "name") == "thread_name") {
            streams.insert(text_of(*event.find("args"), "name"));
        }
    }
    EXPECT_EQ(s.timeline.spans.size(), spans);
    EXPECT_EQ(1U, streams.count("compute"));
    EXPECT_EQ(1U, streams.count("tp"));
    EXPECT_EQ(1U, counters.count("memory"));
    EXPECT_EQ(1U, counters.count("bytes sent per second"));
}

TEST(Trace, SeveralTimelinesStandSideBySideUnderTheirOrigin) {
    const Simulation s = small_step();
    Timeline measured = s.timeline;
    measured.origin = TimelineOrigin::measured;
    const auto json = JsonValue::parse(
        trace_json(std::vector<TraceLayer>{{s.timeline, s.schedule}, {measured, s.schedule}}),
        "trace");
    ASSERT_TRUE(json);
    EXPECT_EQ("predicted, measured", text_of(*json->find("otherData"), "origin"));
    const JsonValue events = *json->find("traceEvents");
    std::vector<std::pair<std::int64_t, std::string>> processes;
    std::size_t spans = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const JsonValue event = events.at(i);
        spans += text_of(event, "ph") == "X" ? 1U : 0U;
        if (text_of(event, "name") == "process_name") {
            processes.emplace_back(*event.find("pid")->as_int(),
                                   text_of(*event.find("args"), "name"));
        }
    }
    EXPECT_EQ(2 * s.timeline.spans.size(), spans);
    std::sort(processes.begin(), processes.end());
    ASSERT_EQ(4U, processes.size());
    EXPECT_EQ(0U, processes[0].second.find("predicted stage 0"));
    EXPECT_EQ(0U, processes[1].second.find("measured stage 0"));
    EXPECT_EQ(0U, processes[2].second.find("predicted stage 1"));
    EXPECT_EQ(0U, processes[3].second.find("measured stage 1"));
}

TEST(Trace, LabelsSayPassChunkMicroBatchAndUnit) {
    const Simulation s = small_step();
    const Span& first = s.timeline.spans.front();
    ASSERT_EQ(TaskKind::forward, first.op);
    EXPECT_EQ("F c0 m0 u0", span_label(s.schedule, first));
    const auto optimizer = std::find_if(s.timeline.spans.begin(), s.timeline.spans.end(),
                                        [](const Span& x) { return x.op == TaskKind::optimizer; });
    ASSERT_NE(s.timeline.spans.end(), optimizer);
    EXPECT_EQ("optimizer", span_label(s.schedule, *optimizer));
}

TEST(Trace, IsTheSameInPiecesAndEndsWhereItCannotBeWritten) {
    const Simulation s = small_step();
    std::string all;
    std::size_t pieces = 0;
    const Status written =
        write_trace({{s.timeline, s.schedule}}, [&](std::string_view piece) -> Status {
            all += piece;
            ++pieces;
            return Done{};
        });
    ASSERT_TRUE(written);
    EXPECT_GT(pieces, 2U);
    EXPECT_EQ(trace_json(s.timeline, s.schedule), all);
    std::size_t asked = 0;
    const Status full = write_trace({{s.timeline, s.schedule}}, [&](std::string_view) -> Status {
        ++asked;
        return Error{ErrorCode::bad_input, "disk", "it is full", "make room"};
    });
    ASSERT_FALSE(full);
    EXPECT_EQ("disk", full.error().where);
    EXPECT_EQ(1U, asked);
}

TEST(Trace, OfATimelineWithoutSpansIsWholeJson) {
    const auto json = JsonValue::parse(trace_json(Timeline{}, Schedule{}), "trace");
    ASSERT_TRUE(json);
    EXPECT_EQ(0U, json->find("traceEvents")->size());
}

} // namespace
