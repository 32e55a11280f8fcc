#include "planner/cli/study.hpp"

#include <algorithm>
#include <iostream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "planner/cli/inputs.hpp"
#include "planner/search/plan.hpp"
#include "simulator/io/document.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// Whether the default batch was taken: then it follows the devices and the sequence.
bool batch_is_default(const sim::Scenario& scenario) {
    return std::any_of(scenario.assumptions.begin(), scenario.assumptions.end(),
                       [](const sim::Assumption& a) { return a.path == "job.global_batch"; });
}

} // namespace

sim::Result<Study> study_from(const std::string& document, std::int64_t plan,
                              const ScenarioOptions& options, const std::string& layout) {
    Study out;
    out.layout = layout;
    if (document.empty()) {
        auto scenario = scenario_from(options);
        if (!scenario) {
            return scenario.error();
        }
        out.scenario = std::move(*scenario);
    } else {
        auto file = sim::read_document_file(document);
        if (!file) {
            return file.error();
        }
        const auto count = static_cast<std::int64_t>(file->plans.size());
        if (plan < 1 || plan > count) {
            return sim::Error{
                sim::ErrorCode::bad_input, "--plan",
                fmt::format("{} holds {} plans, there is no plan {}", document, count, plan),
                fmt::format("write a number from 1 to {}", count)};
        }
        out.scenario = std::move(file->scenario);
        if (layout.empty()) {
            out.layout = file->plans[static_cast<std::size_t>(plan - 1)].layout;
        }
    }
    auto catalogue = sim::load_catalogue();
    if (!catalogue) {
        return catalogue.error();
    }
    out.catalogue = std::move(*catalogue);
    if (batch_is_default(out.scenario)) {
        out.batch = default_batch;
    }
    return out;
}

sim::Result<bool> find_layout(Study& study) {
    if (!study.layout.empty()) {
        return true;
    }
    const auto evaluator = sim::Evaluator::make(study.scenario);
    if (!evaluator) {
        return evaluator.error();
    }
    SearchOptions search;
    search.top = 1;
    search.objective = study.scenario.job.objective;
    const PlanSet set = plan(*evaluator, search);
    if (set.plans.empty()) {
        return false;
    }
    study.layout = set.plans.front().text;
    return true;
}

sim::Result<double> share_from(const std::string& text, std::string_view where) {
    const bool is_percent = !text.empty() && text.back() == '%';
    const std::string_view digits =
        std::string_view(text).substr(0, text.size() - (is_percent ? 1 : 0));
    const auto number = sim::parse_quantity(digits, sim::Dimension::scalar, where);
    if (!number) {
        return number.error();
    }
    if (!(*number > 0.0)) {
        return sim::Error{sim::ErrorCode::bad_input, std::string(where),
                          sim::in_quotes(text) + " is no share", "write for example 10% or 0.1"};
    }
    return is_percent ? *number / 100.0 : *number;
}

// Only the program's own standard error can be a terminal; tests write to strings.
ProgressBar::ProgressBar(const Console& console)
    : err_(console.err), shown_(&console.err == &std::cerr && isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
    if (drawn_) {
        err_ << "\r\x1b[K" << std::flush;
    }
}

void ProgressBar::report(const Progress& progress) {
    const int percent = static_cast<int>(progress.fraction * 100.0);
    if (!shown_ || percent == percent_) {
        return;
    }
    percent_ = percent;
    drawn_ = true;
    constexpr int cells = 30;
    const int full = cells * percent / 100;
    err_ << fmt::format("\r{} [{:=<{}}{: <{}}] {}\x1b[K", progress.phase, "", full, "",
                        cells - full, progress.message)
         << std::flush;
}

} // namespace shardplan::plan::cli
