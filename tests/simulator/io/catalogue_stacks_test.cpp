#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h> // setenv

#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::sim {
namespace {

template <class T>
std::string error_of(const Result<T>& result) {
    return result ? "no error" : to_text(result.error());
}

/// A folder of its own for files a test writes.
class Folder {
public:
    Folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "shardplanXXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    ~Folder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    std::string write(const std::string& name, const std::string& text) const {
        const std::string file = path_ + "/" + name;
        std::filesystem::create_directories(std::filesystem::path(file).parent_path());
        EXPECT_TRUE(write_file(file, text));
        return file;
    }

private:
    std::string path_;
};

TEST(Stacks, EveryStackLoadsUnderItsFileNameAndItsAliases) {
    const std::vector<CatalogueEntry> stacks = list_stacks().value();
    std::set<std::string> names;
    std::set<std::string> spellings;
    for (const CatalogueEntry& entry : stacks) {
        names.insert(entry.name);
        const Result<StackProfile> stack = load_stack(entry.name);
        ASSERT_TRUE(stack) << error_of(stack);
        EXPECT_EQ(stack->name, entry.name);
        EXPECT_FALSE(stack->title.empty()) << entry.name;
        EXPECT_TRUE(spellings.insert(stack->name).second) << stack->name;
        for (const std::string& alias : stack->aliases) {
            EXPECT_TRUE(spellings.insert(alias).second) << alias << " names two stacks";
            EXPECT_EQ(load_stack(alias)->name, entry.name);
        }
    }
    for (const char* name :
         {"megatron-lm", "megatron-core", "megatron-deepspeed", "deepspeed", "pytorch-fsdp1",
          "pytorch-fsdp2", "composer-fsdp1", "nanotron", "aleph-alpha-scaling", "internevo",
          "maxtext", "llm.c", "torchtune", "colossalai", "shardplan-cpu", "generic"}) {
        EXPECT_EQ(names.count(name), 1U) << name;
    }
}

TEST(Stacks, ADerivedFileStatesOnlyWhatDiffers) {
    const StackProfile base = load_stack("pytorch-fsdp2").value();
    const StackProfile derived = load_stack("torchtune").value();
    EXPECT_EQ(derived.derived_from, "pytorch-fsdp2");
    EXPECT_EQ(derived.memory, base.memory);
    EXPECT_EQ(derived.time, base.time);
    EXPECT_FALSE(derived.capabilities.pipeline_parallel);
    EXPECT_EQ(derived.capabilities.offload_tiers, base.capabilities.offload_tiers);
    EXPECT_EQ(derived.tensors.loss, LossImpl::chunked);
    EXPECT_TRUE(derived.aliases.empty()) << "names are not inherited";
    // two steps: composer-fsdp1 from pytorch-fsdp1 from pytorch-fsdp2
    EXPECT_EQ(load_stack("composer-fsdp1")->time.launch, base.time.launch);
}

TEST(Stacks, AUserFileMayBeDerivedFromABuiltIn) {
    const Folder folder;
    const std::string path = folder.write("mine.json", R"({
        "name": "mine", "derived_from": "megatron-core",
        "time": {"launch": {"value": 2e-06, "unit": "s", "origin": "own_measurement",
                            "source": "measured", "lo": 1e-06, "hi": 3e-06, "sigma": 0.1}}})");
    const Result<StackProfile> mine = load_stack(path);
    ASSERT_TRUE(mine) << error_of(mine);
    EXPECT_DOUBLE_EQ(mine->time.launch.value, 2e-6);
    StackProfile expected = load_stack("megatron-core").value();
    EXPECT_EQ(mine->capabilities, expected.capabilities);
    expected.time.launch = mine->time.launch;
    EXPECT_EQ(mine->time, expected.time);
}

TEST(Stacks, AFileThatStatesTooLittleIsRefusedAtTheMissingConstant) {
    const Folder folder;
    const Result<StackProfile> mine = load_stack(folder.write("mine.json", R"({"name": "mine"})"));
    ASSERT_FALSE(mine);
    EXPECT_NE(mine.error().where.find("/memory/context"), std::string::npos) << error_of(mine);
}

TEST(Stacks, AnUnknownBaseIsRefusedWithTheNearestName) {
    const Folder folder;
    const std::string path =
        folder.write("mine.json", R"({"name": "mine", "derived_from": "megatron-cor"})");
    const Result<StackProfile> mine = load_stack(path);
    ASSERT_FALSE(mine);
    EXPECT_EQ(mine.error().where, path + ": /derived_from");
    EXPECT_NE(mine.error().hint.find("megatron-core"), std::string::npos) << error_of(mine);
}

TEST(Stacks, ACircleOfProfilesEndsInAnError) {
    const Folder folder;
    folder.write("topologies/stacks/a.json", R"({"name": "a", "derived_from": "b"})");
    folder.write("topologies/stacks/b.json", R"({"name": "b", "derived_from": "a"})");
    const char* before = ::getenv("SHARDPLAN_DATA");
    const std::string kept = before == nullptr ? "" : before;
    ::setenv("SHARDPLAN_DATA", folder.path().c_str(), 1);
    const Result<StackProfile> a = load_stack("a");
    if (before == nullptr) {
        ::unsetenv("SHARDPLAN_DATA");
    } else {
        ::setenv("SHARDPLAN_DATA", kept.c_str(), 1);
    }
    ASSERT_FALSE(a);
    EXPECT_NE(a.error().what.find("derived from one another"), std::string::npos) << error_of(a);
}

TEST(Stacks, AnUnknownNameIsRefusedForPlansAndGenericForRunRecords) {
    const Result<StackProfile> refused = load_stack("megatron-crore");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().hint.find("megatron-core"), std::string::npos) << error_of(refused);
    const Result<Loaded<StackProfile>> generic = load_stack_or_generic("somebody's");
    ASSERT_TRUE(generic) << error_of(generic);
    EXPECT_EQ(generic->value.name, "somebody's");
    EXPECT_EQ(generic->value.time, load_stack("generic")->time);
    ASSERT_EQ(generic->assumptions.size(), 1U);
    EXPECT_EQ(generic->assumptions[0].value, "generic");
    const Result<Loaded<StackProfile>> known = load_stack_or_generic("torchtitan");
    ASSERT_TRUE(known) << error_of(known);
    EXPECT_EQ(known->value.name, "pytorch-fsdp2");
    EXPECT_TRUE(known->assumptions.empty());
}

TEST(Stacks, GenericHasTheWidestBandOfTimes) {
    const double widest = load_stack("generic")->time.sigma.value;
    const std::vector<CatalogueEntry> stacks = list_stacks().value();
    for (const CatalogueEntry& entry : stacks) {
        EXPECT_LE(load_stack(entry.name)->time.sigma.value, widest) << entry.name;
    }
}

} // namespace
} // namespace shardplan::sim
