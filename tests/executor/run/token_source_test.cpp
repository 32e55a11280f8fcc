#include "executor/run/token_source.hpp"

#include <cstdio>
#include <fstream>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using namespace exec;

class TokenFiles : public ::testing::Test {
protected:
    std::string write(const std::string& bytes) {
        const std::string path = ::testing::TempDir() + "tokens_" +
                                 ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                                 ".bin";
        std::ofstream(path, std::ios::binary) << bytes;
        paths_.insert(path);
        return path;
    }
    void TearDown() override {
        for (const std::string& path : paths_)
            std::remove(path.c_str());
    }

private:
    std::set<std::string> paths_;
};

TEST_F(TokenFiles, HoldNumbersOfOneTwoOrFourBytes) {
    const std::string path = write(std::string("\x01\x02\xff\xff\x05\x00\x00\x00", 8));
    const auto bytes = TokenSource::open(path, TokenFormat::bytes);
    const auto u16 = TokenSource::open(path, TokenFormat::u16);
    const auto u32 = TokenSource::open(path, TokenFormat::u32);
    ASSERT_TRUE(bytes && u16 && u32);
    EXPECT_EQ(bytes->size(), 8);
    EXPECT_EQ((*bytes)[2], 255);
    EXPECT_EQ(u16->size(), 4);
    EXPECT_EQ((*u16)[0], 0x0201);
    EXPECT_EQ((*u16)[1], 0xffff);
    EXPECT_EQ(u32->size(), 2);
    EXPECT_EQ((*u32)[0], -1); // 0xffff0201 fits no token
    EXPECT_EQ((*u32)[1], 5);
}

TEST_F(TokenFiles, AreRefusedWhereTheyHoldNoWholeTokens) {
    EXPECT_EQ(TokenSource::open(write("abc"), TokenFormat::u16).error().code,
              sim::ErrorCode::bad_input);
    EXPECT_EQ(TokenSource::open(write(""), TokenFormat::bytes).error().code,
              sim::ErrorCode::bad_input);
    EXPECT_EQ(TokenSource::open("/no/such/file", TokenFormat::bytes).error().code,
              sim::ErrorCode::not_found);
    EXPECT_EQ(TokenSource::open(::testing::TempDir(), TokenFormat::bytes).error().what,
              "this is not a file");
}

TEST_F(TokenFiles, AreDealtOutToRanksInTurnAndComeRoundAgain) {
    const std::string path = write("abcdefghijklm"); // six samples of two, and a token after each
    std::string read;
    for (const Index rank : {0, 1}) {
        auto stream =
            SampleStream::make(*TokenSource::open(path, TokenFormat::bytes), 2, {rank, 2});
        ASSERT_TRUE(stream);
        EXPECT_EQ(stream->samples(), 6);
        std::vector<Token> tokens(4);
        std::vector<Token> targets(4);
        for (int step = 0; step < 2; ++step) {
            stream->next(tokens, targets);
            for (std::size_t i = 0; i < 4; ++i) {
                read += static_cast<char>(tokens[i]);
                EXPECT_EQ(targets[i], tokens[i] + 1);
            }
        }
        EXPECT_EQ(stream->position(), 4);
    }
    EXPECT_EQ(read,
              "abefijab"
              "cdghklcd");
}

TEST_F(TokenFiles, GoOnWhereTheyWereLeft) {
    const std::string path = write("abcdefghijklm");
    std::vector<Token> tokens(2);
    std::vector<Token> targets(2);
    auto stream = SampleStream::make(*TokenSource::open(path, TokenFormat::bytes), 2, {});
    ASSERT_TRUE(stream);
    for (int i = 0; i < 3; ++i)
        stream->next(tokens, targets);
    auto again = SampleStream::make(*TokenSource::open(path, TokenFormat::bytes), 2, {});
    ASSERT_TRUE(again);
    again->seek(stream->position());
    again->next(tokens, targets);
    EXPECT_EQ(tokens, (std::vector<Token>{'g', 'h'}));
}

TEST(SyntheticTokens, AreTheSameForASeedAndStayInTheVocabulary) {
    const TokenSource one = TokenSource::synthetic(1000, 7, 1);
    const TokenSource same = TokenSource::synthetic(1000, 7, 1);
    const TokenSource other = TokenSource::synthetic(1000, 7, 2);
    std::set<Token> seen;
    Index equal = 0;
    for (Index i = 0; i < 1000; ++i) {
        EXPECT_EQ(one[i], same[i]);
        seen.insert(one[i]);
        equal += one[i] == other[i] ? 1 : 0;
    }
    EXPECT_EQ(seen, (std::set<Token>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_LT(equal, 250);
}

TEST(SampleStream, RefusesWhatHoldsNoSampleAndRanksThatAreNone) {
    EXPECT_FALSE(SampleStream::make(TokenSource::synthetic(8, 5, 0), 8, {}));
    EXPECT_TRUE(SampleStream::make(TokenSource::synthetic(9, 5, 0), 8, {}));
    EXPECT_FALSE(SampleStream::make(TokenSource::synthetic(9, 5, 0), 8, {2, 2}));
    EXPECT_FALSE(SampleStream::make(TokenSource::synthetic(9, 5, 0), 0, {}));
}

} // namespace
} // namespace shardplan::test
