#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/cli/idle_inputs.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/layout_input.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_calendar.hpp"
#include "planner/cli/present_plan.hpp"
#include "planner/cli/progress_bar.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/engine/simulate.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

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

/// The step a plan is ranked by.
sim::Seconds ranked_step(const Ranked& ranked) {
    return ranked.simulated.value_or(ranked.estimate.time.total.value);
}

std::string reason_of(const Ranked& ranked, const Ranked& first) {
    const sim::Estimate& plan = ranked.estimate;
    const sim::Estimate& best = first.estimate;
    const sim::Seconds step = ranked_step(first);
    const double ratio = step.value() > 0.0 ? ranked_step(ranked) / step - 1.0 : 0.0;
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

/// Plays the steps of all plans in short, one task per unit of a pass. All or none: a step that was
/// played and one that was not would be compared by different measures.
void play_all(std::vector<Ranked>& ranking) {
    sim::SimulateOptions how;
    how.exchanges = false;
    how.spans = false;
    how.most_events = 2'000'000; // less than a second
    for (Ranked& ranked : ranking) {
        const auto played = sim::simulate(ranked.from->evaluator, ranked.plan->layout, how);
        if (!played) {
            for (Ranked& other : ranking)
                other.simulated.reset();
            return;
        }
        ranked.simulated = played->step;
    }
}

/// The score with the step as it was played.
sim::Score played_score(const Ranked& ranked) {
    sim::Score score = ranked.plan->score;
    if (ranked.simulated && score.step_time.value() > 0.0) {
        score.money_per_million_tokens *= *ranked.simulated / score.step_time;
        score.step_time = *ranked.simulated;
    }
    return score;
}

/// Plans of all stacks together, best first: those that fit before borderline ones, then by the
/// objective. Which plans those are the estimates say, in which order the played steps do.
std::vector<Ranked> rank(const std::deque<Searched>& searched, sim::Objective objective,
                         std::size_t top) {
    std::vector<Ranked> out;
    for (const Searched& under : searched) {
        const std::string& stack = under.evaluator.scenario().stack.name;
        for (const Plan& plan : under.set.plans) {
            out.push_back({&plan, &under, plan.text, {}, {}, {}});
            if (searched.size() > 1) {
                out.back().text += ",stack=" + stack;
            }
        }
    }
    const auto key = [&](const Ranked& r) {
        const sim::Score score = played_score(r);
        return std::tuple(score.verdict, objective_value(objective, r.plan->layout, score), r.text);
    };
    const auto before = [&](const Ranked& a, const Ranked& b) { return key(a) < key(b); };
    std::sort(out.begin(), out.end(), before);
    out.resize(std::min(out.size(), top));
    play_all(out);
    std::sort(out.begin(), out.end(), before);
    sim::Workspace workspace;
    for (Ranked& ranked : out) {
        ranked.estimate = ranked.from->evaluator.estimate(ranked.plan->layout, workspace);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].reason =
            i == 0 ? best_reason(out[0].estimate, objective) : reason_of(out[i], out[0]);
    }
    return out;
}

/// The best plan of every stack but the winner's.
std::vector<Rival> rivals_of(const PlanAnswer& answer) {
    std::vector<Rival> out;
    if (answer.ranking.empty()) {
        return out;
    }
    const auto side = [](const Ranked& ranked) {
        return DiffSide{ranked.text,
                        ranked.from->evaluator.scenario(),
                        {ranked.plan->text, {}, ranked.estimate},
                        {},
                        false};
    };
    const DiffSide winner = side(answer.ranking.front());
    for (const Searched& searched : answer.searched) {
        if (&searched == answer.ranking.front().from || searched.set.plans.empty()) {
            continue;
        }
        const Plan& plan = searched.set.plans.front();
        sim::Workspace workspace;
        Rival rival{{&plan,
                     &searched,
                     plan.text + ",stack=" + searched.evaluator.scenario().stack.name,
                     searched.evaluator.estimate(plan.layout, workspace),
                     {},
                     {}},
                    {}};
        rival.time = diff_plans(winner, side(rival.best)).time;
        out.push_back(std::move(rival));
    }
    return out;
}

/// One scenario, so the plans of the winner's stack.
sim::Document document_of(const PlanAnswer& answer) {
    sim::Document document;
    document.tool_version = SHARDPLAN_VERSION;
    document.scenario = answer.winner().evaluator.scenario();
    for (const Ranked& ranked : answer.ranking) {
        if (ranked.from == &answer.winner()) {
            sim::Headline headline = sim::headline_of(ranked.estimate);
            headline.simulated_step_time = ranked.simulated;
            document.plans.push_back({ranked.text, headline, ranked.reason});
        }
    }
    return document;
}

/// "a,b" in its parts.
std::vector<std::string> stacks_in(const std::string& text) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (;;) {
        const std::size_t comma = text.find(',', at);
        const std::string name = text.substr(at, comma - at);
        if (std::find(out.begin(), out.end(), name) == out.end()) {
            out.push_back(name);
        }
        if (comma == std::string::npos) {
            return out;
        }
        at = comma + 1;
    }
}

/// What to know about the best plan, and what was typed without changing it.
std::vector<sim::Warning> warnings_of(const ScenarioOptions& options, const PlanAnswer& answer) {
    if (answer.ranking.empty()) {
        return {};
    }
    const Ranked& best = answer.ranking.front();
    ScenarioOptions given = options;
    given.stack = answer.winner().evaluator.scenario().stack.name;
    std::vector<sim::Warning> out =
        all_warnings(answer.winner().evaluator, best.plan->layout, best.estimate);
    for (sim::Warning& warning : inputs_without_effect(
             given, answer.winner().evaluator, best.plan->layout, best.estimate, Asked::plan)) {
        out.push_back(std::move(warning));
    }
    return out;
}

/// Ranking by cost is asked for and nothing says what a device costs.
bool scenario_without_prices(const sim::Scenario& scenario) {
    const auto& groups = scenario.cluster.node_groups;
    return scenario.job.objective == sim::Objective::cost &&
           std::any_of(groups.begin(), groups.end(), [](const sim::NodeGroup& group) {
               return group.price_per_device_hour <= 0.0;
           });
}

/// The scenario under one of the stacks, ready to be searched.
sim::Result<sim::Evaluator> evaluator_of(const PlanOptions& options, const std::string& stack) {
    ScenarioOptions given = options.scenario;
    given.stack = stack;
    auto scenario = scenario_from(given);
    if (!scenario) {
        return scenario.error();
    }
    if (!options.objective.empty()) {
        const auto objective = sim::enum_from<sim::Objective>(options.objective);
        if (!objective) {
            return sim::Error{
                sim::ErrorCode::bad_input, "--objective",
                "nothing can be ranked by " + sim::in_quotes(options.objective),
                sim::nearest_hint(options.objective, sim::EnumNames<sim::Objective>::names)};
        }
        scenario->job.objective = *objective;
    }
    if (scenario_without_prices(*scenario)) {
        return sim::Error{sim::ErrorCode::bad_input, "--objective cost",
                          "cluster " + scenario->cluster.name + " states no price",
                          "give one: --set cluster.node_groups[0].price_per_device_hour=2.5"};
    }
    return sim::Evaluator::make(std::move(*scenario));
}

/// Searches under every stack, and looks for ways out where nothing fits under any.
void search_all(SearchOptions search, const Console& console, PlanAnswer& answer) {
    for (Searched& searched : answer.searched) {
        ProgressBar bar(console);
        search.progress = &bar;
        searched.set = plan(searched.evaluator, search);
    }
    search.progress = nullptr;
    answer.ranking = rank(answer.searched, search.objective, search.top);
    answer.rivals = rivals_of(answer);
    if (answer.ranking.empty()) {
        for (Searched& searched : answer.searched) {
            if (searched.set.counts.legal > 0) {
                searched.remedies = remedies(searched.evaluator, searched.set, search);
            }
        }
    }
}

} // namespace

int run_plan(const PlanOptions& options, const Console& console) {
    if (options.top < 1) {
        return fail(console, {sim::ErrorCode::bad_input, "--top", "at least one plan must be kept",
                              "write 1 or more"});
    }
    PlanAnswer answer;
    for (const std::string& stack : stacks_in(options.scenario.stack)) {
        if (stack.empty() && !options.scenario.stack.empty()) {
            return fail(console, {sim::ErrorCode::bad_input, "--stack",
                                  "a name is missing beside a comma in " +
                                      sim::in_quotes(options.scenario.stack),
                                  "write names alone, as in megatron-core,deepspeed"});
        }
        auto evaluator = evaluator_of(options, stack);
        if (!evaluator) {
            return fail(console, evaluator.error());
        }
        answer.searched.push_back({std::move(*evaluator), {}, {}});
    }
    SearchOptions search;
    search.top = static_cast<std::size_t>(options.top);
    search.objective = answer.searched.front().evaluator.scenario().job.objective;
    search.threads = 0;
    search_all(search, console, answer);
    if (!answer.ranking.empty()) {
        auto whole_run = calendar_from(options.losses, answer.winner().evaluator.scenario(),
                                       answer.ranking.front().estimate);
        if (!whole_run) {
            return fail(console, whole_run.error());
        }
        answer.calendar = std::move(*whole_run);
    }
    if (!options.output.empty() && !answer.ranking.empty()) {
        const auto status = write_plan(options.output, document_of(answer), console);
        if (!status) {
            return fail(console, status.error());
        }
    }
    // "-o -" has already filled standard output, unless there was nothing to write.
    const bool taken = options.output == "-" && !answer.ranking.empty();
    if (taken) {
        return exit_code::yes;
    }
    answer.warnings = warnings_of(options.scenario, answer);
    if (console.json) {
        write_plans(console, answer);
    } else {
        print_plans(console, answer);
    }
    return answer.ranking.empty() ? console.no() : exit_code::yes;
}

} // namespace shardplan::plan::cli
