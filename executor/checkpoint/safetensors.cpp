#include "executor/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>

#include "executor/checkpoint/crc32c.hpp"
#include "simulator/io/json.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using sim::JsonValue;
using sim::Result;

constexpr Index longest_header = Index{64} << 20; // what the reader of JSON takes
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::string_view places_key = "DCP_SHARDING_INFO";
constexpr std::string_view offsets_key = "saved_offsets";
constexpr std::string_view block_bytes_key = "SHARDPLAN_BLOCK_BYTES";
constexpr std::string_view sums_key = "SHARDPLAN_BLOCK_CRC32C";
constexpr const char* damaged_hint =
    "the file is damaged or of another kind: load an older checkpoint, or copy this one again";

/// In the order of Scalar.
constexpr std::array<std::string_view, 6> dtypes = {"F64", "F32", "BF16", "I32", "I64", "U8"};

struct DtypeBits {
    std::string_view name;
    Index bits;
};
/// Source: huggingface/safetensors, safetensors/src/tensor.rs, version 0.8.
constexpr std::array<DtypeBits, 22> known_dtypes = {{
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"U16", 16},    {"I16", 16},
    {"U32", 32},        {"I32", 32},        {"U64", 64}, {"I64", 64},    {"F16", 16},
    {"BF16", 16},       {"F32", 32},        {"F64", 64}, {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
}};

/// 0: unknown.
Index bits_of(std::string_view dtype) {
    for (const auto& known : known_dtypes) {
        if (known.name == dtype) return known.bits;
    }
    return 0;
}

Error damaged(std::string where, std::string what) {
    return {ErrorCode::bad_input, std::move(where), std::move(what), damaged_hint};
}

/// Whole numbers of at least 0.
Result<std::vector<Index>> read_counts(const JsonValue& json) {
    if (!json.is_array()) return damaged(json.where(), "a list of counts is expected");
    std::vector<Index> out;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const auto count = json.at(i).as_int();
        if (!count) return count.error();
        if (*count < 0) return damaged(json.at(i).where(), "a count is below 0");
        out.push_back(*count);
    }
    return out;
}

/// Nothing if they are beyond 64 bits.
std::optional<Index> bytes_of_shape(const std::vector<Index>& shape, Index bits) {
    // Dimensions of size 0 make all the others harmless.
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    Index product = bits;
    for (const Index extent : shape) {
        if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
    }
    return product % 8 == 0 ? std::optional(product / 8) : std::nullopt;
}

Result<StoredBox> read_box(const std::string& name, const JsonValue& json) {
    const auto dtype = json.get("dtype").and_then([](auto v) { return v.as_string(); });
    if (!dtype) return dtype.error();
    const Index bits = bits_of(*dtype);
    if (bits == 0) {
        return damaged(json.where(), "there is no element type " + in_quotes(*dtype));
    }
    auto shape = json.get("shape").and_then([](auto v) { return read_counts(v); });
    if (!shape) return shape.error();
    const auto ends = json.get("data_offsets").and_then([](auto v) { return read_counts(v); });
    if (!ends) return ends.error();
    if (ends->size() != 2 || ends->at(0) > ends->at(1)) {
        return damaged(json.where(), "data_offsets are a begin and an end not before it");
    }
    const Index held = ends->at(1) - ends->at(0);
    const auto needed = bytes_of_shape(*shape, bits);
    if (needed != held) {
        return damaged(json.where(),
                       std::to_string(held) + " bytes do not hold this shape of " + *dtype);
    }
    return StoredBox{name, *dtype, whole_of(*shape), ends->at(0), ends->at(1)};
}

/// The text of a key of "__metadata__"; empty if it is absent.
Result<std::string> metadata_text(const std::optional<JsonValue>& metadata, std::string_view key) {
    const auto value = metadata ? metadata->find(key) : std::nullopt;
    return value ? value->as_string() : Result<std::string>(std::string());
}

sim::Status read_places(const std::string& text, const std::string& source,
                        std::vector<StoredBox>& boxes) {
    const auto json = JsonValue::parse(text, source + ": " + std::string(places_key));
    if (!json) return json.error();
    for (StoredBox& box : boxes) {
        auto first = json->get(box.name)
                         .and_then([](auto v) { return v.get(offsets_key); })
                         .and_then([](auto v) { return read_counts(v); });
        if (!first) return first.error();
        bool fits = first->size() == box.box.extent.size();
        for (std::size_t d = 0; fits && d < first->size(); ++d) {
            fits = first->at(d) <= std::numeric_limits<Index>::max() - box.box.extent[d];
        }
        if (!fits) {
            return damaged(json->where(),
                           "the place of " + in_quotes(box.name) + " does not fit its shape");
        }
        box.box.first = std::move(*first);
    }
    return sim::Done{};
}

Result<std::optional<BlockSums>> read_sums(const std::optional<JsonValue>& metadata,
                                           Index data_bytes, const std::string& source) {
    const auto size = metadata_text(metadata, block_bytes_key);
    if (!size) return size.error();
    const auto digits = metadata_text(metadata, sums_key);
    if (!digits) return digits.error();
    if (size->empty() && digits->empty()) return std::optional<BlockSums>();
    const std::string where = source + ": " + std::string(sums_key);
    const auto block =
        JsonValue::parse(*size, source + ": " + std::string(block_bytes_key)).and_then([](auto v) {
            return v.as_int();
        });
    if (!block) return block.error();
    constexpr Index largest_block = Index{1} << 30;
    if (*block < 1 || *block > largest_block) {
        return damaged(where, "blocks have 1 to 2^30 bytes");
    }
    const auto blocks = static_cast<std::size_t>((data_bytes + *block - 1) / *block);
    if (digits->size() % 8 != 0 || digits->size() / 8 != blocks) {
        return damaged(where, "a sum of 8 digits is expected for each of " +
                                  std::to_string(blocks) + " blocks");
    }
    BlockSums sums{*block, {}};
    for (std::size_t i = 0; i < blocks; ++i) {
        const auto sum = sum_from(std::string_view(*digits).substr(8 * i, 8));
        if (!sum) return damaged(where, "the sum of block " + std::to_string(i) + " is no number");
        sums.sums.push_back(*sum);
    }
    return std::optional(std::move(sums));
}

/// Boxes in the order of their data, which they fill without gaps.
sim::Status check_order(const std::vector<StoredBox>& boxes, Index data_bytes,
                        const std::string& source) {
    Index end = 0;
    for (const StoredBox& box : boxes) {
        if (box.begin != end) {
            return damaged(source, "the data of " + in_quotes(box.name) + " begins at byte " +
                                       std::to_string(box.begin) + ", that before it ends at " +
                                       std::to_string(end));
        }
        end = box.end;
    }
    if (end != data_bytes) {
        return damaged(source, "the header describes " + std::to_string(end) +
                                   " bytes of data, the file holds " + std::to_string(data_bytes));
    }
    return sim::Done{};
}

} // namespace

std::string_view dtype_of(Scalar scalar) { return dtypes[static_cast<std::size_t>(scalar)]; }

void place(std::vector<StoredBox>& boxes) {
    std::sort(boxes.begin(), boxes.end(), [](const StoredBox& a, const StoredBox& b) {
        return std::tuple(-bits_of(a.dtype), std::string_view(a.name)) <
               std::tuple(-bits_of(b.dtype), std::string_view(b.name));
    });
    Index at = 0;
    for (StoredBox& box : boxes) {
        box.begin = at;
        at += volume(box.box) * bits_of(box.dtype) / 8;
        box.end = at;
    }
}

std::string write_header(const SafetensorsHeader& header) {
    sim::JsonWriter places(sim::Indent::compact);
    places.begin_object();
    for (const StoredBox& box : header.boxes) {
        places.begin_object(box.name).begin_array(offsets_key);
        for (const Index first : box.box.first) {
            places.value(first);
        }
        places.end_array().end_object();
    }
    places.end_object();
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object().begin_object(metadata_key);
    json.member("format", "pt").member("DCP_VERSION", "1.0").member(places_key, places.str());
    if (header.sums) {
        std::string digits;
        for (const std::uint32_t sum : header.sums->sums) {
            digits += sum_text(sum);
        }
        json.member(block_bytes_key, std::to_string(header.sums->block_bytes));
        json.member(sums_key, digits);
    }
    json.end_object();
    for (const StoredBox& box : header.boxes) {
        json.begin_object(box.name).member("dtype", box.dtype).begin_array("shape");
        for (const Index extent : box.box.extent) {
            json.value(extent);
        }
        json.end_array().begin_array("data_offsets").value(box.begin).value(box.end);
        json.end_array().end_object();
    }
    json.end_object();
    std::string text = json.str();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const auto length = static_cast<std::uint64_t>(text.size());
    std::string out(length_bytes, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + text;
}

Result<Index> header_length(std::string_view first_bytes, Index file_bytes,
                            const std::string& source) {
    std::uint64_t length = 0;
    if (first_bytes.size() < sizeof length) {
        return damaged(source, "the file ends before its header");
    }
    std::memcpy(&length, first_bytes.data(), sizeof length);
    if (length > static_cast<std::uint64_t>(longest_header) ||
        static_cast<Index>(length) > file_bytes - length_bytes) {
        return damaged(source, "its header would have " + std::to_string(length) +
                                   " bytes, the file has " + std::to_string(file_bytes));
    }
    return static_cast<Index>(length);
}

Result<SafetensorsHeader> parse_header(std::string_view text, Index data_bytes,
                                       const std::string& source) {
    const auto json = JsonValue::parse(text, source);
    if (!json) return json.error();
    if (!json->is_object()) return damaged(source, "the header is no JSON object");
    SafetensorsHeader header;
    const auto names = json->keys();
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == metadata_key) continue;
        auto box = read_box(names[i], json->at(i));
        if (!box) return std::move(box).error();
        header.boxes.push_back(std::move(*box));
    }
    std::stable_sort(header.boxes.begin(), header.boxes.end(),
                     [](const StoredBox& a, const StoredBox& b) {
                         return std::tuple(a.begin, a.end) < std::tuple(b.begin, b.end);
                     });
    if (auto status = check_order(header.boxes, data_bytes, source); !status) {
        return std::move(status).error();
    }
    const auto metadata = json->find(metadata_key);
    const auto places = metadata_text(metadata, places_key);
    if (!places) return places.error();
    if (!places->empty()) {
        if (auto status = read_places(*places, source, header.boxes); !status) {
            return std::move(status).error();
        }
    }
    auto sums = read_sums(metadata, data_bytes, source);
    if (!sums) return std::move(sums).error();
    header.sums = std::move(*sums);
    return header;
}

} // namespace shardplan::exec
