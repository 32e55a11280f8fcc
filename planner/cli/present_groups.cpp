#include "planner/cli/present_groups.hpp"

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "simulator/estimate/node_groups.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// "0 to 3, 6".
std::string ranges(const std::vector<std::int64_t>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) {
            ++end;
        }
        text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
        if (end > i) {
            text += " to " + std::to_string(numbers[end]);
        }
        i = end + 1;
    }
    return text;
}

Cell rate(std::string_view kind, sim::Bandwidth bandwidth, bool slowest) {
    if (kind.empty()) {
        return "";
    }
    std::string text(kind);
    if (bandwidth.value() > 0.0) {
        text += " " + sim::to_text(bandwidth);
    }
    return {text + (slowest ? " *" : ""), slowest ? Style::doubtful : Style::plain};
}

} // namespace

void print_node_groups(const Console& console, const sim::Evaluator& evaluator,
                       const sim::Estimate& estimate) {
    const auto uses = sim::group_uses(evaluator.scenario(), evaluator.resolved(), estimate.classes);
    if (uses.size() < 2) {
        return;
    }
    print_heading(console.out, "Node groups (* the others wait for it)", console.color);
    Table table({{"", Align::right},
                 {"group", Align::left},
                 {"device", Align::left},
                 {"ranks", Align::right},
                 {"stages", Align::left},
                 {"peak", Align::left},
                 {"usable", Align::right},
                 {"in the node, per rank", Align::left},
                 {"out of it, per rank", Align::left}});
    for (const sim::GroupUse& use : uses) {
        table.add({std::to_string(use.node_group),
                   use.name,
                   use.device,
                   std::to_string(use.ranks),
                   ranges(use.stages),
                   {sim::to_text(use.peak) + (use.slowest_device ? " *" : ""),
                    use.slowest_device ? Style::doubtful : Style::plain},
                   sim::to_text(use.usable),
                   rate(use.scaleup, use.scaleup_per_rank, use.slowest_scaleup),
                   rate(use.network, use.network_per_rank, use.slowest_network)});
    }
    table.print(console.out, console.color, 2);
}

void write_node_groups(sim::JsonWriter& json, const sim::Evaluator& evaluator,
                       const sim::Estimate& estimate) {
    json.begin_array("node_groups");
    for (const sim::GroupUse& use :
         sim::group_uses(evaluator.scenario(), evaluator.resolved(), estimate.classes)) {
        json.begin_object()
            .member("node_group", use.node_group)
            .member("name", use.name)
            .member("device", use.device)
            .member("ranks", use.ranks);
        json.begin_array("stages");
        for (const std::int64_t stage : use.stages) {
            json.value(stage);
        }
        json.end_array()
            .member("peak_flops", use.peak.value())
            .member("usable_bytes", use.usable.value())
            .member("scaleup", use.scaleup)
            .member("scaleup_bytes_per_s", use.scaleup_per_rank.value())
            .member("network", use.network)
            .member("network_bytes_per_s", use.network_per_rank.value())
            .member("staged_cards", use.staged_cards)
            .member("price_per_device_hour", use.price_per_device_hour)
            .member("slowest_device", use.slowest_device)
            .member("slowest_scaleup", use.slowest_scaleup)
            .member("slowest_network", use.slowest_network)
            .end_object();
    }
    json.end_array();
}

} // namespace shardplan::plan::cli
