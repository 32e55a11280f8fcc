#pragma once

#include <string>
#include <vector>

#include "simulator/units/result.hpp"

namespace shardplan::plan::cli {

/// What is wrong with a command line that the parser refused. `verb`: empty if none was named;
/// `known`: the flags there are, with the verbs where none was named.
sim::Error command_line_error(const std::string& verb, const std::vector<std::string>& known,
                              const std::vector<std::string>& arguments,
                              const std::string& parser_says);

} // namespace shardplan::plan::cli
