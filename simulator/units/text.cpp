#include "simulator/units/text.hpp"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/unit_table.hpp"

namespace shardplan::sim {

namespace {

using detail::DimensionWords;
using detail::find_unit;
using detail::Spelling;
using detail::Unit;
using detail::words_of;

// --- scanning --------------------------------------------------------------------------------

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_space(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

std::size_t digits_from(std::string_view text, std::size_t i) {
    while (i < text.size() && is_digit(text[i])) {
        ++i;
    }
    return i;
}

/// A number at the start of a text, in its parts.
struct Scanned {
    std::string_view number;   ///< as written
    std::string_view mantissa; ///< sign, digits, point
    std::string_view exponent; ///< digits after 'e', with a minus sign if there is one
    std::string_view rest;     ///< what follows, spaces trimmed
};

/// Splits by the grammar `-?(digits(.digits?)?|.digits)([eE][+-]?digits)?`. An 'E' without digits
/// belongs to the unit ("5 EFLOP" may be written "5EFLOP").
std::optional<Scanned> scan(std::string_view text) {
    std::size_t i = !text.empty() && text.front() == '-' ? 1 : 0;
    const std::size_t whole_from = i;
    i = digits_from(text, i);
    std::size_t digit_count = i - whole_from;
    if (i < text.size() && text[i] == '.') {
        const std::size_t fraction_from = i + 1;
        i = digits_from(text, fraction_from);
        digit_count += i - fraction_from;
    }
    if (digit_count == 0) {
        return std::nullopt;
    }
    Scanned out;
    out.mantissa = text.substr(0, i);
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        std::size_t from = i + 1;
        const bool has_sign = from < text.size() && (text[from] == '+' || text[from] == '-');
        const std::size_t to = digits_from(text, from + (has_sign ? 1 : 0));
        if (to > from + (has_sign ? 1 : 0)) {
            from += has_sign && text[from] == '+' ? 1 : 0;
            out.exponent = text.substr(from, to - from);
            i = to;
        }
    }
    out.number = text.substr(0, i);
    out.rest = trimmed(text.substr(i));
    return out;
}

/// The nearest double to mantissa x 10^(exponent + shift); nothing if it is out of range.
std::optional<double> to_double(const Scanned& scanned, int shift) {
    long long exponent = 0;
    if (!scanned.exponent.empty()) {
        const auto read = std::from_chars(
            scanned.exponent.data(), scanned.exponent.data() + scanned.exponent.size(), exponent);
        if (read.ec != std::errc()) {
            return std::nullopt;
        }
    }
    constexpr long long beyond_any_double = 100'000'000;
    if (exponent > beyond_any_double || exponent < -beyond_any_double) {
        return std::nullopt;
    }
    const std::string text = std::string(scanned.mantissa) + "e" + std::to_string(exponent + shift);
    double value = 0.0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

bool is_zero(const Scanned& scanned) {
    return scanned.mantissa.find_first_of("123456789") == std::string_view::npos;
}

// --- errors ----------------------------------------------------------------------------------

/// A number as written, cut if somebody wrote thousands of digits.
std::string shown(std::string_view number) {
    return number.size() <= 40 ? std::string(number) : in_quotes(number);
}

std::string accepted_hint(const DimensionWords& words) {
    return "accepted units: " + std::string(words.accepted);
}

Error not_a_number(std::string_view text, Dimension dimension, std::string_view where) {
    const DimensionWords words = words_of(dimension);
    const std::string example =
        dimension == Dimension::scalar
            ? "write a number such as 0.5"
            : "write a number and a unit, such as \"80 " + std::string(words.example_unit) + "\"";
    const std::string word = lower_case(text);
    if (text.empty()) {
        return {ErrorCode::bad_input, std::string(where), "the value is empty", example};
    }
    if (word.find("nan") != std::string::npos || word.find("inf") != std::string::npos) {
        return {ErrorCode::bad_input, std::string(where),
                in_quotes(text) + " is not " + std::string(words.noun) + ": it must be finite",
                example};
    }
    if (text.front() == '+') {
        return {ErrorCode::bad_input, std::string(where),
                in_quotes(text) + " begins with a plus sign", "leave the sign out"};
    }
    return {ErrorCode::bad_input, std::string(where),
            in_quotes(text) + " is not " + std::string(words.noun), example};
}

/// The units of the dimension whose name differs from `name` only by case, or by a 'b' for bits.
std::string likely_units(Dimension dimension, std::string_view name) {
    std::string key = lower_case(name);
    std::vector<std::string_view> found;
    std::vector<std::string_view> names;
    for (const Unit& unit : words_of(dimension).units) {
        if (unit.spelling == Spelling::alias) {
            continue;
        }
        names.push_back(unit.name);
        std::string candidate = lower_case(unit.name);
        if (const auto bit = candidate.find("bit"); bit != std::string::npos) {
            candidate.erase(bit + 1, 2); // "gbit/s" is looked for as "gb/s"
        }
        if (candidate == key) {
            found.push_back(unit.name);
        }
    }
    if (found.empty()) {
        const auto nearest = nearest_name(name, names);
        return nearest ? "did you mean " + *nearest + "? " : "";
    }
    std::string text = "did you mean ";
    for (std::size_t i = 0; i < found.size(); ++i) {
        text += (i == 0 ? "" : " or ") + std::string(found[i]);
    }
    return text + "? ";
}

Error wrong_unit(const Scanned& scanned, Dimension dimension, std::string_view where) {
    const DimensionWords words = words_of(dimension);
    const char next = scanned.rest.front();
    if (next == ',' || next == '_' || next == '\'' || is_digit(next) || next == '.') {
        return {ErrorCode::bad_input, std::string(where),
                in_quotes(std::string(scanned.number) + std::string(scanned.rest)) +
                    " is not one number",
                "write digits without separators, and a point before decimals"};
    }
    if (dimension == Dimension::scalar) {
        return {ErrorCode::bad_input, std::string(where),
                "a plain number is expected, and " + in_quotes(scanned.rest) + " follows it",
                "write " + shown(scanned.number)};
    }
    for (const Dimension other : {Dimension::bytes, Dimension::seconds, Dimension::flops,
                                  Dimension::bandwidth, Dimension::flop_rate, Dimension::watts}) {
        if (find_unit(other, scanned.rest) != nullptr) {
            return {ErrorCode::bad_input, std::string(where),
                    std::string(words.noun) + " is expected, and " + std::string(scanned.rest) +
                        " stands for " + std::string(words_of(other).noun),
                    accepted_hint(words)};
        }
    }
    return {ErrorCode::bad_input, std::string(where),
            in_quotes(scanned.rest) + " is not a unit here: " + std::string(words.noun) +
                " is expected",
            likely_units(dimension, scanned.rest) + accepted_hint(words)};
}

Error out_of_range(std::string_view text, std::string_view where) {
    return {ErrorCode::bad_input, std::string(where),
            in_quotes(text) + " is too large or too small for any computation",
            "check the exponent"};
}

} // namespace

Result<double> parse_quantity(std::string_view text, Dimension dimension, std::string_view where) {
    const std::string_view whole = trimmed(text);
    const auto scanned = scan(whole);
    if (!scanned) {
        return not_a_number(whole, dimension, where);
    }
    if (scanned->rest.empty()) {
        if (dimension == Dimension::scalar || is_zero(*scanned)) {
            const auto value = to_double(*scanned, 0);
            return value ? Result<double>(*value) : out_of_range(whole, where);
        }
        const DimensionWords words = words_of(dimension);
        return Error{ErrorCode::bad_input, std::string(where),
                     shown(scanned->number) + " has no unit",
                     "write \"" + shown(scanned->number) + " " + std::string(words.example_unit) +
                         "\" if that is meant; " + accepted_hint(words)};
    }
    const Unit* unit = find_unit(dimension, scanned->rest);
    if (unit == nullptr) {
        return wrong_unit(*scanned, dimension, where);
    }
    const auto value = to_double(*scanned, unit->decimal);
    if (!value || !std::isfinite(*value * unit->factor)) {
        return out_of_range(whole, where);
    }
    return *value * unit->factor;
}

} // namespace shardplan::sim
