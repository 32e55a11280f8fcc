#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// One row of the table that programs of nccl-tests print:
///     size count type [redop] [root]  time algbw busbw check  time algbw busbw check
/// out of place, then in place.
namespace shardplan::plan {

struct LogTiming {
    double time_us = 0.0;
    double algbw = 0.0;          ///< GB/s
    double busbw = 0.0;          ///< GB/s
    std::optional<double> wrong; ///< none: not checked
};

struct LogRow {
    std::int64_t size = 0; ///< bytes
    std::string type;      ///< "float", "bfloat16"
    std::optional<LogTiming> out_of_place;
    std::optional<LogTiming> in_place;
    bool broken = false; ///< the in-place half is missing or not readable
};

/// A line without what launchers put before each: "[1,0]<stdout>:", "3: ", "node-7: ".
std::string_view without_tags(std::string_view line);

/// Whether words begin a row: two counts and a type.
bool begins_row(const std::vector<std::string_view>& words);
/// Whether words can be the rest of a row: numbers, with or without tags, and "N/A".
bool goes_on(const std::vector<std::string_view>& words);
/// Whether nothing can follow. `has_root`: the header names a column for the root.
bool is_whole(const std::vector<std::string>& words, bool has_root);
/// Nothing if not even the first timing is there.
std::optional<LogRow> read_row(const std::vector<std::string>& words, bool has_root);

} // namespace shardplan::plan
