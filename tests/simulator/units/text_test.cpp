#include "simulator/units/text.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <regex.h>

namespace shardplan::sim {
namespace {

double parsed(std::string_view text, Dimension dimension) {
    const auto value = parse_quantity(text, dimension, "test");
    EXPECT_TRUE(value) << text << ": " << (value ? "" : to_text(value.error()));
    return value ? *value : std::nan("");
}

Error refused(std::string_view text, Dimension dimension) {
    const auto value = parse_quantity(text, dimension, "cluster.json: /memory");
    EXPECT_FALSE(value) << text;
    if (value) {
        return {};
    }
    EXPECT_EQ(value.error().where, "cluster.json: /memory");
    EXPECT_FALSE(value.error().what.empty());
    EXPECT_FALSE(value.error().hint.empty()) << text;
    return value.error();
}

TEST(Units, BinaryAndDecimalBytesDiffer) {
    EXPECT_EQ(parsed("80 GiB", Dimension::bytes), 85899345920.0);
    EXPECT_EQ(parsed("80 GB", Dimension::bytes), 80e9);
    EXPECT_EQ(parsed("1 KiB", Dimension::bytes), 1024.0);
    EXPECT_EQ(parsed("1 kB", Dimension::bytes), 1000.0);
    EXPECT_EQ(parsed("2 TiB", Dimension::bytes), 2199023255552.0);
}

TEST(Units, BitsPerSecondAreEighthsOfBytesPerSecond) {
    EXPECT_EQ(parsed("400 Gbit/s", Dimension::bandwidth), 50e9);
    EXPECT_EQ(parsed("400 Gbps", Dimension::bandwidth), 50e9);
    EXPECT_EQ(parsed("50 GB/s", Dimension::bandwidth), 50e9);
    EXPECT_EQ(parsed("1 GiB/s", Dimension::bandwidth), 1073741824.0);
}

TEST(Units, TimesGoFromNanosecondsToDays) {
    EXPECT_EQ(parsed("250 ns", Dimension::seconds), 250e-9);
    EXPECT_EQ(parsed("10 us", Dimension::seconds), 10e-6);
    EXPECT_EQ(parsed("10 \u00B5s", Dimension::seconds), 10e-6);
    EXPECT_EQ(parsed("1.5 h", Dimension::seconds), 5400.0);
    EXPECT_EQ(parsed("2 d", Dimension::seconds), 172800.0);
    EXPECT_EQ(parsed("3 min", Dimension::seconds), 180.0);
}

TEST(Units, RatesOfComputationHaveTwoSpellings) {
    EXPECT_EQ(parsed("989 TFLOP/s", Dimension::flop_rate), 989e12);
    EXPECT_EQ(parsed("989 TFLOPS", Dimension::flop_rate), 989e12);
    EXPECT_EQ(parsed("1.979 PFLOP/s", Dimension::flop_rate), 1.979e15);
    EXPECT_EQ(parsed("6.3 ZFLOP", Dimension::flops), 6.3e21);
    EXPECT_EQ(parsed("0.7 kW", Dimension::watts), 700.0);
}

TEST(Units, DecimalUnitsRoundOnlyOnce) {
    // 3.35 * 1e12 and 4.8 * 1e-6 in doubles would each round twice.
    EXPECT_EQ(parsed("3.35 TB/s", Dimension::bandwidth), 3.35e12);
    EXPECT_EQ(parsed("4.8 us", Dimension::seconds), 4.8e-6);
    EXPECT_EQ(parsed("3.35e3 GB/s", Dimension::bandwidth), 3.35e12);
    EXPECT_EQ(parsed("0.1 ms", Dimension::seconds), 1e-4);
}

TEST(Units, SpaceBetweenNumberAndUnitIsFree) {
    EXPECT_EQ(parsed("80GiB", Dimension::bytes), parsed("  80   GiB ", Dimension::bytes));
    EXPECT_EQ(parsed("5EFLOP", Dimension::flops), 5e18);
    EXPECT_EQ(parsed("5e3FLOP", Dimension::flops), 5000.0);
    EXPECT_EQ(parsed(".5 GB", Dimension::bytes), 5e8);
}

TEST(Units, BareNumberIsRefusedWithASuggestion) {
    const Error error = refused("80", Dimension::bytes);
    EXPECT_EQ(error.code, ErrorCode::bad_input);
    EXPECT_EQ(error.what, "80 has no unit");
    EXPECT_NE(error.hint.find("\"80 GiB\""), std::string::npos) << error.hint;
    EXPECT_NE(error.hint.find("KiB, MiB"), std::string::npos) << error.hint;
}

TEST(Units, ZeroNeedsNoUnit) {
    for (const auto* text : {"0", "0.0", "-0", "0e7", " 0 "}) {
        EXPECT_EQ(parsed(text, Dimension::seconds), 0.0) << text;
    }
}

TEST(Units, PlainNumbersHaveNoUnit) {
    EXPECT_EQ(parsed("0.25", Dimension::scalar), 0.25);
    EXPECT_EQ(parsed("-3e-2", Dimension::scalar), -0.03);
    EXPECT_NE(refused("5 GB", Dimension::scalar).hint.find("write 5"), std::string::npos);
}

TEST(Units, UnitOfAnotherKindIsNamedAsSuch) {
    const Error error = refused("80 GB/s", Dimension::bytes);
    EXPECT_NE(error.what.find("GB/s stands for a bandwidth"), std::string::npos) << error.what;
    EXPECT_NE(refused("10 us", Dimension::bandwidth).what.find("a time"), std::string::npos);
}

TEST(Units, WrongLetterCaseIsRefusedWithTheRightOne) {
    EXPECT_NE(refused("80 gib", Dimension::bytes).hint.find("did you mean GiB?"),
              std::string::npos);
    EXPECT_NE(refused("10 MS", Dimension::seconds).hint.find("ms"), std::string::npos);
    EXPECT_NE(refused("989 tflop/s", Dimension::flop_rate).hint.find("TFLOP/s"), std::string::npos);
}

TEST(Units, SmallBeforeASlashMayBeBitsOrBytesAndBothAreProposed) {
    const std::string hint = refused("400 Gb/s", Dimension::bandwidth).hint;
    EXPECT_NE(hint.find("did you mean GB/s or Gbit/s?"), std::string::npos) << hint;
}

TEST(Units, NumbersThatAreNotFiniteAreRefused) {
    for (const auto* text : {"nan", "inf", "-inf", "NaN GiB", "infinity B", "1e999 B", "1e400 GiB",
                             "1e-999 B", "1e99999999999999999999 B", "1e300 TiB"}) {
        refused(text, Dimension::bytes);
    }
    EXPECT_TRUE(std::isfinite(parsed("1e290 TiB", Dimension::bytes)));
}

TEST(Units, WhatIsNotANumberIsRefused) {
    for (const auto* text : {"", " ", "GiB", "fast", "-", ".", "+5 GiB", "1,024 GiB", "1_000 GiB",
                             "1 024 GiB", "1.2.3 GiB", "--1 GiB", "0x10 GiB", "5 e3 GiB"}) {
        refused(text, Dimension::bytes);
    }
    EXPECT_NE(refused("1,024 GiB", Dimension::bytes).hint.find("without separators"),
              std::string::npos);
}

TEST(Units, MessagesStayShortAndOnOneLine) {
    const Error error = refused(std::string(100000, '7') + "\nx", Dimension::bytes);
    EXPECT_LT(to_text(error).size(), 600U);
    EXPECT_EQ(to_text(error).find('\n'), std::string::npos);
}

TEST(Units, AmountsAreShownWithThreeDigits) {
    EXPECT_EQ(to_text(Bytes(85899345920.0)), "80.0 GiB");
    EXPECT_EQ(to_text(Bytes(4015259648.0)), "3.74 GiB");
    EXPECT_EQ(to_text(Bytes(5.0)), "5 B");
    EXPECT_EQ(to_text(Bytes(0.0)), "0 B");
    EXPECT_EQ(to_text(Bytes(-1536.0)), "-1.50 KiB");
    EXPECT_EQ(to_text(Bandwidth(450e9)), "450 GB/s");
    EXPECT_EQ(to_text(FlopRate(989.4e12)), "989 TFLOP/s");
    EXPECT_EQ(to_text(Flops(6.3e21)), "6.30 ZFLOP");
    EXPECT_EQ(to_text(Seconds(149.1e-6)), "149 us");
    EXPECT_EQ(to_text(Seconds(0.25)), "250 ms");
    EXPECT_EQ(to_text(Seconds(90.0)), "90.0 s");
    EXPECT_EQ(to_text(Seconds(600.0)), "10.0 min");
    EXPECT_EQ(to_text(Seconds(36000.0)), "10.0 h");
    EXPECT_EQ(to_text(Seconds(10.0 * 86400.0)), "10.0 d");
    EXPECT_EQ(format_quantity(700.0, Dimension::watts), "700 W");
    EXPECT_EQ(format_quantity(0.333333, Dimension::scalar), "0.333");
}

TEST(Units, RoundingNeverShowsAThousandOfASmallerUnit) {
    EXPECT_EQ(to_text(Seconds(999.7e-6)), "1.00 ms");
    EXPECT_EQ(to_text(Bandwidth(999.96e9)), "1.00 TB/s");
    EXPECT_EQ(to_text(Bytes(1023.9 * 1024.0 * 1024.0)), "1.00 GiB");
    EXPECT_EQ(to_text(Bytes(1010.0 * 1024.0 * 1024.0)), "1010 MiB");
    EXPECT_EQ(to_text(Seconds(9.996)), "10.0 s");
}

TEST(Units, WhatIsNotFiniteIsShownInWords) {
    EXPECT_EQ(to_text(Seconds(std::numeric_limits<double>::infinity())), "infinite");
    EXPECT_EQ(to_text(Bytes(-std::numeric_limits<double>::infinity())), "-infinite");
    EXPECT_EQ(to_text(Bytes(std::nan(""))), "not a number");
}

TEST(Units, ExactTextPicksAUnitThatReadsWell) {
    EXPECT_EQ(format_exact(85899345920.0, Dimension::bytes), "80 GiB");
    EXPECT_EQ(format_exact(80e9, Dimension::bytes), "80 GB");
    EXPECT_EQ(format_exact(3.35e12, Dimension::bandwidth), "3.35 TB/s");
    EXPECT_EQ(format_exact(10e-6, Dimension::seconds), "10 us");
    EXPECT_EQ(format_exact(989e12, Dimension::flop_rate), "989 TFLOP/s");
    EXPECT_EQ(format_exact(0.0, Dimension::bytes), "0 B");
    EXPECT_EQ(format_exact(0.1, Dimension::scalar), "0.1");
}

constexpr std::array<Dimension, 7> all_dimensions = {
    Dimension::scalar,    Dimension::bytes,     Dimension::seconds, Dimension::flops,
    Dimension::bandwidth, Dimension::flop_rate, Dimension::watts};

TEST(Units, ExactTextReadsBackToTheSameDouble) {
    std::mt19937_64 random(20240611);
    std::uniform_real_distribution<double> digits(0.1, 10.0);
    std::uniform_int_distribution<int> exponent(-30, 30);
    for (int i = 0; i < 2000; ++i) {
        const double value = digits(random) * std::pow(10.0, exponent(random));
        for (const Dimension dimension : all_dimensions) {
            EXPECT_EQ(parsed(format_exact(value, dimension), dimension), value);
            EXPECT_EQ(parsed(format_exact(-value, dimension), dimension), -value);
        }
    }
    for (const double value : {std::numeric_limits<double>::max(), 5e-324, 0x1p-1022, 0x1p53}) {
        for (const Dimension dimension : all_dimensions) {
            EXPECT_EQ(parsed(format_exact(value, dimension), dimension), value);
        }
    }
}

/// POSIX extended expressions agree with ECMA 262 on the few signs the patterns use.
bool matches(const std::string& pattern, const std::string& text) {
    regex_t compiled{};
    EXPECT_EQ(regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB), 0) << pattern;
    const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&compiled);
    return found;
}

TEST(Units, ThePatternForSchemasAgreesWithTheParser) {
    const std::array<const char*, 24> texts = {
        "80 GiB",  "80GiB",  "0",     "0.0",    "-0",     "80",     "80 gib", "",
        "5 us",    ".5 h",   "5. s",  "5EFLOP", "+5 GiB", "1,0 B",  "5 GB/s", "1e3 kW",
        "400Gbps", "5 e3 B", "1e3 B", "-1 B",   "0.25",   " 7 ms ", "nan",    "3 TFLOPS"};
    for (const Dimension dimension : all_dimensions) {
        const std::string pattern = quantity_pattern(dimension);
        for (const auto* text : texts) {
            EXPECT_EQ(matches(pattern, text), parse_quantity(text, dimension, "").has_value())
                << text << " against " << pattern;
        }
    }
}

TEST(Units, AcceptedUnitsAreAccepted) {
    for (const Dimension dimension : all_dimensions) {
        std::string names(accepted_units(dimension));
        while (!names.empty()) {
            const auto comma = names.find(", ");
            const std::string unit = names.substr(0, comma);
            EXPECT_GT(parsed("3 " + unit, dimension), 0.0);
            names = comma == std::string::npos ? "" : names.substr(comma + 2);
        }
    }
}

TEST(Units, LongCountsAreGroupedByThreeDigits) {
    EXPECT_EQ(group_digits(8030261248), "8 030 261 248");
    EXPECT_EQ(group_digits(0), "0");
    EXPECT_EQ(group_digits(999), "999");
    EXPECT_EQ(group_digits(-1000), "-1 000");
    EXPECT_EQ(group_digits(std::numeric_limits<std::int64_t>::min()), "-9 223 372 036 854 775 808");
}

TEST(Units, BytesOverBandwidthAreSeconds) {
    const Seconds time = Bytes(67108864.0) / Bandwidth(450e9);
    EXPECT_EQ(to_text(time), "149 us");
    static_assert(std::is_same_v<decltype(Bytes(1) / Bytes(2)), double>);
}

} // namespace
} // namespace shardplan::sim
