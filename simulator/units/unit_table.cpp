#include "simulator/units/unit_table.hpp"

#include <array>
#include <string>

namespace shardplan::sim {

namespace detail {

namespace {

constexpr auto byte_units = std::to_array<Unit>({
    {"B"},
    {"KB", 3},
    {"kB", 3, 1.0, Spelling::alias},
    {"MB", 6},
    {"GB", 9},
    {"TB", 12},
    {"PB", 15},
    {"KiB", 0, 0x1p10},
    {"MiB", 0, 0x1p20},
    {"GiB", 0, 0x1p30},
    {"TiB", 0, 0x1p40},
    {"PiB", 0, 0x1p50},
});
constexpr auto second_units = std::to_array<Unit>({
    {"ns", -9},
    {"us", -6},
    {"\u00B5s", -6, 1.0, Spelling::alias}, // micro sign
    {"\u03BCs", -6, 1.0, Spelling::alias}, // Greek small mu
    {"ms", -3},
    {"s"},
    {"min", 0, 60.0},
    {"h", 0, 3600.0},
    {"d", 0, 86400.0},
});
constexpr auto flop_units = std::to_array<Unit>({
    {"FLOP"},
    {"kFLOP", 3},
    {"MFLOP", 6},
    {"GFLOP", 9},
    {"TFLOP", 12},
    {"PFLOP", 15},
    {"EFLOP", 18},
    {"ZFLOP", 21},
    {"YFLOP", 24},
});
constexpr auto bandwidth_units = std::to_array<Unit>({
    {"B/s"},
    {"KB/s", 3},
    {"kB/s", 3, 1.0, Spelling::alias},
    {"MB/s", 6},
    {"GB/s", 9},
    {"TB/s", 12},
    {"PB/s", 15},
    {"KiB/s", 0, 0x1p10},
    {"MiB/s", 0, 0x1p20},
    {"GiB/s", 0, 0x1p30},
    {"TiB/s", 0, 0x1p40},
    {"bit/s", 0, 0.125},
    {"kbit/s", 3, 0.125},
    {"Mbit/s", 6, 0.125},
    {"Gbit/s", 9, 0.125},
    {"Tbit/s", 12, 0.125},
    {"kbps", 3, 0.125, Spelling::alias},
    {"Mbps", 6, 0.125, Spelling::alias},
    {"Gbps", 9, 0.125, Spelling::alias},
    {"Tbps", 12, 0.125, Spelling::alias},
});
constexpr auto flop_rate_units = std::to_array<Unit>({
    {"FLOP/s"},
    {"kFLOP/s", 3},
    {"MFLOP/s", 6},
    {"GFLOP/s", 9},
    {"TFLOP/s", 12},
    {"PFLOP/s", 15},
    {"EFLOP/s", 18},
    {"ZFLOP/s", 21},
    {"GFLOPS", 9, 1.0, Spelling::alias},
    {"TFLOPS", 12, 1.0, Spelling::alias},
    {"PFLOPS", 15, 1.0, Spelling::alias},
    {"EFLOPS", 18, 1.0, Spelling::alias},
});
constexpr auto watt_units = std::to_array<Unit>({{"W"}, {"kW", 3}, {"MW", 6}});

} // namespace

DimensionWords words_of(Dimension dimension) {
    switch (dimension) {
        case Dimension::bytes:
            return {byte_units, "an amount of memory", "GiB",
                    "B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB"};
        case Dimension::seconds:
            return {second_units, "a time", "s", "ns, us, ms, s, min, h, d"};
        case Dimension::flops:
            return {flop_units, "an amount of computation", "TFLOP",
                    "FLOP, kFLOP, MFLOP, GFLOP, TFLOP, PFLOP, EFLOP, ZFLOP, YFLOP"};
        case Dimension::bandwidth:
            return {bandwidth_units, "a bandwidth", "GB/s",
                    "B/s, KB/s, MB/s, GB/s, TB/s, PB/s, KiB/s, MiB/s, GiB/s, TiB/s, bit/s, "
                    "kbit/s, Mbit/s, Gbit/s, Tbit/s"};
        case Dimension::flop_rate:
            return {flop_rate_units, "a rate of computation", "TFLOP/s",
                    "FLOP/s, kFLOP/s, MFLOP/s, GFLOP/s, TFLOP/s, PFLOP/s, EFLOP/s, ZFLOP/s"};
        case Dimension::watts:
            return {watt_units, "a power", "W", "W, kW, MW"};
        case Dimension::scalar:
            break;
    }
    return {{}, "a plain number", "", ""};
}

const Unit* find_unit(Dimension dimension, std::string_view name) {
    for (const Unit& unit : words_of(dimension).units) {
        if (unit.name == name) {
            return &unit;
        }
    }
    return nullptr;
}

} // namespace detail

std::string_view accepted_units(Dimension dimension) {
    return detail::words_of(dimension).accepted;
}

std::string quantity_pattern(Dimension dimension) {
    const std::string exponent = "([eE][+-]?[0-9]+)?";
    const std::string number = "-?([0-9]+\\.?[0-9]*|\\.[0-9]+)" + exponent;
    if (dimension == Dimension::scalar) {
        return "^[ \t\r\n]*" + number + "[ \t\r\n]*$";
    }
    std::string names;
    for (const detail::Unit& unit : detail::words_of(dimension).units) {
        names += (names.empty() ? "" : "|") + std::string(unit.name);
    }
    const std::string zero = "-?(0+\\.?0*|\\.0+)" + exponent;
    return "^[ \t\r\n]*(" + number + "[ \t\r\n]*(" + names + ")|" + zero + ")[ \t\r\n]*$";
}

} // namespace shardplan::sim
