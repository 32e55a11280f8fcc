#include "planner/cli/present_what_if.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "planner/cli/present_terms.hpp"
#include "planner/cli/table.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// Stages whose waiting changed most are shown.
constexpr std::size_t most_stages = 8;

/// The term of what moved most; null where nothing did.
const DiffTerm* moved(const PlayDiff& diff) {
    const auto it = std::find_if(diff.step.begin(), diff.step.end(),
                                 [&](const DiffTerm& t) { return t.name == diff.moved; });
    return diff.moved.empty() || it == diff.step.end() ? nullptr : &*it;
}

/// "backward 61.2 %, mostly on stage 3".
std::string longest_of_path(const sim::Simulation& simulation) {
    const auto shares = path_shares(simulation);
    if (shares.empty()) {
        return "nothing";
    }
    sim::Seconds all;
    for (const PathShare& share : shares) {
        all += share.seconds;
    }
    return fmt::format(
        "{} {}, {} of it on stage {}", shares.front().name, percent(shares.front().seconds / all),
        percent(shares.front().on_stage / shares.front().seconds), shares.front().stage);
}

void print_headline(const Console& console, const PlayedSide& before, const PlayedSide& after,
                    const PlayDiff& diff) {
    Table table({{"", Align::left}, {"a: as it is"}, {"b: changed"}, {"", Align::right}});
    table.add({"layout", {before.layout, Style::strong}, {after.layout, Style::strong}});
    const double a = before.simulation.step.value();
    const double b = after.simulation.step.value();
    table.add({"step time",
               sim::to_text(before.simulation.step),
               sim::to_text(after.simulation.step),
               {signed_percent(a, b), Style::strong}});
    table.add({"memory peak", sim::to_text(sim::Bytes(diff.memory.a)),
               sim::to_text(sim::Bytes(diff.memory.b)),
               signed_percent(diff.memory.a, diff.memory.b)});
    table.add(
        {"critical path", longest_of_path(before.simulation), longest_of_path(after.simulation)});
    table.print(console.out, console.color);
}

} // namespace

void print_path(const Console& console, const sim::Simulation& simulation) {
    sim::Seconds all;
    const auto shares = path_shares(simulation);
    for (const PathShare& share : shares) {
        all += share.seconds;
    }
    Table table({{"on the critical path"},
                 {"", Align::right},
                 {"", Align::right},
                 {"most on stage", Align::right},
                 {"", Align::right}});
    for (const PathShare& share : shares) {
        table.add({share.name, sim::to_text(share.seconds), percent(share.seconds / all),
                   std::to_string(share.stage), sim::to_text(share.on_stage)});
    }
    table.print(console.out, console.color);
}

void print_what_if(const Console& console, const PlayedSide& before, const PlayedSide& after) {
    const PlayDiff diff = diff_plays(before.simulation, after.simulation);
    print_headline(console, before, after, diff);
    const DiffTerm* most = moved(diff);
    console.out << '\n'
                << (most == nullptr
                        ? std::string("no wait changes")
                        : fmt::format("what moves most is {}: {} to {} ({})", most->name,
                                      sim::to_text(sim::Seconds(most->a)),
                                      sim::to_text(sim::Seconds(most->b)),
                                      signed_amount(most->change(), sim::Dimension::seconds)))
                << '\n';
    print_fields(console, "Layout", diff_layouts(before.layout, after.layout), most_fields_shown);
    print_fields(console, "Inputs that differ", diff_inputs(before.scenario, after.scenario),
                 most_fields_shown);
    print_terms(console, "Step of an average stage", diff.step, sim::Dimension::seconds);
    print_terms(console, "Critical path", diff.path, sim::Dimension::seconds);
    std::vector<DiffTerm> stages = diff.stages;
    if (stages.size() > 1) {
        largest_first(stages);
        stages.resize(std::min(stages.size(), most_stages));
        print_heading(console.out, "Waiting of the stages where it changes most", console.color);
        Table table({{""}, {"a", Align::right}, {"b", Align::right}, {"b - a", Align::right}});
        for (const DiffTerm& stage : stages) {
            table.add({stage.name,
                       sim::to_text(sim::Seconds(stage.a)),
                       sim::to_text(sim::Seconds(stage.b)),
                       {signed_amount(stage.change(), sim::Dimension::seconds), Style::strong}});
        }
        table.print(console.out, console.color, 2);
    }
}

void write_what_if(sim::JsonWriter& json, const PlayedSide& before, const PlayedSide& after) {
    const PlayDiff diff = diff_plays(before.simulation, after.simulation);
    write_fields(json, "inputs", diff_inputs(before.scenario, after.scenario));
    write_fields(json, "layout", diff_layouts(before.layout, after.layout));
    json.member("moved_most", diff.moved);
    write_terms(json, "average_stage_s", diff.step);
    write_terms(json, "critical_path_s", diff.path);
    write_terms(json, "waits_s", diff.stages);
    write_terms(json, "memory_bytes", {diff.memory});
}

} // namespace shardplan::plan::cli
