#pragma once

#include <string_view>

#include "simulator/estimate/term.hpp"

namespace shardplan::sim {

/// Where a formula comes from: a paper, the software's code, or the kind of data behind it. Empty
/// for an id that is not in the table.
std::string_view source_of_formula(std::string_view id);

/// Fills `source` of every node of a tree that does not state its own.
void cite_sources(Term& term);

} // namespace shardplan::sim
