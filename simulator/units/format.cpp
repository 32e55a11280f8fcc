#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string>

#include "simulator/units/text.hpp"
#include "simulator/units/unit_table.hpp"

namespace shardplan::sim {

namespace {

std::string shortest(double value) {
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), end.ptr};
}

std::string with_precision(double value, std::chars_format format, int precision) {
    std::array<char, 64> buffer{};
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
    return {buffer.data(), end.ptr};
}

/// Three significant digits, all digits before the point; `value` is not negative.
std::string three_digits(double value) {
    if (value == 0.0) {
        return "0";
    }
    if (value < 0.9995 || value >= 1e6) {
        return with_precision(value, std::chars_format::general, 3);
    }
    // A value that rounds up to 10 or 100 needs one decimal less.
    const int decimals = value < 9.995 ? 2 : (value < 99.95 ? 1 : 0);
    return with_precision(value, std::chars_format::fixed, decimals);
}

/// One step of the ladder of units people read: used from `from` base units upwards.
struct Step {
    double from;
    double unit;
    std::string_view name;
};

// The bounds lie just below the next unit, where three digits would show its value already.
constexpr double up = 0.9995;
constexpr double up_binary = 1023.5 / 1024.0;
constexpr auto byte_steps = std::to_array<Step>({{0, 1, "B"},
                                                 {0x1p10 * up_binary, 0x1p10, "KiB"},
                                                 {0x1p20 * up_binary, 0x1p20, "MiB"},
                                                 {0x1p30 * up_binary, 0x1p30, "GiB"},
                                                 {0x1p40 * up_binary, 0x1p40, "TiB"},
                                                 {0x1p50 * up_binary, 0x1p50, "PiB"}});
// Minutes and hours start late: "90.0 s" reads better than "1.50 min".
constexpr auto second_steps = std::to_array<Step>({{0, 1e-9, "ns"},
                                                   {1e-6 * up, 1e-6, "us"},
                                                   {1e-3 * up, 1e-3, "ms"},
                                                   {up, 1, "s"},
                                                   {119.5, 60, "min"},
                                                   {119.5 * 60, 3600, "h"},
                                                   {71.95 * 3600, 86400, "d"}});
constexpr auto bandwidth_steps = std::to_array<Step>({{0, 1, "B/s"},
                                                      {1e3 * up, 1e3, "KB/s"},
                                                      {1e6 * up, 1e6, "MB/s"},
                                                      {1e9 * up, 1e9, "GB/s"},
                                                      {1e12 * up, 1e12, "TB/s"},
                                                      {1e15 * up, 1e15, "PB/s"}});
constexpr auto flop_steps = std::to_array<Step>({{0, 1, "FLOP"},
                                                 {1e3 * up, 1e3, "kFLOP"},
                                                 {1e6 * up, 1e6, "MFLOP"},
                                                 {1e9 * up, 1e9, "GFLOP"},
                                                 {1e12 * up, 1e12, "TFLOP"},
                                                 {1e15 * up, 1e15, "PFLOP"},
                                                 {1e18 * up, 1e18, "EFLOP"},
                                                 {1e21 * up, 1e21, "ZFLOP"},
                                                 {1e24 * up, 1e24, "YFLOP"}});
constexpr auto flop_rate_steps = std::to_array<Step>({{0, 1, "FLOP/s"},
                                                      {1e3 * up, 1e3, "kFLOP/s"},
                                                      {1e6 * up, 1e6, "MFLOP/s"},
                                                      {1e9 * up, 1e9, "GFLOP/s"},
                                                      {1e12 * up, 1e12, "TFLOP/s"},
                                                      {1e15 * up, 1e15, "PFLOP/s"},
                                                      {1e18 * up, 1e18, "EFLOP/s"},
                                                      {1e21 * up, 1e21, "ZFLOP/s"}});
constexpr auto watt_steps =
    std::to_array<Step>({{0, 1, "W"}, {1e3 * up, 1e3, "kW"}, {1e6 * up, 1e6, "MW"}});

std::span<const Step> steps_of(Dimension dimension) {
    switch (dimension) {
        case Dimension::bytes:
            return byte_steps;
        case Dimension::seconds:
            return second_steps;
        case Dimension::flops:
            return flop_steps;
        case Dimension::bandwidth:
            return bandwidth_steps;
        case Dimension::flop_rate:
            return flop_rate_steps;
        case Dimension::watts:
            return watt_steps;
        case Dimension::scalar:
            break;
    }
    return {};
}

} // namespace

std::string format_quantity(double base, Dimension dimension) {
    if (std::isnan(base)) {
        return "not a number";
    }
    const std::string sign = base < 0.0 ? "-" : "";
    const double size = std::abs(base);
    if (std::isinf(size)) {
        return sign + "infinite";
    }
    const auto steps = steps_of(dimension);
    if (steps.empty()) {
        return sign + three_digits(size);
    }
    const Step* step = &steps.front();
    for (const Step& candidate : steps) {
        if (size >= candidate.from) {
            step = &candidate;
        }
    }
    // Bytes are counted: 5 of them are "5 B", not "5.00 B".
    const bool is_count =
        dimension == Dimension::bytes && step == &steps.front() && size == std::floor(size);
    if (size == 0.0) {
        step = &steps.front();
        return "0 " + std::string(dimension == Dimension::seconds ? "s" : step->name);
    }
    const std::string number = is_count ? shortest(size) : three_digits(size / step->unit);
    return sign + number + " " + std::string(step->name);
}

std::string format_exact(double base, Dimension dimension) {
    if (dimension == Dimension::scalar) {
        return shortest(base);
    }
    std::string best;
    bool best_is_handy = false;
    for (const detail::Unit& unit : detail::words_of(dimension).units) {
        if (unit.spelling == detail::Spelling::alias) {
            continue;
        }
        // Positive powers of ten are exact doubles, negative ones are not.
        const double power = std::pow(10.0, std::abs(unit.decimal));
        const double scaled = base / unit.factor;
        const double number = unit.decimal < 0 ? scaled * power : scaled / power;
        const std::string text = shortest(number) + " " + std::string(unit.name);
        const bool is_handy = std::abs(number) >= 1.0 && std::abs(number) < 1000.0;
        const bool is_better = is_handy == best_is_handy ? text.size() < best.size() : is_handy;
        if (!best.empty() && !is_better) {
            continue;
        }
        // The base unit is always exact: nothing is scaled, and `shortest` reads back by itself.
        const bool is_base = unit.decimal == 0 && unit.factor == 1.0;
        const auto back = parse_quantity(text, dimension, "");
        if (is_base || (back && back.value() == base)) {
            best = text;
            best_is_handy = is_handy;
        }
    }
    return best;
}

std::string group_digits(long long count) {
    const std::string digits = std::to_string(count);
    const std::size_t sign = count < 0 ? 1 : 0;
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > sign && (digits.size() - i) % 3 == 0) {
            out += ' ';
        }
        out += digits[i];
    }
    return out;
}

std::string_view name_of_dimension(Dimension dimension) {
    switch (dimension) {
        case Dimension::bytes:
            return "bytes";
        case Dimension::seconds:
            return "seconds";
        case Dimension::flops:
            return "flops";
        case Dimension::bandwidth:
            return "bandwidth";
        case Dimension::flop_rate:
            return "flop_rate";
        case Dimension::watts:
            return "watts";
        case Dimension::scalar:
            break;
    }
    return "number";
}

} // namespace shardplan::sim
