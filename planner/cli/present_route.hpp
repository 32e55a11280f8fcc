#pragma once

#include <string>

#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"
#include "simulator/network/route.hpp"

/// The way between two devices of a cluster, for people and programs.
namespace shardplan::plan::cli {

/// Two devices as typed: "0,9".
struct TwoDevices {
    std::int64_t from = 0;
    std::int64_t to = 0;
};
sim::Result<TwoDevices> two_devices(const std::string& text, const std::string& where);

/// Its links, the narrowest one, how many equally short ways there are.
void print_route(const Console& console, const TwoDevices& ends, const sim::Route& route);
/// The same as member "between" of the object that is open.
void write_route(sim::JsonWriter& json, const TwoDevices& ends, const sim::Route& route);

} // namespace shardplan::plan::cli
