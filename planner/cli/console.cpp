#include "planner/cli/console.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

std::string_view escape_of(Style style) {
    switch (style) {
        case Style::strong:
            return "\x1b[1m";
        case Style::good:
            return "\x1b[32m";
        case Style::doubtful:
            return "\x1b[33m";
        case Style::bad:
            return "\x1b[31m";
        case Style::faint:
            return "\x1b[2m";
        case Style::plain:
            break;
    }
    return "";
}

} // namespace

std::string styled(std::string_view text, Style style, bool color) {
    const std::string_view escape = escape_of(style);
    if (!color || escape.empty()) {
        return std::string(text);
    }
    return fmt::format("{}{}\x1b[0m", escape, text);
}

bool wants_color(ColorMode mode, bool is_terminal) {
    if (mode != ColorMode::automatic) {
        return mode == ColorMode::always;
    }
    const char* no_color = std::getenv("NO_COLOR");
    return is_terminal && (no_color == nullptr || *no_color == '\0');
}

int fail(const Console& console, const sim::Error& error) {
    console.err << "error: " << error.where << ": " << error.what << '\n';
    if (!error.hint.empty()) {
        console.err << "hint: " << error.hint << '\n';
    }
    return error.code == sim::ErrorCode::backend_failed ? exit_code::backend_failed
                                                        : exit_code::bad_input;
}

void print_heading(std::ostream& out, std::string_view text, bool color) {
    out << '\n' << styled(text, Style::strong, color) << '\n';
}

void print_assumptions(std::ostream& out, const std::vector<sim::Assumption>& assumptions,
                       bool color) {
    if (assumptions.empty()) {
        return;
    }
    print_heading(out, "Assumed", color);
    Table table({{"", Align::left}, {"", Align::left}, {"", Align::left}});
    std::vector<std::string> plain;
    for (const sim::Assumption& a : assumptions) {
        if (a.origin == "default" && a.note.empty()) {
            plain.push_back(a.path); // fields a file leaves at what their description says
            continue;
        }
        table.add({a.path,
                   {a.value, Style::strong},
                   {a.note.empty() ? a.origin : a.origin + "; " + a.note, Style::faint}});
    }
    table.print(out, color, 2);
    if (!plain.empty()) {
        constexpr std::size_t shown = 4;
        const std::size_t n = std::min(shown, plain.size());
        out << fmt::format(
            "  {} fields at their defaults ({}{}); --json lists them\n", plain.size(),
            fmt::join(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(n), ", "),
            plain.size() > shown ? ", ..." : "");
    }
}

void print_warnings(std::ostream& out, const std::vector<sim::Warning>& warnings, bool color) {
    if (warnings.empty()) {
        return;
    }
    print_heading(out, "Warnings", color);
    for (const sim::Warning& warning : warnings) {
        out << "  " << styled(warning.id, Style::doubtful, color) << ": " << warning.text << '\n';
    }
}

void print_refusals(std::ostream& out, const std::vector<sim::Refusal>& refusals, bool color) {
    for (const sim::Refusal& refusal : refusals) {
        out << "  " << styled(refusal.field, Style::bad, color) << ": " << refusal.rule << '\n';
        if (!refusal.nearest.empty()) {
            out << "    nearest legal: " << fmt::format("{}", fmt::join(refusal.nearest, ", "))
                << '\n';
        }
    }
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

std::string scaled_count(double count) {
    struct Scale {
        double least;
        const char* suffix;
    };
    for (const Scale& scale :
         {Scale{1e12, " T"}, Scale{1e9, " G"}, Scale{1e6, " M"}, Scale{1e4, " k"}}) {
        if (std::abs(count) >= scale.least) {
            const double unit = scale.least == 1e4 ? 1e3 : scale.least;
            return fmt::format("{:.3g}{}", count / unit, scale.suffix);
        }
    }
    return fmt::format("{:.4g}", count);
}

} // namespace shardplan::plan::cli
