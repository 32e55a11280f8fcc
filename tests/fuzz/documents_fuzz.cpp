// Plan files, as `explain` reads them. Most changes are caught by the hash, so it is also made to
// agree, as somebody who edits a plan by hand is told to do.
#include "planner/cli/options.hpp"
#include "simulator/io/document.hpp"
#include "tests/fuzz/verbs.hpp"
#include "tests/support/measurements.hpp"

namespace {

using namespace shardplan;

std::string made(const std::string& model, const std::string& layout) {
    plan::cli::EstimateOptions options;
    options.scenario.model = model;
    options.scenario.cluster = "dgx-h100";
    options.scenario.gpus = 16;
    options.scenario.stack = "generic";
    options.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "64"}};
    options.layout = layout;
    options.output = "-";
    std::ostringstream out;
    std::ostringstream err;
    plan::cli::run_estimate(options, {out, err});
    return out.str();
}

fuzz::Outcome explain(const std::string& text) {
    plan::cli::ExplainOptions options;
    options.document = fuzz::as_file(text);
    return fuzz::run_verb(plan::cli::run_explain, options);
}

/// A plan with a run of it and a calibration attached.
std::string measured(const std::string& model, const std::string& layout) {
    auto document = sim::parse_document(made(model, layout), "made");
    if (!document) return "";
    document->measurements = {test::run_of_two(document->plans.front().layout)};
    document->calibrations.emplace_back();
    document->calibrations.back().entries.emplace_back();
    return sim::write_document(*document);
}

/// The text with the hash that the Error about the old one names.
fuzz::Outcome explain_rehashed(const std::string& text) {
    fuzz::Outcome first = explain(text);
    constexpr std::string_view mark = "write \"hash\": \"";
    const std::size_t named = first.err.find(mark);
    const std::size_t stands = text.find("\"hash\": \"");
    if (named == std::string::npos || stands == std::string::npos) {
        return first;
    }
    const std::size_t from = stands + 9;
    const std::size_t to = text.find('"', from);
    if (to == std::string::npos) {
        return first;
    }
    std::string mended = text;
    mended.replace(from, to - from, first.err.substr(named + mark.size(), 16));
    return explain(mended);
}

} // namespace

int main() {
    const std::vector<std::string> seeds = {made("llama-3-8b", "tp2,sp,pp2,mb1,zero1"),
                                            made("mixtral-8x7b", "tp2,sp,ep4,mb1,zero1"),
                                            measured("gpt2", "dp16,mb1")};
    return fuzz::run({{"documents", seeds, explain}, {"edited plans", seeds, explain_rehashed}});
}
