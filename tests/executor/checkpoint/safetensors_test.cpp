#include "executor/checkpoint/safetensors.hpp"

#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using exec::Index;
using exec::SafetensorsHeader;

SafetensorsHeader some_header() {
    SafetensorsHeader header;
    header.boxes = {{"b", "F32", {{4, 0}, {2, 3}}},
                    {"a", "F32", {{0}, {5}}},
                    {"step", "I64", {}},
                    {"c \"\u00e9\"", "BF16", {{0, 7, 1}, {1, 2, 3}}}};
    exec::place(header.boxes);
    header.sums = exec::BlockSums{32, {0x01234567, 0xdeadbeef}};
    return header;
}

/// Bytes of the data of `some_header`.
constexpr Index some_bytes = 8 + 20 + 24 + 12;

sim::Result<SafetensorsHeader> parse(std::string_view file, Index data_bytes = some_bytes) {
    const auto length =
        exec::header_length(file, static_cast<Index>(file.size()) + data_bytes, "x.safetensors");
    if (!length) return length.error();
    return exec::parse_header(file.substr(8, static_cast<std::size_t>(*length)), data_bytes,
                              "x.safetensors");
}

TEST(SafetensorsHeaders, AreWrittenAsTheFormatSays) {
    const std::string file = exec::write_header(some_header());
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    EXPECT_EQ(length + 8, file.size());
    EXPECT_EQ(file.size() % 8, 0U);
    std::string text = file.substr(8);
    text.erase(text.find_last_not_of(' ') + 1);
    EXPECT_EQ(text, R"({"__metadata__":{"format":"pt","DCP_VERSION":"1.0","DCP_SHARDING_INFO":)"
                    R"("{\"step\":{\"saved_offsets\":[]},\"a\":{\"saved_offsets\":[0]},)"
                    R"(\"b\":{\"saved_offsets\":[4,0]},)"
                    "\\\"c \\\\\\\"\u00e9\\\\\\\"\\\":"
                    R"({\"saved_offsets\":[0,7,1]}}",)"
                    R"("SHARDPLAN_BLOCK_BYTES":"32","SHARDPLAN_BLOCK_CRC32C":"01234567deadbeef"},)"
                    R"("step":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                    R"("a":{"dtype":"F32","shape":[5],"data_offsets":[8,28]},)"
                    R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[28,52]},)"
                    "\"c \\\"\u00e9\\\"\":"
                    R"({"dtype":"BF16","shape":[1,2,3],"data_offsets":[52,64]}})");
}

TEST(SafetensorsHeaders, AreReadBack) {
    const auto header = some_header();
    const auto read = parse(exec::write_header(header));
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(*read, header);
}

/// Of a header with this text, written by others, over `data_bytes` of data.
std::string answer(const std::string& text, Index data_bytes) {
    const auto read = exec::parse_header(text, data_bytes, "f");
    return read ? "accepted" : to_text(read.error());
}

TEST(SafetensorsHeaders, OfOthersNeedNeitherPlacesNorSums) {
    EXPECT_EQ(answer(R"({})", 0), "accepted");
    EXPECT_EQ(answer(R"({"w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}   )", 8),
              "accepted");
    EXPECT_EQ(answer(R"({"__metadata__":{"format":"pt"},"none":{"dtype":"U8","shape":[0,9],)"
                     R"("data_offsets":[0,0]},"w":{"dtype":"F4","shape":[3,2],)"
                     R"("data_offsets":[0,3]}})",
                     3),
              "accepted");
}

TEST(SafetensorsHeaders, ThatContradictThemselvesAreRefused) {
    const auto refused = [](const std::string& text, Index data_bytes, const std::string& why) {
        const std::string got = answer(text, data_bytes);
        EXPECT_NE(got.find(why), std::string::npos) << text << "\n" << got;
        EXPECT_EQ(got.substr(0, 1), "f") << got; // names the file
    };
    refused("", 0, "f:1:1");
    refused("[]", 0, "the header is no JSON object");
    refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
            "the header describes 4 bytes of data, the file holds 5");
    refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "begins at byte 4");
    refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
            R"("v":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
            6, "begins at byte 2, that before it ends at 4");
    refused(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
            "/w: 4 bytes do not hold this shape of F32");
    refused(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "do not hold");
    refused(R"({"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4,
            "there is no element type \"F33\"");
    refused(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
            "do not hold");
    refused(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "below 0");
    refused(R"({"w":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "list of counts");
    refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "not before it");
    refused(R"({"w":{"dtype":"F32","shape":[1]}})", 4, "\"data_offsets\" is missing");
    refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
            R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            4, "stands twice");
    const auto places = [](const std::string& info) {
        return R"({"__metadata__":{"DCP_SHARDING_INFO":")" + info +
               R"("},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    };
    EXPECT_EQ(answer(places(R"({\"w\":{\"saved_offsets\":[3]}})"), 4), "accepted");
    refused(places(R"({\"w\":{\"saved_offsets\":[3,0]}})"), 4, "does not fit its shape");
    refused(places(R"({\"w\":{\"saved_offsets\":[9223372036854775807]}})"), 4, "does not fit");
    refused(places(R"({\"v\":{\"saved_offsets\":[3]}})"), 4, "\"w\" is missing");
    refused(places("{"), 4, "DCP_SHARDING_INFO");
    const auto sums = [](const std::string& block, const std::string& digits) {
        return R"({"__metadata__":{"SHARDPLAN_BLOCK_BYTES":")" + block +
               R"(","SHARDPLAN_BLOCK_CRC32C":")" + digits +
               R"("},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    };
    EXPECT_EQ(answer(sums("4", "00000000"), 4), "accepted");
    refused(sums("3", "00000000"), 4, "for each of 2 blocks");
    refused(sums("0", "00000000"), 4, "1 to 2^30 bytes");
    refused(sums("4", "0000000g"), 4, "the sum of block 0 is no number");
    refused(sums("", "00000000"), 4, "SHARDPLAN_BLOCK_BYTES");
}

TEST(SafetensorsHeaders, OfImpossibleLengthAreRefused) {
    const auto length = [](std::uint64_t n, Index file_bytes) {
        std::string first(8, '\0');
        std::memcpy(first.data(), &n, 8);
        return exec::header_length(first, file_bytes, "f");
    };
    EXPECT_EQ(*length(2, 10), 2);
    EXPECT_FALSE(length(3, 10));
    EXPECT_FALSE(length(~0ULL, 10));
    EXPECT_FALSE(length(1ULL << 40, 1LL << 50));
    EXPECT_FALSE(exec::header_length("1234567", 7, "f"));
}

/// One of the ways in which a file goes wrong.
void damage(std::string& text, std::mt19937& random) {
    const auto any = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
    const std::size_t at = any(text.size());
    static const std::vector<std::string> words = {"0",
                                                   "-1",
                                                   "9223372036854775807",
                                                   "18446744073709551616",
                                                   "1e300",
                                                   "null",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   "\\",
                                                   ",",
                                                   ":",
                                                   "\\u0000",
                                                   "saved_offsets",
                                                   "F64",
                                                   "\"shape\":[]",
                                                   "[[[["};
    switch (any(6)) {
        case 0:
            if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << any(8)));
            return;
        case 1:
            if (!text.empty()) text[at] = static_cast<char>(any(256));
            return;
        case 2:
            text.resize(at);
            return;
        case 3:
            text.erase(at, 1 + any(20));
            return;
        case 4: {
            const auto piece = text.substr(any(text.size()), any(40)); // repeated elsewhere
            text.insert(at, piece);
            return;
        }
        default:
            text.insert(at, words[any(words.size())]);
    }
}

TEST(SafetensorsHeaders, SurviveTenThousandDamages) {
    std::mt19937 random(20261129); // NOLINT: the same damages on every run
    const std::string file = exec::write_header(some_header());
    int accepted = 0;
    int refused = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::string text = file;
        const auto times = 1 + random() % 4;
        for (unsigned k = 0; k < times; ++k) {
            damage(text, random);
        }
        const Index data_bytes =
            random() % 8 == 0 ? static_cast<Index>(random() % 100) : some_bytes;
        const auto read = parse(text, data_bytes);
        if (!read) {
            ++refused;
            ASSERT_EQ(read.error().where.substr(0, 13), "x.safetensors") << to_text(read.error());
            ASSERT_FALSE(read.error().what.empty());
            continue;
        }
        // What is accepted can be read without leaving the file.
        ++accepted;
        Index end = 0;
        for (const auto& box : read->boxes) {
            ASSERT_EQ(box.begin, end);
            ASSERT_GE(box.end, box.begin);
            ASSERT_EQ(box.box.first.size(), box.box.extent.size());
            end = box.end;
        }
        ASSERT_EQ(end, data_bytes);
        if (read->sums) {
            ASSERT_GE(static_cast<Index>(read->sums->sums.size()) * read->sums->block_bytes,
                      data_bytes);
        }
    }
    EXPECT_GT(accepted, 100); // in texts, names and sums
    EXPECT_GT(refused, 5'000);
}

} // namespace
} // namespace shardplan::test
