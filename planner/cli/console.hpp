#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/assumption.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"

/// Where a verb writes, and how. Verbs never touch std::cout: tests call them with string streams.
namespace shardplan::plan::cli {

/// What a program returns to the shell.
namespace exit_code {
inline constexpr int yes = 0;            ///< the answer is yes
inline constexpr int no = 1;             ///< the answer is no; 0 with --exit-zero
inline constexpr int bad_input = 2;      ///< a file, name, flag or value that cannot be used
inline constexpr int backend_failed = 3; ///< a child process or run failed
} // namespace exit_code

enum class ColorMode { automatic, always, never };

enum class Style { plain, strong, good, doubtful, bad, faint };

/// The answer goes to `out`; messages, warnings and progress to `err`.
struct Console {
    std::ostream& out;
    std::ostream& err;
    bool color = false; ///< of `out`
    bool json = false;  ///< `out` holds one JSON value and nothing else
    bool exit_zero = false;

    /// `exit_code::no`, or 0 where the user asked for that.
    [[nodiscard]] int no() const { return exit_zero ? exit_code::yes : exit_code::no; }
};

/// Text wrapped in the escape codes of a style, or as it is.
std::string styled(std::string_view text, Style style, bool color);
/// Whether to colour: `automatic` does on a terminal, unless NO_COLOR is set and not empty
/// (https://no-color.org).
bool wants_color(ColorMode mode, bool is_terminal);

/// Writes where, what and hint to `err`; returns the exit code of the error.
int fail(const Console& console, const sim::Error& error);
/// One line per assumption, values lined up.
void print_assumptions(std::ostream& out, const std::vector<sim::Assumption>& assumptions,
                       bool color);
void print_warnings(std::ostream& out, const std::vector<sim::Warning>& warnings, bool color);
/// A refusal on its own lines: rule, then the nearest legal values.
void print_refusals(std::ostream& out, const std::vector<sim::Refusal>& refusals, bool color);
/// A heading of a section.
void print_heading(std::ostream& out, std::string_view text, bool color);

/// "13.2 %".
std::string percent(double share);
/// "1 234 567", "2.35 M", "1.02 G": counts too long to read.
std::string scaled_count(double count);

} // namespace shardplan::plan::cli
