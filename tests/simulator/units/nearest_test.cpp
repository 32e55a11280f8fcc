#include "simulator/units/nearest.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {
namespace {

const std::vector<std::string> devices = {"A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM", "L40S",
                                          "MI300X"};

TEST(Nearest, AMisspeltNameFindsItsOriginal) {
    EXPECT_EQ(nearest_name("sequnece", {"sequence", "batch"}), "sequence");
    EXPECT_EQ(nearest_name("L4OS", devices), "L40S");
}

TEST(Nearest, CaseAndSeparatorsDoNotMatter) {
    EXPECT_EQ(nearest_name("h100_sxm 80gb", devices), "H100-SXM-80GB");
}

TEST(Nearest, AShortenedNameFindsTheLongOne) {
    EXPECT_EQ(nearest_name("h100", devices), "H100-SXM-80GB");
    EXPECT_EQ(nearest_name("hidden", {"vocab", "hidden_size"}), "hidden_size");
}

TEST(Nearest, SwappedLettersAreOneSlip) {
    EXPECT_EQ(nearest_name("pt", {"dp", "tp"}), "tp");
    EXPECT_FALSE(nearest_name("pt", {"dp", "ep"}));
}

TEST(Nearest, NothingCloseIsNoSuggestion) {
    EXPECT_FALSE(nearest_name("zebra", devices));
    EXPECT_FALSE(nearest_name("", devices));
    EXPECT_FALSE(nearest_name("x", std::vector<std::string>{}));
}

TEST(Nearest, AVeryLongNameCostsNothingAndFindsNothing) {
    EXPECT_FALSE(nearest_name(std::string(10'000'000, 'a'), devices));
}

TEST(Nearest, TheHintListsCandidatesWhenNoneIsClose) {
    EXPECT_EQ(nearest_hint("h10", devices), "did you mean \"H100-SXM-80GB\"?");
    EXPECT_EQ(nearest_hint("zebra", {"tp", "pp"}), "one of: tp, pp");
    const std::vector<std::string> many(20, "name");
    EXPECT_NE(nearest_hint("zebra", many).find("and 8 more"), std::string::npos);
    EXPECT_EQ(nearest_hint("zebra", std::vector<std::string>{}), "");
}

TEST(InQuotes, ShowsTextOnOneLineAndCutsBetweenCharacters) {
    EXPECT_EQ(in_quotes("a\nb\xFF"), "\"a?b?\"");
    EXPECT_EQ(in_quotes(std::string(60, 'a')), "\"" + std::string(60, 'a') + "\"");
    EXPECT_EQ(in_quotes(std::string(59, 'a') + "\u00B5m"), "\"" + std::string(59, 'a') + "...\"");
}

} // namespace
} // namespace shardplan::sim
