#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/cli/inputs.hpp"
#include "planner/cli/layout_input.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_calendar.hpp"
#include "planner/cli/progress_bar.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "planner/search/plan.hpp"
#include "planner/search/remedies.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// A plan of the ranking with its whole estimate and why it stands where it stands.
struct Ranked {
    const Plan* plan = nullptr;
    sim::Estimate estimate;
    std::string reason;
};

std::string words(std::string_view name) {
    std::string out(name);
    std::replace(out.begin(), out.end(), '_', ' ');
    return out;
}

/// The kind of time a plan loses most by against another.
std::string where_it_loses(const sim::StepTime& plan, const sim::StepTime& best) {
    auto worst = sim::TimeKind::gemm;
    double loss = 0.0;
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        const auto kind = static_cast<sim::TimeKind>(k);
        const double more = (plan.exposed[kind] - best.exposed[kind]).value();
        if (more > loss) {
            loss = more;
            worst = kind;
        }
    }
    return loss > 0.0
               ? fmt::format("{} more {}", sim::to_text(sim::Seconds(loss)), words(name_of(worst)))
               : "";
}

std::string best_reason(const sim::Estimate& best, sim::Objective objective) {
    auto largest = sim::TimeKind::gemm;
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        const auto kind = static_cast<sim::TimeKind>(k);
        const bool is_product = kind == sim::TimeKind::gemm || kind == sim::TimeKind::attention;
        const bool more = best.time.exposed[kind] > best.time.exposed[largest];
        if (!is_product && (more || largest == sim::TimeKind::gemm)) {
            largest = kind;
        }
    }
    const double total = best.time.total.value.value();
    const double share = total > 0.0 ? best.time.exposed[largest].value() / total : 0.0;
    const char* rank = objective == sim::Objective::cost       ? "cheapest"
                       : objective == sim::Objective::headroom ? "most headroom"
                                                               : "fastest";
    return fmt::format("{}; loses most to {} ({})", rank, words(name_of(largest)), percent(share));
}

std::string reason_of(const sim::Estimate& plan, const sim::Estimate& best) {
    const double ratio = best.time.total.value.value() > 0.0
                             ? plan.time.total.value / best.time.total.value - 1.0
                             : 0.0;
    const std::string lost = ratio > 0.0 ? where_it_loses(plan.time, best.time) : "";
    std::string out =
        ratio < 0.0 ? fmt::format("{:.1f} % faster, {}", -100.0 * ratio, name_of(plan.verdict))
                    : fmt::format("{:+.1f} %", 100.0 * ratio);
    if (!lost.empty()) {
        out += ": " + lost;
    }
    const double saved = (plan.margin - best.margin).value() / 0x1p30;
    if (std::abs(saved) >= 1.0) {
        out += fmt::format(", {:.1f} GiB {}", std::abs(saved), saved > 0.0 ? "less" : "more");
    }
    return out;
}

std::vector<Ranked> rank(const PlanSet& set, const sim::Evaluator& evaluator,
                         sim::Objective objective) {
    std::vector<Ranked> out;
    sim::Workspace workspace;
    for (const Plan& plan : set.plans) {
        Ranked ranked;
        ranked.plan = &plan;
        evaluator.evaluate(plan.layout, workspace, ranked.estimate);
        evaluator.annotate(plan.layout, ranked.estimate);
        out.push_back(std::move(ranked));
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].reason = i == 0 ? best_reason(out[0].estimate, objective)
                               : reason_of(out[i].estimate, out[0].estimate);
    }
    return out;
}

void print_ranking(const Console& console, const std::vector<Ranked>& ranking) {
    print_heading(console.out, "Ranked", console.color);
    Table table({{"", Align::right},
                 {"layout", Align::left},
                 {"verdict", Align::left},
                 {"step", Align::right},
                 {"tokens/s/GPU", Align::right},
                 {"MFU", Align::right},
                 {"to spare", Align::right},
                 {"why", Align::left}});
    for (std::size_t i = 0; i < ranking.size(); ++i) {
        const sim::Estimate& e = ranking[i].estimate;
        table.add({std::to_string(i + 1),
                   {ranking[i].plan->text, Style::strong},
                   {std::string(name_of(e.verdict)), style_of(e.verdict)},
                   sim::to_text(e.time.total.value),
                   scaled_count(e.tokens_per_second_per_device),
                   percent(e.mfu),
                   fmt::format("{:.1f} GiB", e.margin.value() / 0x1p30),
                   {ranking[i].reason, Style::faint}});
    }
    table.print(console.out, console.color, 2);
}

void print_counts(const Console& console, const PlanSet& set) {
    const SearchCounts& c = set.counts;
    console.out << fmt::format(
        "\n{} layouts: {} legal; {} fit, {} borderline, {} do not fit\n"
        "legal {} = cut by memory {} + by time {} + by dominance {} + scored {}\n",
        sim::group_digits(c.candidates), sim::group_digits(c.legal), sim::group_digits(c.fits),
        sim::group_digits(c.borderline), sim::group_digits(c.does_not_fit),
        sim::group_digits(c.legal), sim::group_digits(c.cut_by_memory),
        sim::group_digits(c.cut_by_time), sim::group_digits(c.cut_by_dominance),
        sim::group_digits(c.scored));
    if (set.folded > 0) {
        console.out << fmt::format(
            "{} left out of the ranking: like one above but for schedule, recomputation, offload, "
            "kind of cp or rank order, within 1 %, with no more memory to spare\n",
            set.folded);
    }
    if (set.stopped) {
        console.out << "the search was stopped: this covers a part of the space\n";
    }
}

/// The rules in words, as the plainest layout breaks them: data parallel over all devices.
void print_plainest(const Console& console, const sim::Evaluator& evaluator) {
    sim::Layout layout;
    layout.dp = static_cast<std::uint32_t>(sim::device_count(evaluator.scenario().cluster));
    layout.shard = evaluator.scenario().stack.default_shard;
    const auto refusals =
        sim::check_layout(evaluator.scenario(), evaluator.resolved(), layout, evaluator.tables());
    if (!refusals.empty()) {
        console.out << "for example " << sim::to_text(layout, evaluator.tables()) << ":\n";
        print_refusals(console.out, refusals, console.color);
    }
}

/// How many ways of trading time for memory there are, and the ends.
void print_front(const Console& console, const PlanSet& set) {
    if (set.front.size() < 2) {
        return;
    }
    const auto gib = [](const Plan& plan) {
        return (plan.score.usable - plan.score.peak).value() / 0x1p30;
    };
    const Plan& fast = set.front.front();
    const Plan& small =
        *std::max_element(set.front.begin(), set.front.end(),
                          [&](const Plan& a, const Plan& b) { return gib(a) < gib(b); });
    console.out << fmt::format(
        "{} layouts trade step time for memory, from {} with {:.1f} GiB to spare to {} with {:.1f} "
        "GiB ({}); --json lists them\n",
        set.front.size(), sim::to_text(fast.score.step_time), gib(fast),
        sim::to_text(small.score.step_time), gib(small), small.text);
}

/// Single changes that make it fit, cheapest first.
void print_remedies(const Console& console, const std::vector<Remedy>& found) {
    if (found.empty()) {
        console.out << "\nno single change that was tried makes it fit\n";
        return;
    }
    print_heading(console.out, "Fits with one change", console.color);
    Table table({{"change", Align::left},
                 {"type", Align::left},
                 {"best layout", Align::left},
                 {"step", Align::right},
                 {"GPU time per token", Align::right}});
    for (const Remedy& remedy : found) {
        table.add({{remedy.change, Style::strong},
                   remedy.setting.starts_with("--layout ") ? "that layout" : remedy.setting,
                   remedy.layout,
                   sim::to_text(remedy.step_time),
                   fmt::format("{:+.0f} %", 100.0 * remedy.price)});
    }
    table.print(console.out, console.color, 2);
    console.out << "  compared with the closest layout above, as if it fitted\n";
}

/// What to say when nothing fits: which kinds of tensor are in the way, and how near it came.
void print_no_plan(const Console& console, const sim::Evaluator& evaluator, const PlanSet& set,
                   const std::vector<Remedy>& remedies) {
    print_given(console, evaluator);
    console.out << '\n' << styled("no layout fits", Style::bad, console.color) << '\n';
    if (set.counts.legal == 0) {
        console.out << "no layout is legal; refused by rule:\n";
        Table table({{"layouts", Align::right}, {"field", Align::left}, {"rule", Align::left}});
        for (const RefusedBy& refused : set.counts.refused) {
            table.add({sim::group_digits(refused.layouts), refused.field, refused.rule});
        }
        table.print(console.out, console.color, 2);
        print_plainest(console, evaluator);
        return;
    }
    for (const Reason& reason : set.reasons) {
        console.out << fmt::format("  {} layouts fail with {} as the largest term\n",
                                   sim::group_digits(reason.layouts),
                                   words(name_of(reason.deciding)));
    }
    if (!set.closest.empty()) {
        print_heading(console.out, "Closest", console.color);
        Table table(
            {{"layout", Align::left}, {"too much", Align::right}, {"largest term", Align::left}});
        for (const NearMiss& miss : set.closest) {
            table.add({{miss.plan.text, Style::strong},
                       fmt::format("{:.1f} GiB", miss.shortfall.value() / 0x1p30),
                       words(name_of(miss.plan.score.deciding))});
        }
        table.print(console.out, console.color, 2);
    }
    print_remedies(console, remedies);
}

void write_remedies(sim::JsonWriter& json, const std::vector<Remedy>& remedies) {
    json.begin_array("fits_with_one_change");
    for (const Remedy& remedy : remedies) {
        json.begin_object()
            .member("change", remedy.change)
            .member("setting", remedy.setting)
            .member("layout", remedy.layout)
            .member("step_time_s", remedy.step_time.value())
            .member("devices", remedy.devices)
            .member("price_per_token", remedy.price)
            .end_object();
    }
    json.end_array();
}

/// The layouts that nothing else beats in step time, memory to spare and cost at once.
void write_front(sim::JsonWriter& json, const PlanSet& set) {
    json.begin_array("front");
    for (const Plan& plan : set.front) {
        json.begin_object()
            .member("layout", plan.text)
            .member("step_time_s", plan.score.step_time.value())
            .member("to_spare_bytes", (plan.score.usable - plan.score.peak).value())
            .member("money_per_million_tokens", plan.score.money_per_million_tokens)
            .end_object();
    }
    json.end_array();
}

void write_counts(sim::JsonWriter& json, const PlanSet& set) {
    const SearchCounts& c = set.counts;
    json.begin_object("counts")
        .member("candidates", c.candidates)
        .member("legal", c.legal)
        .member("scored", c.scored)
        .member("cut_by_memory", c.cut_by_memory)
        .member("cut_by_time", c.cut_by_time)
        .member("cut_by_dominance", c.cut_by_dominance)
        .member("folded", set.folded)
        .member("fits", c.fits)
        .member("borderline", c.borderline)
        .member("does_not_fit", c.does_not_fit);
    json.begin_array("refused");
    for (const RefusedBy& refused : c.refused) {
        json.begin_object()
            .member("rule", refused.rule)
            .member("field", refused.field)
            .member("layouts", refused.layouts)
            .end_object();
    }
    json.end_array().end_object();
    json.begin_array("does_not_fit_because");
    for (const Reason& reason : set.reasons) {
        json.begin_object()
            .member("term", name_of(reason.deciding))
            .member("layouts", reason.layouts)
            .end_object();
    }
    json.end_array().begin_array("closest");
    for (const NearMiss& miss : set.closest) {
        json.begin_object()
            .member("layout", miss.plan.text)
            .member("shortfall_bytes", miss.shortfall.value())
            .member("term", name_of(miss.plan.score.deciding))
            .end_object();
    }
    json.end_array().member("stopped", set.stopped);
}

void write_json(const Console& console, const sim::Evaluator& evaluator, const PlanSet& set,
                const std::vector<Ranked>& ranking, const std::optional<Calendar>& calendar,
                const std::vector<Remedy>& remedies) {
    sim::JsonWriter json;
    json.begin_object();
    write_scenario_summary(json, evaluator);
    json.begin_array("plans");
    for (const Ranked& ranked : ranking) {
        json.begin_object().member("reason", ranked.reason).key("estimate");
        write_estimate(json, {ranked.plan->text, ranked.estimate});
        json.end_object();
    }
    json.end_array();
    write_calendar(json, calendar);
    write_counts(json, set);
    write_front(json, set);
    write_remedies(json, remedies);
    std::vector<sim::Warning> warnings;
    if (!ranking.empty()) {
        warnings = all_warnings(evaluator, ranking.front().plan->layout, ranking.front().estimate);
    }
    write_notes(json, all_assumptions(evaluator), warnings);
    json.end_object();
    console.out << json.str();
}

void print_text(const Console& console, const sim::Evaluator& evaluator, const PlanSet& set,
                const std::vector<Ranked>& ranking, const std::optional<Calendar>& calendar,
                const std::vector<Remedy>& remedies) {
    if (ranking.empty()) {
        print_no_plan(console, evaluator, set, remedies);
    } else {
        const Ranked& best = ranking.front();
        print_first_screen(console, evaluator, {best.plan->text, best.estimate});
        print_ranking(console, ranking);
    }
    print_calendar(console, calendar);
    print_counts(console, set);
    print_front(console, set);
    if (!ranking.empty()) {
        const Ranked& best = ranking.front();
        print_warnings(console.out, all_warnings(evaluator, best.plan->layout, best.estimate),
                       console.color);
    }
    print_assumptions(console.out, all_assumptions(evaluator), console.color);
}

sim::Document document_of(const sim::Evaluator& evaluator, const std::vector<Ranked>& ranking) {
    sim::Document document;
    document.tool_version = SHARDPLAN_VERSION;
    document.scenario = evaluator.scenario();
    for (const Ranked& ranked : ranking) {
        document.plans.push_back(
            {ranked.plan->text, sim::headline_of(ranked.estimate), ranked.reason});
    }
    return document;
}

/// Ranking by cost is asked for and nothing says what a device costs.
bool scenario_without_prices(const sim::Scenario& scenario) {
    const auto& groups = scenario.cluster.node_groups;
    return scenario.job.objective == sim::Objective::cost &&
           std::any_of(groups.begin(), groups.end(), [](const sim::NodeGroup& group) {
               return group.price_per_device_hour <= 0.0;
           });
}

} // namespace

int run_plan(const PlanOptions& options, const Console& console) {
    if (options.top < 1) {
        return fail(console, {sim::ErrorCode::bad_input, "--top", "at least one plan must be kept",
                              "write 1 or more"});
    }
    auto scenario = scenario_from(options.scenario);
    if (!scenario) {
        return fail(console, scenario.error());
    }
    if (!options.objective.empty()) {
        const auto objective = sim::enum_from<sim::Objective>(options.objective);
        if (!objective) {
            return fail(console, {sim::ErrorCode::bad_input, "--objective",
                                  "nothing can be ranked by " + sim::in_quotes(options.objective),
                                  sim::nearest_hint(options.objective,
                                                    sim::EnumNames<sim::Objective>::names)});
        }
        scenario->job.objective = *objective;
    }
    const auto evaluator = sim::Evaluator::make(std::move(*scenario));
    if (!evaluator) {
        return fail(console, evaluator.error());
    }
    if (scenario_without_prices(evaluator->scenario())) {
        return fail(console, {sim::ErrorCode::bad_input, "--objective cost",
                              "cluster " + evaluator->scenario().cluster.name + " states no price",
                              "give one: --set cluster.node_groups[0].price_per_device_hour=2.5"});
    }
    SearchOptions search;
    search.top = static_cast<std::size_t>(options.top);
    search.objective = evaluator->scenario().job.objective;
    search.threads = 0;
    PlanSet set;
    {
        ProgressBar bar(console);
        search.progress = &bar;
        set = plan(*evaluator, search);
    }
    const auto ranking = rank(set, *evaluator, search.objective);
    std::vector<Remedy> ways_out;
    if (ranking.empty() && set.counts.legal > 0) {
        ways_out = remedies(*evaluator, set, search);
    }
    std::optional<Calendar> calendar;
    if (!ranking.empty()) {
        auto whole_run =
            calendar_from(options.losses, evaluator->scenario(), ranking.front().estimate);
        if (!whole_run) {
            return fail(console, whole_run.error());
        }
        calendar = std::move(*whole_run);
    }
    if (!options.output.empty() && !ranking.empty()) {
        const auto status = write_plan(options.output, document_of(*evaluator, ranking), console);
        if (!status) {
            return fail(console, status.error());
        }
    }
    // "-o -" has already filled standard output, unless there was nothing to write.
    const bool taken = options.output == "-" && !ranking.empty();
    if (console.json && !taken) {
        write_json(console, *evaluator, set, ranking, calendar, ways_out);
    } else if (!taken) {
        print_text(console, *evaluator, set, ranking, calendar, ways_out);
    }
    return ranking.empty() ? console.no() : exit_code::yes;
}

} // namespace shardplan::plan::cli
