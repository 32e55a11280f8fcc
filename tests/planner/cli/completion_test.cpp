#include "planner/cli/completion.hpp"

#include <cstdio>

#include <gtest/gtest.h>

#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

std::vector<CompletedVerb> small_table() {
    return {
        {"plan",
         "rank the ways, that's all",
         {{"--model", "what", ValueKind::model}, {"--json", "one value", ValueKind::none}},
         {}},
        {"list", "what is built in", {{"--json", "one value", ValueKind::none}}, {ValueKind::list}},
    };
}

/// What bash offers for a command line, its words separated by blanks; the last one is completed.
std::string offered(const std::string& script, const std::string& words, int last) {
    const test::TemporaryFile file("completion.bash", script);
    const std::string command = "bash -c 'source " + file.path() + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(last) +
                                "; _shardplan; echo \"${COMPREPLY[*]}\"'";
    std::string out;
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) {
        return "no shell";
    }
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
        out += buffer;
    }
    ::pclose(pipe);
    return out;
}

TEST(Completion, BashOffersVerbsFlagsAndWhatCanBeListed) {
    const auto script = completion_script(small_table(), "bash");
    ASSERT_TRUE(script);
    EXPECT_EQ(offered(*script, "shardplan p", 1), "plan\n");
    EXPECT_EQ(offered(*script, "shardplan plan --m", 2), "--model\n");
    EXPECT_EQ(offered(*script, "shardplan list st", 2), "stacks\n");
}

TEST(Completion, EveryShellKnowsEveryVerbAndFlag) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const auto script = completion_script(small_table(), shell);
        ASSERT_TRUE(script) << shell;
        for (const char* word : {"plan", "list", "model", "json"}) {
            EXPECT_NE(script->find(word), std::string::npos) << shell << " " << word;
        }
    }
}

TEST(Completion, TableIsThereForPrograms) {
    const auto json = sim::JsonValue::parse(verb_table_json(small_table()), "table");
    ASSERT_TRUE(json);
    const sim::JsonValue plan = json->find("verbs")->at(0);
    EXPECT_EQ(*plan.find("name")->as_string(), "plan");
    EXPECT_TRUE(*plan.find("flags")->at(0).find("takes_value")->as_bool());
    EXPECT_FALSE(*plan.find("flags")->at(1).find("takes_value")->as_bool());
}

TEST(Completion, AnotherShellIsRefusedWithTheNearest) {
    const auto script = completion_script(small_table(), "bsh");
    ASSERT_FALSE(script);
    EXPECT_NE(script.error().hint.find("bash"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan::cli
