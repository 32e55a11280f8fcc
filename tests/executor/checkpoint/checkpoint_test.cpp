#include "executor/checkpoint/checkpoint.hpp"

#include <csignal>
#include <functional>
#include <set>

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "executor/comm/threads.hpp"
#include "tests/executor/checkpoint/states.hpp"

namespace shardplan::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const exec::Status& status) {
    return status ? "success" : to_text(status.error());
}

class CheckpointOfRanks : public testing::TestWithParam<int> {};

TEST_P(CheckpointOfRanks, IsLoadedWithTheSameBitsUnderAnyLayoutAndNumberOfRanks) {
    const int savers = GetParam();
    for (const Split saved : all_splits) {
        const TemporaryFolder folder;
        const auto generation = static_cast<std::uint64_t>(10 + savers);
        const auto status = save_state(folder.path(), saved, savers, generation);
        ASSERT_TRUE(status) << text_of(status);
        for (const Split loaded : all_splits) {
            const int loaders = 1 + (savers + static_cast<int>(loaded)) % 4;
            const auto outcome = load_state(folder.path(), loaded, loaders, generation);
            EXPECT_TRUE(outcome) << text_of(outcome) << " saved as " << static_cast<int>(saved)
                                 << ", loaded by " << loaders << " as " << static_cast<int>(loaded);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CheckpointOfRanks, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

TEST(Checkpoint, PassesFromOneRankOverTwoAndFourToThree) {
    struct Stop {
        Split split;
        int ranks;
    };
    const std::vector<Stop> way = {{Split::replicated, 1},  {Split::rows, 2},
                                   {Split::tensor_flat, 4}, {Split::columns, 3},
                                   {Split::flat, 4},        {Split::staggered, 3},
                                   {Split::flat, 3},        {Split::replicated, 2}};
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), way[0].split, way[0].ranks, 1));
    for (std::size_t i = 1; i < way.size(); ++i) {
        // Loaded and saved again: nothing but files hands the state on.
        const auto body = [&](exec::Communicator& world) -> exec::Status {
            RankState state = make_state(way[i].split, world.rank(), way[i].ranks);
            const auto meta = load_checkpoint(world, folder.path(), state.parts);
            if (!meta) return meta.error();
            const auto saved = save_checkpoint(world, folder.path(), state.parts, *meta);
            return saved ? exec::Status(sim::Done{}) : exec::Status(saved.error());
        };
        const auto outcome = exec::run_ranks(way[i].ranks, body).status();
        ASSERT_TRUE(outcome) << text_of(outcome);
        const auto same = load_state(folder.path(), Split::replicated, 1, 1);
        EXPECT_TRUE(same) << text_of(same) << " after stop " << i;
    }
}

TEST(Checkpoint, IsWrittenOnceAndEvenlyWhereAllRanksHoldAll) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::replicated, 4, 3));
    const auto saves = exec::list_checkpoints(folder.path());
    ASSERT_EQ(saves.size(), 1U);
    std::uintmax_t least = UINTMAX_MAX;
    std::uintmax_t most = 0;
    std::uintmax_t all = 0;
    for (const auto& file : fs::directory_iterator(saves[0])) {
        if (file.path().extension() != ".safetensors") continue;
        least = std::min(least, file.file_size());
        most = std::max(most, file.file_size());
        all += file.file_size();
    }
    const std::uintmax_t state = 710 * 1024 * 2 + 33 * 16 * 2 + 12 * 7 * 12 + 11 * 4 + 240 + 33;
    EXPECT_LT(all, state + 4 * 4096); // four headers
    EXPECT_LT(most - least, 4096U);
}

TEST(Checkpoint, KeepsTheLastAndTheirPointer) {
    const TemporaryFolder folder;
    const std::string place = folder.path() + "/runs/a"; // made on the way
    for (std::uint64_t generation = 1; generation <= 4; ++generation) {
        const auto status = save_state(place, Split::rows, 2, generation, {.keep_last = 3});
        ASSERT_TRUE(status) << text_of(status);
    }
    const auto saves = exec::list_checkpoints(place);
    ASSERT_EQ(saves.size(), 3U);
    EXPECT_EQ(saves[2], place + "/save-000004-step-4");
    EXPECT_TRUE(load_state(place, Split::flat, 1, 4));
    for (std::uint64_t i = 0; i < 3; ++i) { // each by its own name
        EXPECT_TRUE(load_state(saves[i], Split::columns, 3, i + 2));
    }
    const auto meta = exec::read_checkpoint_meta(saves[0]);
    ASSERT_TRUE(meta);
    EXPECT_EQ(meta->step, 2);
    // A run that goes back to an earlier step still makes the newest checkpoint.
    ASSERT_TRUE(save_state(place, Split::rows, 1, 2, {.keep_last = 1}));
    EXPECT_EQ(exec::list_checkpoints(place),
              std::vector<std::string>{place + "/save-000005-step-2"});
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(place)) {
        names.insert(entry.path().filename());
    }
    EXPECT_EQ(names, (std::set<std::string>{".lock", "latest", "save-000005-step-2"}));
}

TEST(Checkpoint, OfARunThatStillSavesIsNotDisturbed) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::rows, 1, 1));
    const int lock = ::open((folder.path() + "/.lock").c_str(), O_RDWR);
    ASSERT_GE(lock, 0);
    ASSERT_EQ(::flock(lock, LOCK_EX), 0);
    const auto status = save_state(folder.path(), Split::rows, 2, 2);
    ::close(lock);
    EXPECT_EQ(text_of(status), "rank 0: " + folder.path() +
                                   ": another program saves here just now (give each run a folder "
                                   "of its own)");
    EXPECT_TRUE(load_state(folder.path(), Split::rows, 2, 1));
    EXPECT_TRUE(save_state(folder.path(), Split::rows, 2, 2));
}

TEST(Checkpoint, ThatRanksDisagreeAboutIsNobodysAndLeavesTheOneBefore) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::flat, 3, 1));
    const auto body = [&](exec::Communicator& world) -> exec::Status {
        RankState state = make_state(Split::flat, world.rank(), 3);
        fill(state, 2);
        if (world.rank() == 1) state.parts[0].shape[0] = 13;
        const auto saved = save_checkpoint(world, folder.path(), state.parts, {.step = 2});
        return saved ? exec::Status(sim::Done{}) : exec::Status(saved.error());
    };
    const auto outcome = exec::run_ranks(3, body);
    for (const auto& rank : outcome.ranks) {
        EXPECT_EQ(text_of(rank),
                  "tensor \"blocks.0.qkv.weight\": it is [0:12, 0:7] of fp32 on rank 0 and "
                  "[0:13, 0:7] of fp32 on rank 1 (all ranks state the shape and type of the whole "
                  "tensor)");
    }
    EXPECT_TRUE(load_state(folder.path(), Split::rows, 2, 1));
}

/// Files of this program cannot grow beyond `bytes`.
class FileLimit {
public:
    explicit FileLimit(rlim_t bytes) : ignored_(std::signal(SIGXFSZ, SIG_IGN)) {
        EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
        const rlimit now{bytes, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;
    ~FileLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, ignored_);
    }

private:
    rlimit before_{};
    void (*ignored_)(int);
};

TEST(Checkpoint, ThatDoesNotFitOnTheDiskLeavesTheOneBeforeAndNothingElse) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::replicated, 3, 1));
    std::string said;
    {
        const FileLimit limit(100'000);
        said = text_of(save_state(folder.path(), Split::replicated, 3, 2));
    }
    // Every rank has a third of the large tensor to write, so rank 0 is the first that fails.
    EXPECT_EQ(said.substr(0, 8), "rank 0: ") << said;
    EXPECT_NE(said.find("shard-00001-model-00001-of-00001.safetensors: this file cannot be "
                        "written: File too large"),
              std::string::npos)
        << said;
    EXPECT_TRUE(load_state(folder.path(), Split::rows, 2, 1));
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
        names.insert(entry.path().filename());
    }
    EXPECT_EQ(names, (std::set<std::string>{".lock", "latest", "save-000001-step-1"}));
    EXPECT_TRUE(save_state(folder.path(), Split::replicated, 3, 2));
}

/// What a rank is told that saves parts changed by `spoil`.
std::string refusal(const std::function<void(std::vector<exec::TensorPart>&)>& spoil) {
    const TemporaryFolder folder;
    RankState state = make_state(Split::rows, 0, 1);
    spoil(state.parts);
    const auto body = [&](exec::Communicator& world) -> exec::Status {
        const auto saved = save_checkpoint(world, folder.path(), state.parts, {});
        EXPECT_TRUE(exec::list_checkpoints(folder.path()).empty() || saved);
        return saved ? exec::Status(sim::Done{}) : exec::Status(saved.error());
    };
    return text_of(exec::run_ranks(1, body).status());
}

TEST(Checkpoint, RefusesPartsThatMakeNoTensor) {
    using Parts = std::vector<exec::TensorPart>;
    const auto says = [](const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    };
    EXPECT_EQ(refusal([](Parts&) {}), "success");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].boxes[0].box.extent[0] = 11; }),
                 "no rank holds its elements [11:12, 0:7]");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].boxes[0].box.first[0] = 1; }),
                 "the box [1:13, 0:7] does not lie in [0:12, 0:7]");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].boxes[0].box.extent.pop_back(); }),
                 "a box has other dimensions than the tensor");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].boxes[0].data = nullptr; }), "has no data");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].boxes[0].strides = {1, 12}; }), "strides");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].shape[1] = 0; }), "it has no elements");
    EXPECT_PRED2(says, refusal([](Parts& p) {
                     p[0].shape = {1LL << 40, 1LL << 40};
                 }),
                 "more bytes than 64 bits count");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].name = "__metadata__"; }),
                 "this cannot be the name of a tensor");
    EXPECT_PRED2(says, refusal([](Parts& p) { p[0].name = "\xff"; }),
                 "this cannot be the name of a tensor");
}

TEST(Checkpoint, IsReadFromTheFilesThatHoldWhatIsWantedAlone) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::rows, 4, 5));
    const auto save = exec::list_checkpoints(folder.path()).at(0);
    fs::remove(save + "/shard-00001-model-00001-of-00001.safetensors");
    const auto load = [&](const exec::TensorPart& part) {
        return exec::run_ranks(
                   1,
                   [&](exec::Communicator& world) -> exec::Status {
                       const auto meta = load_checkpoint(world, folder.path(), {&part, 1});
                       return meta ? exec::Status(sim::Done{}) : exec::Status(meta.error());
                   })
            .status();
    };
    // One row of four: rank 3 wrote it, as it did of every tensor of one row only.
    RankState state = make_state(Split::replicated, 0, 1);
    const auto part = std::find_if(state.parts.begin(), state.parts.end(),
                                   [](const auto& p) { return p.name == "counts"; });
    EXPECT_TRUE(load(*part));
    EXPECT_NE(text_of(load(state.parts[0])).find("shard-00001"), std::string::npos);
}

} // namespace
} // namespace shardplan::test
