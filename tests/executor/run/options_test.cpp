#include "executor/run/program/options.hpp"

#include <gtest/gtest.h>

namespace shardplan::exec {
namespace {

sim::Result<ProgramOptions> parse(std::vector<std::string> words) { return parse_options(words); }

sim::Error error_of(std::vector<std::string> words) {
    const auto options = parse_options(words);
    EXPECT_FALSE(options);
    return options ? sim::Error{} : options.error();
}

TEST(ProgramOptions, AreReadInAnyOrderWithOrWithoutEqualsSign) {
    const auto options = parse({"--steps", "20", "plan.json", "--rate=3e-4", "--deterministic",
                                "--format", "u16", "--backend=threads", "--data", "t.bin"});
    ASSERT_TRUE(options) << to_text(options.error());
    EXPECT_EQ("plan.json", options->plan);
    EXPECT_EQ(20, options->steps);
    EXPECT_EQ(3e-4, options->rate);
    EXPECT_TRUE(options->deterministic);
    EXPECT_EQ(TokenFormat::u16, options->format);
    EXPECT_EQ(Backend::threads, options->backend);
    EXPECT_EQ("t.bin", options->data);
    EXPECT_EQ(0, options->ranks);
}

TEST(ProgramOptions, UnknownFlagNamesTheNearest) {
    const sim::Error error = error_of({"plan.json", "--step", "3"});
    EXPECT_EQ("--step", error.where);
    EXPECT_NE(std::string::npos, error.hint.find("--steps")) << error.hint;
}

TEST(ProgramOptions, BadValuesSayWhatToWrite) {
    EXPECT_EQ("write a whole number from 1 on", error_of({"p", "--steps", "0"}).hint);
    EXPECT_EQ("write a whole number from 1 on", error_of({"p", "--steps=ten"}).hint);
    EXPECT_EQ("write a whole number from 0 on", error_of({"p", "--seed", "-1"}).hint);
    EXPECT_EQ("--rate", error_of({"p", "--rate", "fast"}).where);
    EXPECT_EQ("--rate", error_of({"p", "--rate", "nan"}).where);
    EXPECT_EQ("--rate", error_of({"p", "--rate", "-1"}).where);
    EXPECT_NE(std::string::npos, error_of({"p", "--backend", "thread"}).hint.find("threads"));
    EXPECT_EQ("its value is missing", error_of({"p", "--data"}).what);
    EXPECT_EQ("it takes no value", error_of({"p", "--deterministic=yes"}).what);
    EXPECT_EQ("it stands there twice", error_of({"p", "--seed", "1", "--seed", "2"}).what);
}

TEST(ProgramOptions, OnePlanIsNamed) {
    EXPECT_EQ("PLAN", error_of({"--steps", "3"}).where);
    EXPECT_EQ("\"b.json\"", error_of({"a.json", "b.json"}).where);
    EXPECT_TRUE(parse({"--help"}));
}

TEST(ProgramOptions, WhatNeedsAnotherFlagSaysWhich) {
    EXPECT_EQ("it needs --measure FILE or --attach", error_of({"p", "--timeline"}).what);
    EXPECT_EQ("it needs --save DIR", error_of({"p", "--save-every", "2"}).what);
    EXPECT_EQ("it needs --save DIR", error_of({"p", "--resume"}).what);
}

TEST(ProgramOptions, HelpShowsEveryFlag) {
    const std::string text = usage();
    for (const char* flag : {"--backend", "--data", "--measure", "--save-every", "--sweep"}) {
        EXPECT_NE(std::string::npos, text.find(flag)) << flag;
    }
}

} // namespace
} // namespace shardplan::exec
