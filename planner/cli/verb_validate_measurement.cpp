#include <cmath>

#include <fmt/format.h>

#include "planner/cli/measured_plan.hpp"
#include "planner/cli/table.hpp"
#include "simulator/io/json.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

std::string error_text(const MeasuredTerm& term) {
    if (!term.known() || *term.measured == 0.0) {
        return "";
    }
    if (term.predicted == *term.measured) {
        return "equal";
    }
    return fmt::format("{:+.1f} %", 100.0 * (term.predicted / *term.measured - 1.0));
}

void add_rows(Table& table, const std::vector<MeasuredTerm>& terms, sim::Dimension dimension) {
    for (const MeasuredTerm& term : terms) {
        table.add({term.name, sim::format_quantity(term.predicted, dimension),
                   term.known() ? sim::format_quantity(*term.measured, dimension) : "not measured",
                   error_text(term)});
    }
}

Table term_table() {
    return Table({{"", Align::left},
                  {"predicted", Align::right},
                  {"measured", Align::right},
                  {"error", Align::right}});
}

void print_furthest(const Console& console, const std::optional<FurthestTerm>& term,
                    sim::Dimension dimension, const char* whole) {
    if (!term) {
        console.out << "  all terms are as predicted\n";
        return;
    }
    console.out << fmt::format(
        "  off most: {}, {} predicted and {} measured ({:+.1f} % of the {})\n",
        styled(term->name, Style::strong, console.color),
        sim::format_quantity(term->predicted, dimension),
        sim::format_quantity(term->measured, dimension), 100.0 * term->share, whole);
}

void print_memory(const Console& console, const MeasuredComparison& c) {
    for (const MeasuredMemory& m : c.memory) {
        print_heading(
            console.out,
            fmt::format("Memory of stage {} (rank {}), held between steps", m.stage, m.rank),
            console.color);
        Table held = term_table();
        add_rows(held, m.held, sim::Dimension::bytes);
        held.print(console.out, console.color, 2);
        print_heading(
            console.out,
            fmt::format("Memory of stage {} (rank {}), at the peak ({} predicted, {} "
                        "measured)",
                        m.stage, m.rank, name_of(m.predicted_phase), name_of(m.measured_phase)),
            console.color);
        Table peak = term_table();
        add_rows(peak, m.at_peak, sim::Dimension::bytes);
        add_rows(peak, {m.allocated}, sim::Dimension::bytes);
        peak.print(console.out, console.color, 2);
        if (m.phases.empty()) {
            continue;
        }
        print_heading(
            console.out,
            fmt::format("Memory of stage {} (rank {}), at the peak of each phase", m.stage, m.rank),
            console.color);
        Table phases = term_table();
        add_rows(phases, m.phases, sim::Dimension::bytes);
        phases.print(console.out, console.color, 2);
    }
    print_furthest(console, c.furthest_memory, sim::Dimension::bytes, "measured peak");
}

void print_text(const Console& console, const MeasuredPlan& plan) {
    const MeasuredComparison& c = plan.comparison;
    const sim::Measurement& m = plan.measurement;
    console.out << fmt::format("{} on {} ranks ({}), {} steps that count, spread {}\n",
                               styled(m.layout, Style::strong, console.color), m.ranks, m.backend,
                               c.steps, percent(c.spread));
    if (m.noise) {
        console.out << fmt::format("noise of the machine: spread {} over {} repeats of {}\n",
                                   percent(m.noise->spread), m.noise->repeats,
                                   sim::to_text(m.noise->median));
    }
    print_heading(console.out, fmt::format("Time of one step (rank {})", c.time_rank),
                  console.color);
    Table time = term_table();
    add_rows(time, c.time, sim::Dimension::seconds);
    add_rows(time, {{"step", c.predicted.value.value(), c.measured.value()}},
             sim::Dimension::seconds);
    time.print(console.out, console.color, 2);
    const double measured = c.measured.value();
    const bool inside = c.predicted.low.value() <= measured && measured <= c.predicted.high.value();
    console.out << fmt::format("  the band {} to {} {} what was measured\n",
                               sim::to_text(c.predicted.low), sim::to_text(c.predicted.high),
                               inside ? "holds" : "does not hold");
    print_furthest(console, c.furthest_time, sim::Dimension::seconds, "measured step");
    print_memory(console, c);
    if (!c.sent.empty()) {
        print_heading(console.out, "Sent by one rank in one step", console.color);
        Table sent = term_table();
        add_rows(sent, c.sent, sim::Dimension::bytes);
        sent.print(console.out, console.color, 2);
        print_furthest(console, c.furthest_sent, sim::Dimension::bytes, "measured bytes");
    }
}

/// `unit`: "_s" or "_bytes".
void write_terms(sim::JsonWriter& json, std::string_view key,
                 const std::vector<MeasuredTerm>& terms, const char* unit) {
    json.begin_array(key);
    for (const MeasuredTerm& term : terms) {
        json.begin_object()
            .member("term", term.name)
            .member(std::string("predicted") + unit, term.predicted)
            .member(std::string("measured") + unit, term.measured)
            .end_object();
    }
    json.end_array();
}

void write_furthest(sim::JsonWriter& json, std::string_view key,
                    const std::optional<FurthestTerm>& term) {
    if (!term) {
        return;
    }
    json.begin_object(key)
        .member("term", term->name)
        .member("predicted", term->predicted)
        .member("measured", term->measured)
        .member("share", term->share)
        .end_object();
}

void print_json(const Console& console, const MeasuredPlan& plan) {
    const MeasuredComparison& c = plan.comparison;
    sim::JsonWriter json;
    json.begin_object()
        .member("layout", plan.measurement.layout)
        .member("ranks", plan.measurement.ranks)
        .member("plan_changed", plan.changed)
        .member("steps", c.steps)
        .member("spread", c.spread)
        .member("measured_step_time_s", c.measured.value())
        .member("predicted_step_time_s", c.predicted.value.value())
        .member("predicted_step_time_low_s", c.predicted.low.value())
        .member("predicted_step_time_high_s", c.predicted.high.value())
        .member("error", c.predicted.value.value() / c.measured.value() - 1.0)
        .member("time_rank", c.time_rank);
    write_terms(json, "time", c.time, "_s");
    json.begin_array("memory");
    for (const MeasuredMemory& m : c.memory) {
        json.begin_object()
            .member("stage", m.stage)
            .member("rank", m.rank)
            .member("predicted_peak_phase", name_of(m.predicted_phase))
            .member("measured_peak_phase", name_of(m.measured_phase))
            .member("predicted_allocated_bytes", m.allocated.predicted)
            .member("measured_allocated_bytes", m.allocated.measured);
        write_terms(json, "held", m.held, "_bytes");
        write_terms(json, "at_peak", m.at_peak, "_bytes");
        write_terms(json, "phases", m.phases, "_bytes");
        json.end_object();
    }
    json.end_array();
    write_terms(json, "sent", c.sent, "_bytes");
    json.begin_object("off_most");
    write_furthest(json, "time", c.furthest_time);
    write_furthest(json, "memory", c.furthest_memory);
    write_furthest(json, "sent", c.furthest_sent);
    json.end_object().end_object();
    console.out << json.str();
}

} // namespace

void show_measured(const Console& console, const MeasuredPlan& plan) {
    print_changed(console, plan);
    if (console.json) {
        print_json(console, plan);
    } else {
        print_text(console, plan);
    }
}

} // namespace shardplan::plan::cli
