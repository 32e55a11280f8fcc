#pragma once

#include <span>
#include <string_view>

#include "planner/import/foreign_cluster.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan {

/// A foreign format: told by content, never by the name of the file.
struct ForeignFormat {
    std::string_view name; ///< "an NCCL topology (XML)", as in a sentence
    bool (*looks_like)(std::string_view text);
    sim::Result<ForeignCluster> (*read)(std::string_view text, std::string_view source);
};

/// All formats, the most telling first.
std::span<const ForeignFormat> foreign_formats();

/// The format of a text; nullptr: none of ours.
const ForeignFormat* recognise(std::string_view text);

/// What a text of a format says. Errors: nothing of the format could be made out.
sim::Result<ForeignCluster> read_foreign(const ForeignFormat& format, std::string_view text,
                                         std::string_view source);

} // namespace shardplan::plan
