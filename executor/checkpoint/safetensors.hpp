#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/checkpoint/box.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Checksums of the data of a file, cut into blocks.
struct BlockSums {
    Index block_bytes = 0;
    std::vector<std::uint32_t> sums; ///< CRC-32C; the last block may be shorter

    friend bool operator==(const BlockSums&, const BlockSums&) = default;
};

/// A box of a tensor in a file, without gaps, row-major, little-endian.
struct StoredBox {
    std::string name;
    std::string dtype; ///< "F32"
    Box box;
    Index begin = 0; ///< first byte after those of the header
    Index end = 0;   ///< one beyond the last

    friend bool operator==(const StoredBox&, const StoredBox&) = default;
};

/// What a safetensors file says of itself. Format: huggingface/safetensors, README; places of boxes
/// in their tensors: DCP_SHARDING_INFO of PyTorch's distributed checkpoint, _hf_utils.py.
struct SafetensorsHeader {
    std::vector<StoredBox> boxes; ///< in the order of their data
    std::optional<BlockSums> sums;

    friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

/// Bytes before the header's text: its length.
constexpr Index length_bytes = 8;

std::string_view dtype_of(Scalar scalar);
/// How many boxes may share a file: one of each name. Sets `begin` and `end` of boxes of scalars
/// `dtype_of` names, largest alignment first, then by name, as the format's own library orders
/// them.
void place(std::vector<StoredBox>& boxes);

/// Length and text of a header, a multiple of 8 bytes, so that data is aligned as its elements are.
/// The length depends on names and numbers, not on the values of the sums.
std::string write_header(const SafetensorsHeader& header);
/// The length of the text that `length_bytes` bytes announce, if a file of `file_bytes` can hold
/// it.
sim::Result<Index> header_length(std::string_view first_bytes, Index file_bytes,
                                 const std::string& source);
/// Errors: no JSON, unknown types, boxes that leave gaps, overlap or do not fill `data_bytes`,
/// sizes that contradict the shape, places or sums that do not fit.
sim::Result<SafetensorsHeader> parse_header(std::string_view text, Index data_bytes,
                                            const std::string& source);

} // namespace shardplan::exec
