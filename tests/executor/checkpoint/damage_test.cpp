#include <algorithm>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/checkpoint/index.hpp"
#include "executor/comm/threads.hpp"
#include "tests/executor/checkpoint/states.hpp"

namespace shardplan::test {
namespace {

namespace fs = std::filesystem;

std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// A checkpoint of two ranks, saved once.
class DamagedCheckpoint : public testing::Test {
protected:
    DamagedCheckpoint() {
        EXPECT_TRUE(save_state(folder_.path(), Split::rows, 2, 1));
        save_ = exec::list_checkpoints(folder_.path()).at(0);
        shard_ = save_ + "/shard-00002-model-00001-of-00001.safetensors";
    }
    /// What is said when the state is loaded by three ranks; every rank must say the same.
    [[nodiscard]] std::string load(const std::string& from = "") const {
        const auto outcome = exec::run_ranks(3, [&](exec::Communicator& world) -> exec::Status {
            RankState state = make_state(Split::flat, world.rank(), 3);
            const auto meta =
                load_checkpoint(world, from.empty() ? folder_.path() : from, state.parts);
            if (!meta) return meta.error();
            EXPECT_EQ(differences(state, 1), 0);
            return sim::Done{};
        });
        for (const auto& rank : outcome.ranks) {
            EXPECT_EQ(rank.has_value(), outcome.status().has_value());
            if (!rank) {
                EXPECT_EQ(rank.error(), outcome.status().error());
                EXPECT_FALSE(rank.error().hint.empty()) << to_text(rank.error());
            }
        }
        return outcome.status() ? "success" : to_text(outcome.status().error());
    }
    void expect(const std::string& part) const {
        const std::string said = load();
        EXPECT_NE(said.find(part), std::string::npos) << said;
    }

    TemporaryFolder folder_;
    std::string save_;
    std::string shard_;
};

TEST_F(DamagedCheckpoint, IsWholeBeforeTheDamage) { EXPECT_EQ(load(), "success"); }

TEST_F(DamagedCheckpoint, OfAMissingFileSaysWhich) {
    fs::remove(shard_);
    expect(shard_ + ": this file cannot be opened: No such file");
}

TEST_F(DamagedCheckpoint, OfATruncatedFileSaysHowMuchIsLeft) {
    const auto bytes = fs::file_size(shard_);
    for (const std::uintmax_t left : {bytes - 1, bytes / 2, std::uintmax_t{9}, std::uintmax_t{0}}) {
        fs::resize_file(shard_, left);
        expect(shard_ + ": the file has " + std::to_string(left) + " bytes, " +
               std::to_string(bytes) + " were written");
    }
}

TEST_F(DamagedCheckpoint, OfAFlippedBitAnywhereIsNotLoaded) {
    const std::string whole = read(shard_);
    std::mt19937 random(3); // NOLINT: the same bits on every run
    for (int i = 0; i < 60; ++i) {
        std::string text = whole;
        // Every third in the header.
        const std::size_t at = random() % (i % 3 == 0 ? 1200 : text.size());
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        write(shard_, text);
        const std::string said = load();
        EXPECT_NE(said.find(shard_), std::string::npos) << "byte " << at << ": " << said;
    }
    write(shard_, whole);
    EXPECT_EQ(load(), "success");
}

TEST_F(DamagedCheckpoint, NamesTheBytesWhoseChecksumIsWrong) {
    std::string text = read(shard_);
    text.back() = static_cast<char>(text.back() ^ 1);
    write(shard_, text);
    expect("the checksum of bytes ");
    expect(" to " + std::to_string(text.size() - 1) + " is ");
}

TEST_F(DamagedCheckpoint, WithAFileOfAnotherOneIsNotLoaded) {
    const TemporaryFolder other;
    ASSERT_TRUE(save_state(other.path(), Split::rows, 2, 2));
    fs::copy_file(
        exec::list_checkpoints(other.path()).at(0) + "/" + fs::path(shard_).filename().string(),
        shard_, fs::copy_options::overwrite_existing);
    expect("the checksum of the header is");
}

TEST_F(DamagedCheckpoint, OfAChangedIndexIsNotLoaded) {
    const std::string path = save_ + "/index.json";
    const std::string whole = read(path);
    const auto replaced = [&](const std::string& from, const std::string& to) {
        std::string text = whole;
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        write(path, text);
    };
    replaced("\"samples_read\": 8", "\"samples_read\": 9");
    expect("the index was changed after it was written");
    replaced("\"format_version\": 1", "\"format_version\": 2");
    expect("the checkpoint has format version 2, this program reads version 1");
    replaced("\"shardplan-checkpoint\"", "\"shardplan-document\"");
    expect("this is not the index of a checkpoint");
    replaced("\"files\"", "\"flies\"");
    expect("there is no field \"flies\" here (did you mean \"files\"?)");
    write(path, whole.substr(0, whole.size() / 2));
    expect(path);
    fs::remove(path);
    expect(path + ": this file cannot be opened");
}

TEST_F(DamagedCheckpoint, OfADamagedIndexNeverCrashesTheReader) {
    const std::string whole = read(save_ + "/index.json");
    const auto before = exec::parse_index(whole, "index");
    ASSERT_TRUE(before);
    std::mt19937 random(11); // NOLINT: the same damages on every run
    int refused = 0;
    for (int i = 0; i < 2000; ++i) {
        std::string text = whole;
        for (int k = 0; k < 3; ++k) {
            const std::size_t at = random() % text.size();
            if (random() % 4 == 0) {
                text.erase(at, random() % 30);
            } else {
                text[at] = static_cast<char>(random() % 128);
            }
        }
        const auto index = exec::parse_index(text, "index");
        if (index) {
            ASSERT_EQ(*index, *before) << "spaces alone do not count";
        } else {
            ++refused;
            ASSERT_FALSE(index.error().what.empty());
        }
    }
    EXPECT_GT(refused, 1500);
}

TEST_F(DamagedCheckpoint, OfWrongNumbersInAnIndexOfTheRightHashIsNotLoaded) {
    const std::string path = save_ + "/index.json";
    // Written by a program with a mistake, not damaged: the hash is right.
    const auto resealed = [&](const std::string& from, const std::string& to) {
        std::string text = read(path);
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        write(path, text);
        const std::string said = load();
        const auto hash = said.find("its hash is ");
        if (hash == std::string::npos) return said;
        const auto old = text.find("\"hash\": \"") + 9;
        text.replace(old, 16, said.substr(hash + 12, 16));
        write(path, text);
        return load();
    };
    EXPECT_NE(resealed("\"shard-00001", "\"../shard-00001").find("is no name of a file"),
              std::string::npos);
    EXPECT_NE(resealed("\"../shard-00001", "\"shard-00002").find("were written"),
              std::string::npos);
    EXPECT_NE(
        resealed("\"files\": [0, 1]", "\"files\": [0, 7]").find("is said to lie in file 7 of 2"),
        std::string::npos);
}

TEST_F(DamagedCheckpoint, OfAPointerThatLeadsNowhereNamesWhatIsThere) {
    const std::string latest = folder_.path() + "/latest";
    write(latest, "save-000009-step-9\n");
    expect("it points to save-000009-step-9, which is not there (name a checkpoint of it: " +
           save_);
    write(latest, "../../etc\n");
    expect("\"../../etc\" is no name of a checkpoint");
    write(latest, "");
    expect("\"\" is no name of a checkpoint");
    fs::remove(latest);
    expect("no checkpoint was finished here (name a checkpoint of it: " + save_);
    EXPECT_EQ(load(save_), "success");
    EXPECT_NE(load(folder_.path() + "/nowhere").find("there is no such folder"), std::string::npos);
    const TemporaryFolder empty;
    EXPECT_NE(load(empty.path()).find("no checkpoint was finished here"), std::string::npos);
}

TEST_F(DamagedCheckpoint, OfAnotherModelIsRefusedByName) {
    const auto refusal = [&](const std::function<void(exec::TensorPart&)>& change) {
        RankState state = make_state(Split::replicated, 0, 1);
        change(state.parts[0]);
        const auto status =
            exec::run_ranks(1, [&](exec::Communicator& world) -> exec::Status {
                const auto meta = load_checkpoint(world, folder_.path(), state.parts);
                return meta ? exec::Status(sim::Done{}) : exec::Status(meta.error());
            }).status();
        return status ? "success" : to_text(status.error());
    };
    EXPECT_EQ(refusal([](auto&) {}), "success");
    EXPECT_EQ(refusal([](auto& part) { part.name = "blocks.0.kqv.weight"; }),
              "rank 0: " + save_ +
                  ": it holds no tensor \"blocks.0.kqv.weight\" (did you mean "
                  "\"blocks.0.qkv.weight\"?)");
    EXPECT_EQ(refusal([](auto& part) {
                  part.shape = {16, 7};
              }),
              "rank 0: " + save_ +
                  ": the tensor \"blocks.0.qkv.weight\" is [0:12, 0:7] of F32, and [0:16, 0:7] of "
                  "F32 is wanted (run the model and the precision that were saved)");
    EXPECT_EQ(refusal([](auto& part) { part.scalar = exec::Scalar::bf16; }),
              "rank 0: " + save_ +
                  ": the tensor \"blocks.0.qkv.weight\" is [0:12, 0:7] of F32, and [0:12, 0:7] of "
                  "BF16 is wanted (run the model and the precision that were saved)");
}

} // namespace
} // namespace shardplan::test
