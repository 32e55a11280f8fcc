#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/executor/checkpoint/states.hpp"

namespace shardplan::test {
namespace {

using exec::Bf16;
using exec::Index;
using exec::Scalar;
using exec::TensorPart;

const std::string data_folder = SHARDPLAN_SOURCE_DIR "/tests/executor/data";

template <class T>
TensorPart part(const std::string& name, std::vector<Index> shape, exec::Box box,
                std::vector<T>& values) {
    values.resize(static_cast<std::size_t>(exec::volume(box)));
    return {name,
            exec::scalar_of<T>(),
            std::move(shape),
            {{std::move(box), reinterpret_cast<std::byte*>(values.data()), {}}}};
}

TEST(PyTorchCheckpoint, OfTwoRanksIsReadAcrossTheirCuts) {
    // Whole numbers, or halves, that rise through each tensor: pytorch_checkpoint.py.
    std::vector<float> rows;
    std::vector<double> columns;
    std::vector<Bf16> everywhere;
    std::vector<std::int64_t> count;
    const std::vector<TensorPart> parts = {
        part("rows", {5, 3}, {{1, 1}, {4, 2}}, rows),
        part("columns", {3, 6}, {{1, 0}, {2, 6}}, columns),
        part("everywhere", {4}, {{0}, {4}}, everywhere),
        part("count", {2, 2}, {{0, 1}, {2, 1}}, count),
    };
    const auto status = exec::load_safetensors(data_folder + "/pytorch_checkpoint", parts);
    ASSERT_TRUE(status) << to_text(status.error());
    EXPECT_EQ(rows, (std::vector<float>{4.5F, 5.5F, 7.5F, 8.5F, 10.5F, 11.5F, 13.5F, 14.5F}));
    EXPECT_EQ(columns,
              (std::vector<double>{106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117}));
    EXPECT_EQ(everywhere, (std::vector<Bf16>{exec::to_bf16(7), exec::to_bf16(8), exec::to_bf16(9),
                                             exec::to_bf16(10)}));
    EXPECT_EQ(count, (std::vector<std::int64_t>{-1, 1}));
}

TEST(PyTorchCheckpoint, IsRefusedWhereItIsNotWhatIsWanted) {
    std::vector<float> values;
    const auto refusal = [&](const TensorPart& wanted, const std::string& folder) {
        const auto status = exec::load_safetensors(folder, {&wanted, 1});
        return status ? "success" : to_text(status.error());
    };
    const std::string folder = data_folder + "/pytorch_checkpoint";
    EXPECT_EQ(refusal(part("rows", {5, 3}, {{0, 0}, {5, 3}}, values), folder), "success");
    EXPECT_EQ(refusal(part("row", {5, 3}, {{0, 0}, {5, 3}}, values), folder),
              folder + ": it holds no tensor \"row\" (did you mean \"rows\"?)");
    EXPECT_EQ(refusal(part("rows", {6, 3}, {{0, 0}, {5, 3}}, values), folder),
              folder +
                  ": the tensor \"rows\" is [0:5, 0:3] of F32, and [0:6, 0:3] of F32 is wanted "
                  "(run the model and the precision that were saved)");
    EXPECT_EQ(refusal(part("rows", {5, 3}, {{0, 0}, {5, 3}}, values), data_folder),
              data_folder + ": there is no *.safetensors here (name a folder that holds some)");
    // Without the file of the first rank, the tensor still seems to reach as far.
    const TemporaryFolder half;
    const std::string second = "/shard-00002-model-00001-of-00001.safetensors";
    std::filesystem::copy_file(folder + second, half.path() + second);
    EXPECT_EQ(refusal(part("rows", {5, 3}, {{2, 0}, {3, 3}}, values), half.path()),
              half.path() +
                  ": no file holds the elements [2:3, 0:3] of \"rows\" (bring all files of "
                  "the checkpoint into the folder)");
}

/// The exit code of the script that reads our checkpoints; SHARDPLAN_TORCH_PYTHON names a Python
/// that has torch and safetensors, if python3 has not.
int run_python(const std::string& arguments) {
    const char* named = std::getenv("SHARDPLAN_TORCH_PYTHON");
    const std::string python = named != nullptr ? named : "python3";
    return std::system((python + " " + arguments).c_str()); // NOLINT: words of this test alone
}

TEST(PyTorchCheckpoint, OfOursIsReadByPyTorch) {
    if (run_python("-c 'import torch, safetensors' 2>/dev/null") != 0) {
        GTEST_SKIP() << "no Python with torch and safetensors; SHARDPLAN_TORCH_PYTHON names one";
    }
    const TemporaryFolder folder;
    ASSERT_TRUE(save_state(folder.path(), Split::tensor_flat, 4, 6));
    const std::string save = exec::list_checkpoints(folder.path()).at(0);
    EXPECT_EQ(run_python(data_folder + "/pytorch_checkpoint.py read " + save + " 6"), 0);
}

} // namespace
} // namespace shardplan::test
