// The program shardplan-run-cpu as people meet it: started, killed, started again.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/json.hpp"
#include "tests/support/builders.hpp"

namespace shardplan {
namespace {

namespace fs = std::filesystem;

const std::string program =
    (fs::path(SHARDPLAN_PROGRAM).parent_path() / "shardplan-run-cpu").string();

/// Starts a command with its output going to a file; returns its process.
pid_t start_command(std::vector<std::string> command, const std::string& records) {
    std::vector<char*> arguments;
    for (std::string& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int out = ::open(records.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int nothing = ::open("/dev/null", O_WRONLY);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
    ::execvp(arguments.front(), arguments.data());
    ::_exit(127);
}
/// Starts the program, ranks as threads.
pid_t start(const std::vector<std::string>& words, const std::string& records) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), words.begin(), words.end());
    return start_command(std::move(command), records);
}
/// The same with two processes.
pid_t start_by_mpirun(const std::vector<std::string>& words, const std::string& records) {
    std::vector<std::string> command = {"mpirun",
                                        "--allow-run-as-root",
                                        "--oversubscribe",
                                        "--mca",
                                        "btl_vader_single_copy_mechanism",
                                        "none",
                                        "-n",
                                        "2",
                                        program};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--backend", "mpi"});
    return start_command(std::move(command), records);
}

/// Processes of this program that `parent` has started.
std::vector<pid_t> ranks_of(pid_t parent) {
    std::vector<pid_t> out;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream in(entry.path() / "stat");
        std::string text;
        std::getline(in, text);
        // the name stands in brackets and is cut after 15 characters
        const std::size_t end = text.rfind(')');
        if (end == std::string::npos || text.find("(shardplan-run-c") == std::string::npos)
            continue;
        if (std::stol(text.substr(end + 4)) == parent) out.push_back(std::stoi(name));
    }
    return out;
}

int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

std::vector<sim::JsonValue> records_in(const std::string& path) {
    std::vector<sim::JsonValue> out;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        // the last line of a killed program may be half of one
        if (auto json = sim::JsonValue::parse(line, path)) out.push_back(*json);
    }
    return out;
}

std::string event_of(const sim::JsonValue& record) { return *record.find("event")->as_string(); }

/// Losses by step.
using Losses = std::map<std::int64_t, double>;

class RunProgram : public ::testing::Test {
protected:
    void SetUp() override {
        fs::create_directories(folder_);
        sim::ModelSpec model = test::small_model(2, 4, 4, 256);
        model.parts[0].hidden = 32;
        for (sim::BlockKind& kind : model.block_kinds) {
            kind.attention.qk_head_dim = kind.attention.v_head_dim = 8;
            kind.attention.rope_dim = 8;
            kind.ffn.width = 64;
        }
        const auto stack = sim::load_stack("generic");
        ASSERT_TRUE(stack);
        sim::Cluster cluster = test::dgx_h100(1);
        cluster.node_groups[0].node.devices = 2;
        sim::Job job = test::job(32, 8);
        job.precision.compute = sim::Dtype::fp32;
        sim::Document document;
        document.scenario = test::scenario(model, cluster, job, *stack);
        document.plans = {{"dp2,mb2,zero1", {}, ""}, {"pp2,dp1,mb2", {}, ""}};
        ASSERT_TRUE(sim::write_document_file(path("plan.json"), document));
    }
    void TearDown() override { fs::remove_all(folder_); }

    [[nodiscard]] std::string path(const std::string& name) const {
        return (folder_ / name).string();
    }
    [[nodiscard]] std::vector<std::string> words(std::vector<std::string> more) const {
        std::vector<std::string> out = {path("plan.json"), "--deterministic",    "--threads", "1",
                                        "--steps",         std::to_string(steps)};
        out.insert(out.end(), more.begin(), more.end());
        return out;
    }
    /// Adds what a run said to what others did; a step that ran twice must have the same loss.
    void collect(const std::string& records, Losses& losses) const {
        for (const sim::JsonValue& record : records_in(records)) {
            if (event_of(record) != "step") continue;
            const std::int64_t step = *record.find("step")->as_int();
            const double loss = *record.find("loss")->as_double();
            const auto [known, fresh] = losses.try_emplace(step, loss);
            EXPECT_EQ(known->second, loss) << "step " << step;
        }
    }

    static constexpr int steps = 24;
    fs::path folder_ =
        fs::temp_directory_path() / ("shardplan-program-" + std::to_string(::getpid()));
};

TEST_F(RunProgram, KilledAtFiftyInstantsItGoesOnWithTheSameLosses) {
    Losses whole;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(0, wait_for(start(words({}), path("whole"))));
    const std::chrono::duration<double> length = std::chrono::steady_clock::now() - begin;
    collect(path("whole"), whole);
    ASSERT_EQ(static_cast<std::size_t>(steps), whole.size());

    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> share(0.05, 0.9);
    Losses pieces;
    int killed = 0;
    for (int round = 0; killed < 50; ++round) {
        ASSERT_LT(round, 400) << "it ends before it is killed";
        const pid_t child =
            start(words({"--save", path("ck"), "--save-every", "2", "--resume"}), path("piece"));
        std::this_thread::sleep_for(length * share(random));
        ::kill(child, SIGKILL);
        const int status = wait_for(child);
        collect(path("piece"), pieces);
        if (WIFSIGNALED(status)) {
            ++killed;
        } else {
            ASSERT_EQ(0, status) << "round " << round;
            fs::remove_all(path("ck")); // it got to its end: once more from the beginning
        }
    }
    ASSERT_EQ(0, wait_for(start(words({"--save", path("ck"), "--save-every", "2", "--resume"}),
                                path("last"))));
    collect(path("last"), pieces);
    EXPECT_EQ(whole, pieces);
}

TEST_F(RunProgram, WithARankKilledUnderMpiItGoesOnWithTheSameLosses) {
    if (wait_for(start_by_mpirun({path("plan.json"), "--steps", "1"}, path("first"))) != 0) {
        GTEST_SKIP() << "no mpirun, or a program without MPI";
    }
    Losses whole;
    ASSERT_EQ(0, wait_for(start(words({}), path("whole"))));
    collect(path("whole"), whole);
    const std::vector<std::string> again =
        words({"--save", path("ck"), "--save-every", "2", "--resume"});
    std::mt19937_64 random(2);
    Losses pieces;
    constexpr int kills = 6;
    int killed = 0;
    for (int round = 0; killed < kills; ++round) {
        ASSERT_LT(round, 10 * kills) << "it ends before a rank is killed";
        const pid_t child = start_by_mpirun(again, path("piece"));
        // some steps after the last checkpoint
        const std::size_t records = 2 + random() % 9;
        for (int i = 0; i < 3000 && records_in(path("piece")).size() < records; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        const std::vector<pid_t> ranks = ranks_of(child);
        if (ranks.size() == 2) ::kill(ranks[random() % 2], SIGKILL);
        const int status = wait_for(child);
        collect(path("piece"), pieces);
        if (status != 0) {
            ++killed;
        } else {
            fs::remove_all(path("ck")); // it got to its end: once more from the beginning
        }
    }
    ASSERT_EQ(0, wait_for(start_by_mpirun(again, path("last"))));
    collect(path("last"), pieces);
    EXPECT_EQ(whole, pieces);
}

TEST_F(RunProgram, TerminatedItSavesTheStepAndReturnsZero) {
    const pid_t child =
        start({path("plan.json"), "--steps", "1000000", "--save", path("ck")}, path("records"));
    for (int i = 0; i < 1000 && records_in(path("records")).size() < 3; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(child, SIGTERM);
    EXPECT_EQ(0, wait_for(child));
    const auto records = records_in(path("records"));
    ASSERT_GE(records.size(), 4U);
    EXPECT_EQ("end", event_of(records.back()));
    EXPECT_EQ("stopped", *records.back().find("reason")->as_string());
    EXPECT_EQ("save", event_of(records[records.size() - 2]));
    EXPECT_EQ(*records.back().find("step")->as_int(),
              *records[records.size() - 2].find("step")->as_int());
}

TEST_F(RunProgram, GoesOnUnderAnotherLayout) {
    ASSERT_EQ(0, wait_for(start({path("plan.json"), "--steps", "3", "--save", path("ck")},
                                path("first"))));
    ASSERT_EQ(0, wait_for(start({path("plan.json"), "--steps", "5", "--save", path("ck"),
                                 "--resume", "--plan", "2"},
                                path("second"))));
    ASSERT_EQ(0, wait_for(start({path("plan.json"), "--steps", "5"}, path("whole"))));
    Losses whole;
    collect(path("whole"), whole);
    for (const sim::JsonValue& record : records_in(path("second"))) {
        if (event_of(record) != "step") continue;
        const std::int64_t step = *record.find("step")->as_int();
        EXPECT_GE(step, 4);
        EXPECT_NEAR(whole[step], *record.find("loss")->as_double(), 1e-4);
    }
}

TEST_F(RunProgram, BadInputIsARecordAndExitCodeTwo) {
    const int status = wait_for(start({path("plan.json"), "--ranks", "3"}, path("records")));
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(2, WEXITSTATUS(status));
    const auto records = records_in(path("records"));
    ASSERT_EQ(1U, records.size());
    EXPECT_EQ("error", event_of(records[0]));
    EXPECT_EQ("--ranks", *records[0].find("where")->as_string());
}

} // namespace
} // namespace shardplan
