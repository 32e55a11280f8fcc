#include "planner/cli/present_route.hpp"

#include <charconv>

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "simulator/network/route_parts.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

bool read_number(std::string_view text, std::int64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size();
}

std::string ways_in_words(const sim::Route& route) {
    if (!route.paths_stated) {
        return "at least 1; the cluster does not state \"switches\" of the level that joins them";
    }
    if (route.paths >= sim::most_paths) {
        return "more than 4e18";
    }
    return sim::group_digits(route.paths);
}

std::string ends_of(const sim::RouteLink& link) { return link.from + " to " + link.to; }

} // namespace

sim::Result<TwoDevices> two_devices(const std::string& text, const std::string& where) {
    TwoDevices out;
    const std::size_t comma = text.find(',');
    const bool good = comma != std::string::npos &&
                      read_number(std::string_view(text).substr(0, comma), out.from) &&
                      read_number(std::string_view(text).substr(comma + 1), out.to);
    if (!good) {
        return sim::Error{sim::ErrorCode::bad_input, where,
                          sim::in_quotes(text) + " are not two devices",
                          "write two numbers, counted from 0, as in 0,9"};
    }
    return out;
}

void print_route(const Console& console, const TwoDevices& ends, const sim::Route& route) {
    print_heading(console.out,
                  fmt::format("From device {} to device {}: {} {}", ends.from, ends.to,
                              route.hops(), route.hops() == 1 ? "link" : "links"),
                  console.color);
    Table table({{"from", Align::left},
                 {"to", Align::left},
                 {"over", Align::left},
                 {"links", Align::right},
                 {"alone", Align::right},
                 {"when all send", Align::right},
                 {"latency", Align::right}});
    for (const sim::RouteLink& link : route.links) {
        table.add({link.from, link.to, std::string(link.kind), std::to_string(link.hops),
                   sim::to_text(link.alone), sim::to_text(link.shared),
                   link.latency.value() > 0.0 ? sim::to_text(link.latency) : ""});
    }
    table.print(console.out, console.color, 2);
    Table figures({{"", Align::left}, {"", Align::left}});
    const sim::RouteLink& narrow = route.links[route.bottleneck];
    const sim::RouteLink& crowded = route.links[route.crowded];
    figures.add({"bottleneck", fmt::format("{}, {}", sim::to_text(narrow.alone), ends_of(narrow))});
    figures.add(
        {"when all send", fmt::format("{}, {}", sim::to_text(crowded.shared), ends_of(crowded))});
    figures.add({"shortest ways", ways_in_words(route)});
    if (route.latency().value() > 0.0) {
        figures.add({"latency", sim::to_text(route.latency())});
    }
    figures.print(console.out, console.color, 2);
}

void write_route(sim::JsonWriter& json, const TwoDevices& ends, const sim::Route& route) {
    json.begin_object("between").member("from", ends.from).member("to", ends.to);
    json.begin_array("links");
    for (const sim::RouteLink& link : route.links) {
        json.begin_object()
            .member("from", link.from)
            .member("to", link.to)
            .member("over", link.kind)
            .member("links", link.hops)
            .member("alone_bytes_per_s", link.alone.value())
            .member("when_all_send_bytes_per_s", link.shared.value())
            .member("latency_s", link.latency.value())
            .end_object();
    }
    json.end_array()
        .member("hops", route.hops())
        .member("bottleneck", static_cast<std::int64_t>(route.bottleneck))
        .member("bandwidth_bytes_per_s", route.bandwidth().value())
        .member("bottleneck_when_all_send", static_cast<std::int64_t>(route.crowded))
        .member("bandwidth_when_all_send_bytes_per_s", route.crowded_bandwidth().value())
        .member("shortest_ways", route.paths)
        .member("shortest_ways_stated", route.paths_stated)
        .member("latency_s", route.latency().value())
        .end_object();
}

} // namespace shardplan::plan::cli
