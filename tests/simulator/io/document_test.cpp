#include "simulator/io/document.hpp"

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

Document small_document() {
    Document document;
    document.tool_version = "0.1.0";
    const auto stack = load_stack("generic");
    EXPECT_TRUE(stack);
    document.scenario = test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(8192, 64),
                                       stack ? *stack : StackProfile{});
    PlanEntry entry;
    entry.layout = "tp2,sp,dp4,mb1,zero1";
    entry.headline.margin = Bytes(-1.5);
    entry.headline.step_time = Seconds(0.1);
    entry.reason = "fastest";
    document.plans.push_back(entry);
    return document;
}

/// The text with the first `from` replaced.
std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(Document, ComesBackEqualFromItsText) {
    const Document document = small_document();
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, document);
}

TEST(Document, ChangedByHandIsRefusedWithTheHashItShouldHave) {
    const std::string text = write_document(small_document());
    const auto changed = parse_document(with(text, "fastest", "slowest"), "plan.json");
    ASSERT_FALSE(changed);
    EXPECT_EQ(changed.error().where, "plan.json: /hash");
    const std::string& hint = changed.error().hint;
    const std::size_t at = hint.find("\"hash\": \"");
    ASSERT_NE(at, std::string::npos) << hint;
    const std::string hash = hint.substr(at + 9, 16);

    const std::size_t old = text.find("\"hash\": \"") + 9;
    std::string accepted = with(text, "fastest", "slowest");
    accepted.replace(old, 16, hash);
    EXPECT_TRUE(parse_document(accepted, "plan.json"));
}

TEST(Document, SpacesAndLineEndsDoNotMatterToTheHash) {
    std::string text = write_document(small_document());
    std::string wide;
    for (const char c : text) {
        wide += c == '\n' ? "\r\n   " : std::string(1, c);
    }
    EXPECT_TRUE(parse_document(wide, "plan.json"));
}

TEST(Document, ModelConfigIsToldFromADocument) {
    const auto config = parse_document(R"({"model_type": "llama"})", "config.json");
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().what.find("model config"), std::string::npos);
    EXPECT_NE(config.error().hint.find("plan"), std::string::npos);
}

TEST(Document, LaterFormatIsRefusedByItsNumber) {
    const auto later = parse_document(
        with(write_document(small_document()), "\"format_version\": 1", "\"format_version\": 9"),
        "plan.json");
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().code, ErrorCode::unsupported);
    EXPECT_NE(later.error().what.find("9"), std::string::npos);
}

TEST(Document, LayoutThatDoesNotFillTheClusterIsRefused) {
    Document document = small_document();
    document.plans[0].layout = "tp2,sp,dp3,mb1,zero1";
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().where, "plan.json: /plans/0/layout");
}

TEST(Document, WithoutPlansItIsRefused) {
    Document document = small_document();
    document.plans.clear();
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().where, "plan.json: /plans");
}

TEST(Document, HeadlineIsOfTheDecidingClass) {
    Estimate estimate;
    estimate.classes.resize(2);
    estimate.classes[1].reserved.value = Bytes(5.0);
    estimate.deciding_class = 1;
    estimate.margin = Bytes(-2.0);
    estimate.verdict = Verdict::does_not_fit;
    const Headline headline = headline_of(estimate);
    EXPECT_EQ(headline.peak, Bytes(5.0));
    EXPECT_EQ(headline.margin, Bytes(-2.0));
    EXPECT_EQ(headline.verdict, Verdict::does_not_fit);
}

} // namespace
} // namespace shardplan::sim
