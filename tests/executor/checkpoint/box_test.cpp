#include "executor/checkpoint/box.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "executor/checkpoint/crc32c.hpp"

namespace shardplan::test {
namespace {

using exec::Box;
using exec::Index;

/// Row-major places in a tensor of the elements of a box, in the order of the box.
std::vector<Index> places(const Box& box, const std::vector<Index>& shape) {
    std::vector<Index> out;
    for (Index i = 0; i < exec::volume(box); ++i) {
        Index rest = i;
        Index place = 0;
        Index row = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
            place += (box.first[d] + rest % box.extent[d]) * row;
            rest /= box.extent[d];
            row *= shape[d];
        }
        out.push_back(place);
    }
    return out;
}

TEST(Boxes, OfAStretchOfAFlatBufferAreItsElementsInOrder) {
    const std::vector<Index> shape{7, 6, 5};
    const std::vector<std::vector<Box>> locals = {
        {{{0, 0, 0}, {7, 6, 5}}},                         // the whole
        {{{2, 1, 3}, {3, 4, 2}}},                         // a box of it
        {{{0, 0, 0}, {1, 6, 5}}, {{3, 2, 1}, {2, 2, 3}}}, // two, one after the other
    };
    std::byte memory{};
    for (const auto& local : locals) {
        std::vector<Index> all;
        for (const Box& box : local) {
            const auto more = places(box, shape);
            all.insert(all.end(), more.begin(), more.end());
        }
        const auto count = static_cast<Index>(all.size());
        for (Index begin = 0; begin <= count; ++begin) {
            for (Index end = begin; end <= count; ++end) {
                std::vector<Index> got;
                for (const auto& box :
                     exec::boxes_of_range(local, begin, end, exec::Scalar::fp32, &memory)) {
                    EXPECT_EQ(box.data - &memory, 4 * static_cast<Index>(got.size()));
                    const auto more = places(box.box, shape);
                    got.insert(got.end(), more.begin(), more.end());
                }
                ASSERT_EQ(got, std::vector<Index>(all.begin() + begin, all.begin() + end))
                    << begin << " to " << end;
            }
        }
    }
}

TEST(Boxes, OfAStretchOfAMatrixAreThreeAtMost) {
    const std::vector<Box> local{{{4, 2}, {6, 9}}};
    std::byte memory{};
    std::size_t most = 0;
    for (Index begin = 0; begin < 54; ++begin) {
        for (Index end = begin; end <= 54; ++end) {
            const auto boxes = exec::boxes_of_range(local, begin, end, exec::Scalar::bf16, &memory);
            most = std::max(most, boxes.size());
        }
    }
    EXPECT_EQ(most, 3U);
    EXPECT_EQ(exec::boxes_of_range(local, 9, 27, exec::Scalar::bf16, &memory).size(), 1U);
}

TEST(Boxes, SubtractedLeaveDisjointBoxesOfAllTheRest) {
    std::mt19937 random(7); // NOLINT: the same boxes on every run
    const std::vector<Index> shape{4, 5, 3};
    const auto any_box = [&] {
        Box box{{0, 0, 0}, {0, 0, 0}};
        for (std::size_t d = 0; d < 3; ++d) {
            box.first[d] = static_cast<Index>(random() % static_cast<unsigned>(shape[d]));
            box.extent[d] =
                1 + static_cast<Index>(random() % static_cast<unsigned>(shape[d] - box.first[d]));
        }
        return box;
    };
    int met = 0;
    for (int i = 0; i < 500; ++i) {
        const Box from = any_box();
        const Box taken = any_box();
        std::multiset<Index> left;
        for (const Box& box : exec::subtract(from, taken)) {
            for (const Index place : places(box, shape)) {
                left.insert(place);
            }
        }
        std::multiset<Index> expected;
        const auto gone = places(taken, shape);
        for (const Index place : places(from, shape)) {
            if (std::find(gone.begin(), gone.end(), place) == gone.end()) expected.insert(place);
        }
        ASSERT_EQ(left, expected) << exec::to_text(from) << " - " << exec::to_text(taken);
        const auto common = exec::intersect(from, taken);
        met += common ? 1 : 0;
        EXPECT_EQ(exec::contains(from, taken), common == taken);
    }
    EXPECT_GT(met, 100);
}

TEST(Boxes, RunsAreAsLongAsBothMemoriesAllow) {
    const auto runs = [](const Box& common, const exec::BoxPlaces& a, const exec::BoxPlaces& b) {
        std::vector<std::vector<Index>> out;
        const auto status = for_each_run(common, a, b, [&](Index x, Index y, Index n) {
            out.push_back({x, y, n});
            return sim::Status(sim::Done{});
        });
        EXPECT_TRUE(status);
        return out;
    };
    using Runs = std::vector<std::vector<Index>>;
    const auto whole = exec::dense_places({{0, 0}, {4, 6}});
    EXPECT_EQ(runs({{0, 0}, {4, 6}}, whole, whole), (Runs{{0, 0, 24}}));
    EXPECT_EQ(runs({{1, 0}, {2, 6}}, whole, exec::dense_places({{1, 0}, {2, 6}})),
              (Runs{{6, 0, 12}}));
    EXPECT_EQ(runs({{1, 2}, {2, 3}}, whole, exec::dense_places({{1, 2}, {2, 3}})),
              (Runs{{8, 0, 3}, {14, 3, 3}}));
    EXPECT_EQ(runs({{1, 2}, {2, 3}}, whole, exec::BoxPlaces{{{1, 1}, {3, 4}}, {10, 1}}),
              (Runs{{8, 1, 3}, {14, 11, 3}}));
    const auto scalar = exec::dense_places({});
    EXPECT_EQ(runs({}, scalar, scalar), (Runs{{0, 0, 1}}));
}

TEST(Checksums, AreThoseOfTheStandard) {
    // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and from 0 to 31; the digits are the
    // customary check value.
    std::string rising;
    for (char c = 0; c < 32; ++c) {
        rising += c;
    }
    for (const auto sum_of : {&exec::crc32c, &exec::crc32c_by_tables}) {
        const auto sum = [&](const std::string& text) {
            return sum_of(std::as_bytes(std::span(text)), 0);
        };
        EXPECT_EQ(sum("123456789"), 0xE3069283U);
        EXPECT_EQ(sum(std::string(32, '\0')), 0x8A9136AAU);
        EXPECT_EQ(sum(std::string(32, '\xff')), 0x62A8AB43U);
        EXPECT_EQ(sum(rising), 0x46DD794EU);
        const auto bytes = std::as_bytes(std::span(rising));
        for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
            EXPECT_EQ(sum_of(bytes.subspan(cut), sum_of(bytes.first(cut), 0)), sum(rising));
        }
    }
}

TEST(Checksums, AreWrittenWithEightDigits) {
    EXPECT_EQ(exec::sum_text(0x046DD79EU), "046dd79e");
    EXPECT_EQ(exec::sum_from("046dd79e"), 0x046DD79EU);
    EXPECT_EQ(exec::sum_from("46dd79e"), std::nullopt);
    EXPECT_EQ(exec::sum_from("46dd79eg"), std::nullopt);
}

} // namespace
} // namespace shardplan::test
