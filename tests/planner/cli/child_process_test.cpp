#include "planner/cli/child_process.hpp"

#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace shardplan::plan::cli {
namespace {

struct Heard {
    std::vector<std::string> out, err;
    sim::Result<ChildEnd> end = ChildEnd{};
};

Heard shell(const std::string& script) {
    Heard heard;
    heard.end = run_child("sh", {"-c", script},
                          {[&](const std::string& line) { heard.out.push_back(line); },
                           [&](const std::string& line) { heard.err.push_back(line); }});
    return heard;
}

TEST(ChildProcess, GivesLinesOfBothOutputsAndTheCode) {
    const Heard heard = shell("echo one; echo two >&2; printf three; exit 7");
    ASSERT_TRUE(heard.end);
    EXPECT_EQ((std::vector<std::string>{"one", "three"}), heard.out);
    EXPECT_EQ(std::vector<std::string>{"two"}, heard.err);
    EXPECT_EQ(7, heard.end->code);
    EXPECT_EQ(0, heard.end->signal);
    EXPECT_FALSE(heard.end->good());
}

TEST(ChildProcess, LongOutputDoesNotBlockIt) {
    const Heard heard = shell("seq 1 50000; seq 1 50000 >&2");
    ASSERT_TRUE(heard.end);
    EXPECT_TRUE(heard.end->good());
    ASSERT_EQ(50000U, heard.out.size());
    EXPECT_EQ("50000", heard.err.back());
}

TEST(ChildProcess, WhoseEndWasASignalSaysWhich) {
    const Heard heard = shell("kill -9 $$");
    ASSERT_TRUE(heard.end);
    EXPECT_EQ(SIGKILL, heard.end->signal);
}

TEST(ChildProcess, GetsNoInput) {
    const Heard heard = shell("cat; echo end");
    ASSERT_TRUE(heard.end);
    EXPECT_EQ(std::vector<std::string>{"end"}, heard.out);
}

TEST(ChildProcess, InterruptReachesItAsASignalThatMpirunHandsOn) {
    Heard heard;
    heard.end = run_child(
        "sh", {"-c", "trap 'echo stopping; exit 0' USR1; echo ready; while :; do sleep 0.05; done"},
        {[&](const std::string& line) {
             heard.out.push_back(line);
             if (line == "ready") ::kill(::getpid(), SIGINT);
         },
         {}});
    ASSERT_TRUE(heard.end);
    EXPECT_TRUE(heard.end->good());
    EXPECT_TRUE(heard.end->asked_to_stop);
    EXPECT_EQ((std::vector<std::string>{"ready", "stopping"}), heard.out);
}

TEST(ChildProcess, ProgramThatDoesNotExistIsAnError) {
    const auto end = run_child("/no/such/program", {}, {});
    ASSERT_FALSE(end);
    EXPECT_EQ(sim::ErrorCode::backend_failed, end.error().code);
    EXPECT_NE(std::string::npos, end.error().what.find("No such file"));
}

TEST(ChildProcess, ProgramsAreFoundInPath) {
    EXPECT_NE("", find_in_path("sh"));
    EXPECT_EQ("", find_in_path("no-such-program-anywhere"));
    const auto missing = find_program_of_ours("no-such-program-anywhere");
    ASSERT_FALSE(missing);
    EXPECT_EQ(sim::ErrorCode::not_found, missing.error().code);
}

} // namespace
} // namespace shardplan::plan::cli
