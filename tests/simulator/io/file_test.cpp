#include "simulator/io/file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardplan::sim {
namespace {

/// A folder of its own for each test, removed afterwards.
class File : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "shardplan-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] std::string path(const std::string& name) const {
        return (folder_ / name).string();
    }
    [[nodiscard]] std::size_t files() const {
        std::size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
            count += entry.exists() ? 1U : 0U;
        }
        return count;
    }

    std::filesystem::path folder_;
};

TEST_F(File, WhatIsWrittenIsRead) {
    const std::string text("a\r\nb\0c", 6);
    ASSERT_TRUE(write_file(path("a"), text));
    EXPECT_EQ(read_file(path("a")).value(), text);
    ASSERT_TRUE(write_file(path("a"), ""));
    EXPECT_EQ(read_file(path("a")).value(), "");
    EXPECT_EQ(files(), 1U);
}

TEST_F(File, MissingFileIsNotFound) {
    const auto text = read_file(path("nothing"));
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, ErrorCode::not_found);
    EXPECT_EQ(text.error().where, path("nothing"));
    EXPECT_FALSE(text.error().hint.empty());
    EXPECT_FALSE(read_file(""));
}

TEST_F(File, FoldersAreNotFiles) {
    EXPECT_EQ(read_file(folder_.string()).error().what, "this is a folder, not a file");
    EXPECT_EQ(write_file(folder_.string(), "x").error().what, "this is a folder, not a file");
}

TEST_F(File, TooLargeFilesAreRefused) {
    std::ofstream(path("large")).put('x');
    std::filesystem::resize_file(path("large"), (64U << 20U) + 1);
    EXPECT_NE(read_file(path("large")).error().what.find("64 MiB"), std::string::npos);
    EXPECT_NE(read_file("/dev/zero").error().what.find("64 MiB"), std::string::npos);
}

TEST_F(File, AFailedWriteLeavesTheOldFileAndNothingElse) {
    ASSERT_TRUE(write_file(path("kept"), "old"));
    EXPECT_FALSE(write_file(path("no/such/folder"), "x"));
    EXPECT_FALSE(write_file(path("kept/below"), "x"));
    EXPECT_EQ(read_file(path("kept")).value(), "old");
    EXPECT_EQ(files(), 1U);
}

TEST_F(File, UnreadableFilesAreReported) {
    if (::geteuid() == 0) {
        GTEST_SKIP() << "the system lets root read everything";
    }
    ASSERT_TRUE(write_file(path("secret"), "x"));
    ASSERT_EQ(::chmod(path("secret").c_str(), 0), 0);
    EXPECT_EQ(read_file(path("secret")).error().hint, "check the permissions");
}

TEST_F(File, WritingKeepsLinksAndPermissions) {
    ASSERT_TRUE(write_file(path("real"), "old"));
    ASSERT_EQ(::chmod(path("real").c_str(), 0640), 0);
    std::filesystem::create_symlink("real", path("link"));
    ASSERT_TRUE(write_file(path("link"), "new"));
    EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
    EXPECT_EQ(read_file(path("real")).value(), "new");
    struct stat status {};
    ASSERT_EQ(::stat(path("real").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST_F(File, DevicesAreWrittenDirectly) {
    EXPECT_TRUE(write_file("/dev/null", "x"));
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

} // namespace
} // namespace shardplan::sim
