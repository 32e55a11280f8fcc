#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// Helpers of the readers of text that was made for people: what a terminal, a mail or a log
/// collector added is taken away.
namespace shardplan::plan::text {

struct Line {
    std::int64_t number = 0; ///< from 1
    std::string text;
};

/// The lines without line ends, byte order mark, escape codes of terminals and other control
/// characters (but tabs).
std::vector<Line> lines_of(std::string_view text);

std::string_view trim(std::string_view text);
/// Pieces between blanks and tabs.
std::vector<std::string_view> words(std::string_view text);
/// Pieces between `sign`, trimmed; empty ones are kept.
std::vector<std::string_view> split(std::string_view text, char sign);
bool holds(std::string_view text, std::string_view word);

/// A whole number that is all of the text, within 64 bits.
std::optional<std::int64_t> whole(std::string_view text);
/// A finite decimal number that is all of the text.
std::optional<double> decimal(std::string_view text);
/// The whole number a text begins with.
std::optional<std::int64_t> leading_whole(std::string_view text);

/// "1 node", "3 nodes".
std::string counted(std::int64_t count, std::string_view noun);
/// "a, b and c"; more than `most` are counted: "a, b and 7 more".
std::string listed(const std::vector<std::string>& names, std::size_t most = 8);

/// Names behind a host list: "node-[1-3,7],login,r[01-02]n[1-2]" with zero padding kept, as Slurm
/// writes them. Errors: brackets that do not match, a range that is none or runs backwards, more
/// names than `most_names`.
sim::Result<std::vector<std::string>> expand_hosts(std::string_view list, std::string_view where);
inline constexpr std::size_t most_names = 131072;

} // namespace shardplan::plan::text
