#include "simulator/io/document.hpp"

#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>
#include <unistd.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"
#include "tests/support/builders.hpp"
#include "tests/support/measurements.hpp"

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

Measurement run_of(const Document& document) {
    return test::run_of_two(document.plans.front().layout);
}

Calibration calibration_named(const std::string& id, double value) {
    Calibration out;
    out.id = id;
    out.machine = "here";
    CalibrationEntry entry;
    entry.path = "stack.time.launch";
    entry.value = value;
    entry.source = "a sweep";
    out.entries = {entry};
    return out;
}

/// A document in a file of its own.
class DocumentFileTest : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(write_document_file(path_, document_)); }
    void TearDown() override { std::remove(path_.c_str()); }

    Document document_ = small_document();
    std::string path_ = ::testing::TempDir() + "attached-" + std::to_string(::getpid()) + ".json";
};

TEST(Document, ComesBackEqualWithItsMeasurementsAndCalibrations) {
    Document document = small_document();
    document.measurements = {run_of(document), run_of(document)};
    document.calibrations = {calibration_named("mine", 1e-6)};
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, document);
}

TEST(Document, FromBeforeAFieldExistedIsStillRead) {
    std::string text = with(write_document(small_document()), ",\n  \"measurements\": []", "");
    const std::size_t at = text.find("\"hash\": \"") + 9;
    text.erase(at, 16);
    const auto json = JsonValue::parse(text, "old");
    ASSERT_TRUE(json);
    text.insert(at, content_hash(json->text())); // as the program then did
    const auto back = parse_document(text, "plan.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, small_document());
    EXPECT_FALSE(parse_document(with(text, "fastest", "slowest"), "plan.json"));
}

TEST(Document, RunOfALayoutThatNoPlanHasIsRefused) {
    Document document = small_document();
    document.measurements = {run_of(document), test::run_of_two("tp8,dp1,mb1")};
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().where, "plan.json: /measurements/1/layout");
}

TEST(Document, RunThatContradictsItselfIsRefusedByItsPlace) {
    Document document = small_document();
    document.measurements = {run_of(document)};
    document.measurements[0].per_rank.pop_back();
    const auto back = parse_document(write_document(document), "plan.json");
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().where, "plan.json: /measurements/0/per_rank");
}

TEST_F(DocumentFileTest, TakesRunsOneAfterTheOther) {
    const Measurement run = run_of(document_);
    ASSERT_FALSE(read_measurements_file(path_)) << "there is none yet";
    ASSERT_TRUE(attach_to_document_file(path_, run));
    ASSERT_TRUE(attach_to_document_file(path_, run));
    const auto back = read_document_file(path_);
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(back->scenario, document_.scenario);
    EXPECT_EQ(back->measurements, (std::vector{run, run}));
    const auto runs = read_measurements_file(path_);
    ASSERT_TRUE(runs);
    ASSERT_EQ(2U, runs->size());
    EXPECT_EQ(path_, runs->front().plan) << "its plan is the file, whatever it was called then";
}

TEST_F(DocumentFileTest, StaysAsItWasWhereARunCannotBeReadAgain) {
    Measurement run = run_of(document_);
    run.steps[0].loss = std::nan("");
    const auto attached = attach_to_document_file(path_, run);
    ASSERT_FALSE(attached);
    EXPECT_NE(attached.error().where.find("/measurements/0/steps/0/loss"), std::string::npos);
    const auto back = read_document_file(path_);
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, document_);
}

TEST_F(DocumentFileTest, TakesCalibrationsAndTheNewerOneOfAName) {
    ASSERT_FALSE(read_calibration_file(path_)) << "there is none yet";
    ASSERT_TRUE(attach_to_document_file(path_, calibration_named("mine", 1e-6)));
    ASSERT_TRUE(attach_to_document_file(path_, calibration_named("other", 2e-6)));
    ASSERT_TRUE(attach_to_document_file(path_, calibration_named("mine", 3e-6)));
    const auto back = read_document_file(path_);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->calibrations,
              (std::vector{calibration_named("other", 2e-6), calibration_named("mine", 3e-6)}));
    const auto last = read_calibration_file(path_);
    ASSERT_TRUE(last);
    EXPECT_EQ(*last, calibration_named("mine", 3e-6));
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
