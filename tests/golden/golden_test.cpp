// Transcripts of the program, as a person sees them in a pipe. A file transcripts/*.txt holds
// commands
// ("$ shardplan ...") and below each what the program must print; lines on standard error begin
// with
// "! ", and a last line "[exit N]" gives the exit code. Commands run in the root of the tree.
//
// After an intended change: `cmake --build <build> --target approve`, then read the diff.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace shardplan {
namespace {

const std::string folder = SHARDPLAN_SOURCE_DIR "/tests/golden/transcripts";

std::string read(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

/// Runs one command line and returns its transcript.
std::string transcript_of(const std::string& command) {
    const auto errors =
        std::filesystem::temp_directory_path() / ("shardplan-golden-" + std::to_string(::getpid()));
    std::string arguments = command;
    arguments.erase(0, std::string("shardplan").size());
    const std::string line = "cd '" SHARDPLAN_SOURCE_DIR "' && NO_COLOR=1 '" SHARDPLAN_PROGRAM "'" +
                             arguments + " 2>'" + errors.string() + "'";
    std::FILE* pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) {
        return "could not start\n";
    }
    std::string out;
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        out.append(buffer, n);
    }
    const int status = ::pclose(pipe);
    std::istringstream lines(read(errors.string()));
    std::filesystem::remove(errors);
    for (std::string text; std::getline(lines, text);) {
        out += "! " + text + "\n";
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return out + "[exit " + std::to_string(code) + "]\n";
}

/// The commands of a transcript.
std::vector<std::string> commands_of(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("$ shardplan", 0) == 0) {
            out.push_back(line.substr(2));
        }
    }
    return out;
}

std::vector<std::string> transcript_files() {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".txt") {
            out.push_back(entry.path().stem().string());
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, ProgramPrintsWhatTheTranscriptShows) {
    const std::string path = folder + "/" + GetParam() + ".txt";
    const std::string expected = read(path);
    const auto commands = commands_of(expected);
    ASSERT_FALSE(commands.empty()) << path << " holds no command";
    std::string actual;
    for (const std::string& command : commands) {
        actual += (actual.empty() ? "$ " : "\n$ ") + command + "\n" + transcript_of(command);
    }
    const char* approve = std::getenv("SHARDPLAN_APPROVE");
    if (approve != nullptr && *approve != '\0') {
        std::ofstream(path) << actual;
        return;
    }
    EXPECT_EQ(actual, expected) << "intended? build the target approve and read the diff";
}

INSTANTIATE_TEST_SUITE_P(Transcripts, Golden, ::testing::ValuesIn(transcript_files()),
                         [](const auto& parameter) {
                             std::string name = parameter.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

} // namespace
} // namespace shardplan
