#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"

/// Training states of a few small tensors under many layouts, to be saved and loaded.
namespace shardplan::test {

/// How the tensors are split over ranks.
enum class Split {
    replicated,  ///< each rank holds all
    rows,        ///< a range of the first dimension; ranks may be left without
    columns,     ///< a range of the last dimension, in rows with gaps between them
    flat,        ///< all tensors one after the other, cut into even stretches, as FSDP does
    tensor_flat, ///< rows over two tensor-parallel ranks, query, key and value each; each of their
                 ///< parts cut into even stretches over the ranks left; an odd rank holds nothing
    staggered,   ///< two thirds of each tensor on each rank, that overlap
};
constexpr Split all_splits[] = {Split::replicated, Split::rows,        Split::columns,
                                Split::flat,       Split::tensor_flat, Split::staggered};

/// A rank's state and its memory.
struct RankState {
    std::vector<std::vector<std::byte>> memory;
    std::vector<exec::TensorPart> parts;
};

/// Zeros, of the tensors of this test under a split.
RankState make_state(Split split, int rank, int ranks);
/// Bits that depend on the tensor, the place in it and `generation` alone.
void fill(RankState& state, std::uint64_t generation);
/// Elements that differ from what `fill` writes.
std::int64_t differences(const RankState& state, std::uint64_t generation);

/// The bits of one element, in the lower bytes.
std::uint64_t element_bits(const std::string& tensor, std::int64_t place, std::uint64_t generation);

/// An empty folder, removed at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder();
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Saves `generation` with `ranks` threads.
exec::Status save_state(const std::string& folder, Split split, int ranks, std::uint64_t generation,
                        exec::SaveOptions options = {});
/// Loads with `ranks` threads, and fails where the state is not that of `generation`.
exec::Status load_state(const std::string& folder, Split split, int ranks,
                        std::uint64_t generation);

} // namespace shardplan::test
