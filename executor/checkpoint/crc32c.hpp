#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardplan::exec {

/// CRC-32C, the checksum of iSCSI and ext4: no change of up to 32 bits in a row goes unseen, nor
/// any of a few bits in a block. Source: RFC 3720, appendix B.4. `before`: the sum of the bytes
/// before, to go on.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
/// The same on any processor.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Eight hexadecimal digits, and back.
std::string sum_text(std::uint32_t sum);
std::optional<std::uint32_t> sum_from(std::string_view text);

} // namespace shardplan::exec
