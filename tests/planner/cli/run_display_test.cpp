#include "planner/cli/run_display.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace shardplan::plan::cli {
namespace {

struct Screen {
    std::ostringstream out, err;
    Console console{out, err};
};

constexpr const char* start =
    R"({"event":"start","backend":"threads","ranks":2,"hosts":["a"],"threads_per_rank":1,)"
    R"("model":"tiny","parameters":1234567,"layout":"dp2,mb1","sequence":64,"global_batch":8,)"
    R"("steps":100})";

std::string step(int number) {
    return R"({"event":"step","step":)" + std::to_string(number) +
           R"(,"loss":4.25,"seconds":0.5,"tokens_per_second":1024,"gradient_norm":1.5,)"
           R"("communication_share":0.25,"peak_memory_bytes":1048576})";
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
        ++found;
    }
    return found;
}

TEST(RunDisplay, ShowsHowItStartsSomeStepsAndTheEnd) {
    Screen screen;
    RunDisplay display(screen.console);
    display.take(start);
    for (int i = 1; i <= 100; ++i) {
        display.take(step(i));
    }
    display.take(R"({"event":"end","reason":"done","steps":100,"median_step_seconds":0.5,)"
                 R"("first_loss":5.0,"last_loss":4.0})");
    const std::string text = screen.out.str();
    EXPECT_NE(std::string::npos, text.find("tiny: 1 234 567 parameters, 8 x 64 tokens a step"));
    EXPECT_NE(std::string::npos, text.find("dp2,mb1 on 2 ranks (threads) of 1 machine"));
    // the first, each fifth and the last
    EXPECT_EQ(21U, count(text, "25.0 %"));
    EXPECT_NE(std::string::npos, text.find("\n     1    4.2500     500 ms        1024"));
    EXPECT_NE(std::string::npos, text.find("done after 100 steps; loss 5.0000 to 4.0000"));
    EXPECT_EQ(0.5, display.median_step_seconds());
    EXPECT_FALSE(display.error());
    EXPECT_EQ("", screen.err.str());
}

TEST(RunDisplay, SaysWhenThreadsShareProcessorsAndWhereItGoesOn) {
    Screen screen;
    RunDisplay display(screen.console);
    display.take(
        R"({"event":"start","backend":"threads","ranks":4,"threads_per_rank":1,"processors":2,)"
        R"("hosts":["a"],"steps":9,"begins_after_step":6})");
    display.take(step(7));
    EXPECT_NE(std::string::npos, screen.err.str().find("4 threads share 2 processors"));
    EXPECT_NE(std::string::npos, screen.out.str().find("goes on after step 6"));
    EXPECT_NE(std::string::npos, screen.out.str().find("\n     7    4.2500"));
}

TEST(RunDisplay, PassesRecordsOnAsTheyAreForJson) {
    Screen screen;
    screen.console.json = true;
    RunDisplay display(screen.console);
    display.take(start);
    display.take("mpirun says hello");
    display.take(step(1));
    EXPECT_EQ(std::string(start) + "\n" + step(1) + "\n", screen.out.str());
    EXPECT_EQ("mpirun says hello\n", screen.err.str());
}

TEST(RunDisplay, KeepsTheFirstErrorOfAllRanks) {
    Screen screen;
    RunDisplay display(screen.console);
    display.take(R"({"event":"error","rank":1,"where":"rank 1","what":"broke","hint":"mend"})");
    display.take(R"({"event":"error","rank":0,"where":"rank 0","what":"rank 1 stopped"})");
    ASSERT_TRUE(display.error());
    EXPECT_EQ("rank 1", display.error()->where);
    EXPECT_EQ("mend", display.error()->hint);
}

TEST(RunDisplay, SaysWhetherTheMeasuredStepLiesInTheBand) {
    Screen screen;
    print_against_estimate(screen.console, 0.1,
                           {sim::Seconds(0.05), sim::Seconds(0.08), sim::Seconds(0.11)});
    EXPECT_NE(std::string::npos, screen.out.str().find("100 ms measured (median), 80.0 ms "
                                                       "predicted (50.0 ms to 110 ms): -20.0 %, "
                                                       "inside its band"))
        << screen.out.str();
    Screen other;
    print_against_estimate(other.console, 0.2,
                           {sim::Seconds(0.05), sim::Seconds(0.08), sim::Seconds(0.11)});
    EXPECT_NE(std::string::npos, other.out.str().find("outside its band"));
}

} // namespace
} // namespace shardplan::plan::cli
