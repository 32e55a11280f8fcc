#include "simulator/io/data_dir.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

namespace fs = std::filesystem;

/// Sets or unsets SHARDPLAN_DATA for one test and puts back what was there.
class DataDir : public testing::Test {
protected:
    void SetUp() override {
        if (const char* value = std::getenv("SHARDPLAN_DATA")) before_ = value;
        ::unsetenv("SHARDPLAN_DATA");
    }
    void TearDown() override {
        if (before_) {
            ::setenv("SHARDPLAN_DATA", before_->c_str(), 1);
        } else {
            ::unsetenv("SHARDPLAN_DATA");
        }
    }

private:
    std::optional<std::string> before_;
};

TEST_F(DataDir, ProgramsOfTheBuildTreeReadTheFilesOfTheSourceTree) {
    EXPECT_TRUE(fs::equivalent(data_dir() + "/topologies", SHARDPLAN_SOURCE_DIR "/topologies"));
}

TEST_F(DataDir, IsLookedForBesideTheProgramThenUnderThePrefixThenInTheSourceTree) {
    const std::vector<std::string> candidates = data_dir_candidates();
    ASSERT_EQ(candidates.size(), 3U);
    const fs::path program = fs::read_symlink("/proc/self/exe");
    EXPECT_EQ(candidates[0], program.parent_path().parent_path() / "share/shardplan");
    EXPECT_TRUE(candidates[1].ends_with("/share/shardplan")) << candidates[1];
    EXPECT_EQ(candidates[2], SHARDPLAN_SOURCE_DIR);
}

TEST_F(DataDir, EnvironmentVariableWinsEvenIfItIsWrong) {
    ::setenv("SHARDPLAN_DATA", "/no/such/folder", 1);
    EXPECT_EQ(data_dir(), "/no/such/folder");
    EXPECT_EQ(data_dir_candidates(), std::vector<std::string>{"/no/such/folder"});
}

TEST_F(DataDir, EmptyEnvironmentVariableCountsAsUnset) {
    const std::string unset = data_dir();
    ::setenv("SHARDPLAN_DATA", "", 1);
    EXPECT_EQ(data_dir(), unset);
}

} // namespace
} // namespace shardplan::sim
