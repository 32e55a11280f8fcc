#include "planner/cli/present.hpp"
#include "planner/cli/present_calendar.hpp"
#include "planner/cli/present_groups.hpp"
#include "planner/cli/present_plan.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {
namespace {

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

/// What was found under each stack, and why the winner stands before its best plan.
void write_stacks(sim::JsonWriter& json, const PlanAnswer& answer) {
    json.begin_array("stacks");
    for (const Searched& searched : answer.searched) {
        json.begin_object().member("stack", searched.evaluator.scenario().stack.name);
        for (const Rival& rival : answer.rivals) {
            if (rival.best.from != &searched) {
                continue;
            }
            json.member("best", rival.best.text)
                .member("step_time_s", rival.best.estimate.time.total.value.value())
                .begin_object("seconds_more_than_the_winner");
            for (const DiffTerm& term : rival.time) {
                json.member(term.name, term.change());
            }
            json.end_object();
        }
        write_counts(json, searched.set);
        write_front(json, searched.set);
        write_remedies(json, searched.remedies);
        json.end_object();
    }
    json.end_array();
}

} // namespace

void write_plans(const Console& console, const PlanAnswer& answer) {
    const Searched& winner = answer.winner();
    sim::JsonWriter json;
    json.begin_object();
    write_scenario_summary(json, winner.evaluator);
    json.begin_array("plans");
    for (const Ranked& ranked : answer.ranking) {
        json.begin_object()
            .member("stack", ranked.from->evaluator.scenario().stack.name)
            .member("reason", ranked.reason);
        if (ranked.simulated) {
            json.member("simulated_step_time_s", ranked.simulated->value());
        }
        json.key("estimate");
        write_estimate(json, {ranked.text, ranked.estimate});
        write_node_groups(json, ranked.from->evaluator, ranked.estimate);
        json.end_object();
    }
    json.end_array();
    write_calendar(json, answer.calendar);
    write_counts(json, winner.set);
    write_front(json, winner.set);
    write_remedies(json, winner.remedies);
    if (answer.several()) {
        write_stacks(json, answer);
    }
    write_notes(json, all_assumptions(winner.evaluator), answer.warnings);
    json.end_object();
    console.out << json.str();
}

} // namespace shardplan::plan::cli
