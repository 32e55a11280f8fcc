#include "planner/cli/present_plan.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/cli/present.hpp"
#include "planner/cli/present_calendar.hpp"
#include "planner/cli/present_groups.hpp"
#include "planner/cli/table.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {

std::string words(std::string_view name) {
    std::string out(name);
    std::replace(out.begin(), out.end(), '_', ' ');
    return out;
}

namespace {

/// Does playing its step say something else of any plan than the estimate?
bool playing_matters(const std::vector<Ranked>& ranking) {
    constexpr double worth_showing = 0.005;
    return std::any_of(ranking.begin(), ranking.end(), [](const Ranked& ranked) {
        const sim::Seconds estimated = ranked.estimate.time.total.value;
        return ranked.simulated && std::abs((*ranked.simulated - estimated).value()) >
                                       worth_showing * estimated.value();
    });
}

void print_ranking(const Console& console, const std::vector<Ranked>& ranking) {
    print_heading(console.out, "Ranked", console.color);
    const bool played = playing_matters(ranking);
    std::vector<Table::Column> columns{{"", Align::right},
                                       {"layout", Align::left},
                                       {"verdict", Align::left},
                                       {"step", Align::right}};
    if (played) columns.push_back({"simulated", Align::right});
    columns.insert(columns.end(), {{"tokens/s/GPU", Align::right},
                                   {"MFU", Align::right},
                                   {"to spare", Align::right},
                                   {"why", Align::left}});
    Table table(columns);
    for (std::size_t i = 0; i < ranking.size(); ++i) {
        const sim::Estimate& e = ranking[i].estimate;
        std::vector<Cell> row{std::to_string(i + 1),
                              {ranking[i].text, Style::strong},
                              {std::string(name_of(e.verdict)), style_of(e.verdict)},
                              sim::to_text(e.time.total.value)};
        if (played) row.emplace_back(sim::to_text(ranking[i].simulated.value_or(sim::Seconds{})));
        row.emplace_back(scaled_count(e.tokens_per_second_per_device));
        row.emplace_back(percent(e.mfu));
        row.emplace_back(fmt::format("{:.1f} GiB", e.margin.value() / 0x1p30));
        row.emplace_back(ranking[i].reason, Style::faint);
        table.add(std::move(row));
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
            "shard group, kind of cp or rank order, within 1 %, with no more memory to spare\n",
            set.folded);
    }
    if (set.stopped) {
        console.out << "the search was stopped: this covers a part of the space\n";
    }
}

/// The degree a job insists on, where it leaves one only.
std::int64_t insisted(const std::vector<std::int64_t>& allowed) {
    return allowed.empty() ? 1 : std::clamp<std::int64_t>(allowed.front(), 1, 65535);
}

/// The rules in words, as the plainest layout breaks them that keeps to what the job allows: data
/// parallel over the devices that are left.
void print_plainest(const Console& console, const sim::Evaluator& evaluator) {
    sim::Layout layout;
    const sim::Constraints& job = evaluator.scenario().job.constraints;
    layout.tp = static_cast<std::uint16_t>(insisted(job.tp));
    layout.pp = static_cast<std::uint16_t>(insisted(job.pp));
    layout.cp = static_cast<std::uint16_t>(insisted(job.cp));
    layout.ep = static_cast<std::uint16_t>(insisted(job.ep));
    layout.micro_batch = static_cast<std::uint32_t>(insisted(job.micro_batch));
    const std::int64_t replica = std::int64_t{layout.tp} * layout.pp * layout.cp;
    const std::int64_t devices = sim::device_count(evaluator.scenario().cluster);
    layout.dp = static_cast<std::uint32_t>(
        job.dp.empty() ? std::max<std::int64_t>(1, devices / replica) : insisted(job.dp));
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

/// Why the winner stands before the best plan of each other stack.
void print_rivals(const Console& console, const PlanAnswer& answer) {
    if (!answer.several() || answer.ranking.empty()) {
        return;
    }
    print_heading(console.out, "Against the best of each other stack", console.color);
    constexpr std::size_t terms = 3;
    const double best = answer.ranking.front().estimate.time.total.value.value();
    Table table({{"stack", Align::left},
                 {"layout", Align::left},
                 {"step", Align::right},
                 {"", Align::right},
                 {"where the difference comes from", Align::left}});
    for (const Rival& rival : answer.rivals) {
        const sim::Estimate& e = rival.best.estimate;
        std::string why;
        for (std::size_t i = 0; i < std::min(terms, rival.time.size()); ++i) {
            const double change = rival.time[i].change();
            if (change != 0.0) {
                why += fmt::format("{}{} {} {}", why.empty() ? "" : ", ",
                                   sim::to_text(sim::Seconds(std::abs(change))),
                                   change > 0.0 ? "more" : "less", words(rival.time[i].name));
            }
        }
        if (e.verdict != answer.ranking.front().estimate.verdict) {
            why += fmt::format("{}{}", why.empty() ? "" : "; ", name_of(e.verdict));
        }
        table.add({{rival.best.from->evaluator.scenario().stack.name, Style::strong},
                   rival.best.plan->text,
                   sim::to_text(e.time.total.value),
                   fmt::format("{:+.1f} %", 100.0 * (e.time.total.value.value() / best - 1.0)),
                   {why, Style::faint}});
    }
    for (const Searched& searched : answer.searched) {
        if (searched.set.plans.empty()) {
            table.add({{searched.evaluator.scenario().stack.name, Style::strong},
                       {searched.set.counts.legal == 0 ? "no layout is legal" : "no layout fits",
                        Style::bad}});
        }
    }
    table.print(console.out, console.color, 2);
}

/// Which stack the counts that follow belong to.
void print_stack_of(const Console& console, const PlanAnswer& answer, const Searched& searched) {
    if (answer.several()) {
        print_heading(console.out, searched.evaluator.scenario().stack.name, console.color);
    }
}

} // namespace

void print_plans(const Console& console, const PlanAnswer& answer) {
    const sim::Evaluator& evaluator = answer.winner().evaluator;
    if (!answer.ranking.empty()) {
        const Ranked& best = answer.ranking.front();
        print_first_screen(console, evaluator, {best.text, best.estimate});
        print_node_groups(console, evaluator, best.estimate);
        print_ranking(console, answer.ranking);
        print_rivals(console, answer);
        print_calendar(console, answer.calendar);
    }
    for (const Searched& searched : answer.searched) {
        print_stack_of(console, answer, searched);
        if (answer.ranking.empty()) {
            print_no_plan(console, searched.evaluator, searched.set, searched.remedies);
        }
        print_counts(console, searched.set);
        print_front(console, searched.set);
    }
    print_warnings(console.out, answer.warnings, console.color);
    print_assumptions(console.out, all_assumptions(evaluator), console.color);
}

} // namespace shardplan::plan::cli
