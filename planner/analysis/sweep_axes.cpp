#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/sweep.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

constexpr std::size_t most_points = 10'000;
constexpr std::size_t most_axes = 2;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    return text;
}

sim::Error bad(std::string_view where, std::string what, std::string hint) {
    return {sim::ErrorCode::bad_input, std::string(where), std::move(what), std::move(hint)};
}

/// "400 Gbit/s" as 400 and "Gbit/s".
struct Amount {
    double number = 0.0;
    std::string unit;
};
std::optional<Amount> amount_of(std::string_view text) {
    text = trimmed(text);
    Amount out;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), out.number);
    if (read.ec != std::errc() || !std::isfinite(out.number)) {
        return std::nullopt;
    }
    const auto used = static_cast<std::size_t>(read.ptr - text.data());
    out.unit = trimmed(text.substr(used));
    return out;
}

std::string text_of(double number, const std::string& unit) {
    return fmt::format("{}", number) + (unit.empty() ? "" : " " + unit);
}

/// The values of "a..b", "a..b:c" or "a..b:xf".
sim::Result<std::vector<std::string>> range_of(std::string_view text, std::string_view where) {
    const std::size_t dots = text.find("..");
    const std::size_t colon = text.find(':', dots);
    const auto first = amount_of(text.substr(0, dots));
    const auto last = amount_of(text.substr(dots + 2, std::min(colon, text.size()) - dots - 2));
    const char* form = "write for example 64..4096 (doubles), 0..100:25 or 100..800:x2 Gbit/s";
    if (!first || !last) {
        return bad(where, sim::in_quotes(text) + " is no range of numbers", form);
    }
    std::string unit = last->unit.empty() ? first->unit : last->unit;
    bool adds = false;
    double step = 2.0;
    if (colon != std::string_view::npos) {
        std::string_view how = trimmed(text.substr(colon + 1));
        adds = how.empty() || how.front() != 'x';
        const auto given = amount_of(adds ? how : how.substr(1));
        if (!given) {
            return bad(where, sim::in_quotes(how) + " is no step", form);
        }
        step = given->number;
        unit = given->unit.empty() ? unit : given->unit;
    }
    const bool moves = adds ? step > 0.0 : step > 1.0 && first->number > 0.0;
    if (!moves || !(first->number <= last->number)) {
        return bad(where, sim::in_quotes(text) + " does not lead from its first number to its last",
                   form);
    }
    for (const std::string& given : {first->unit, last->unit}) {
        if (!given.empty() && given != unit) {
            return bad(where, sim::in_quotes(text) + " mixes units", "write both in " + unit);
        }
    }
    std::vector<std::string> out;
    // A hair of slack, so that the last value of 0..1:0.1 is not lost to rounding.
    const double end = last->number * (1.0 + 1e-12);
    for (std::size_t i = 0; out.size() <= most_points; ++i) {
        const auto n = static_cast<double>(i);
        const double value = adds ? first->number + n * step : first->number * std::pow(step, n);
        if (value > end) {
            break;
        }
        out.push_back(text_of(value, unit));
    }
    return out;
}

/// What the values are as numbers, where they are numbers.
sim::Status read_numbers(SweepAxis& axis, const sim::Scenario& base, std::string_view where) {
    if (axis.path == "model" || axis.path == "cluster" || axis.path == "stack") {
        return sim::Done{}; // names
    }
    if (axis.path != "gpus") {
        const auto leaves = leaves_of(base);
        const auto paths = full_paths(leaves, axis.path, where);
        if (!paths) {
            // A list or an absent field can be set all the same; then values are names.
            const auto set =
                vary(base, std::vector{FieldSetting{axis.path, axis.values.front()}}, {}, where);
            return set ? sim::Status(sim::Done{}) : sim::Status(set.error());
        }
        const Leaf* leaf = find_leaf(leaves, paths->front());
        if (leaf->kind != LeafKind::integer && leaf->kind != LeafKind::number) {
            return sim::Done{};
        }
        axis.dimension = leaf->dimension;
    }
    for (const std::string& value : axis.values) {
        const auto number = sim::parse_quantity(value, axis.dimension, where);
        if (!number) {
            return number.error();
        }
        axis.numbers.push_back(*number);
    }
    return sim::Done{};
}

} // namespace

sim::Result<std::vector<SweepAxis>> parse_axes(std::string_view text, const sim::Scenario& base,
                                               std::string_view where) {
    std::vector<SweepAxis> axes;
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        std::string_view piece = trimmed(text.substr(0, comma));
        text.remove_prefix(std::min(comma + 1, text.size()));
        const std::size_t equals = piece.find('=');
        if (equals != std::string_view::npos) {
            axes.emplace_back().path = trimmed(piece.substr(0, equals));
            piece = trimmed(piece.substr(equals + 1));
        }
        if (axes.empty() || axes.back().path.empty() || piece.empty()) {
            return bad(where, sim::in_quotes(piece) + " is not of the form input=values",
                       "write for example gpus=64..4096,job.sequence=4096,8192");
        }
        if (piece.find("..") == std::string_view::npos) {
            axes.back().values.emplace_back(piece);
            continue;
        }
        const auto values = range_of(piece, where);
        if (!values) {
            return values.error();
        }
        auto& all = axes.back().values;
        all.insert(all.end(), values->begin(), values->end());
    }
    if (axes.empty() || axes.size() > most_axes) {
        return bad(where,
                   fmt::format("a sweep is over one or two inputs, and these are {}", axes.size()),
                   "write for example gpus=64..4096,job.sequence=4096,8192");
    }
    std::size_t points = 1;
    for (SweepAxis& axis : axes) {
        points *= axis.values.size();
        if (const auto status = read_numbers(axis, base, where); !status) {
            return status.error();
        }
    }
    if (points > most_points) {
        return bad(where, fmt::format("these are more than {} points", most_points),
                   "take larger steps");
    }
    if (axes.size() == most_axes && axes[0].path == axes[1].path) {
        return bad(where, "both inputs are " + sim::in_quotes(axes[0].path), "name two inputs");
    }
    return axes;
}

} // namespace shardplan::plan
