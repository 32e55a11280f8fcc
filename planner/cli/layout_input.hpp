#pragma once

#include <string>
#include <string_view>

#include "planner/cli/console.hpp"
#include "simulator/io/document.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::plan::cli {

/// A layout from its text form, with dp from the devices of the scenario where it is left out. Jobs
/// that allow idle devices may use fewer. Errors: `where` is the flag.
sim::Result<sim::Layout> layout_from(std::string_view text, std::string_view where,
                                     const sim::Scenario& scenario, sim::LayoutTables& tables);

/// Writes a document to a file, or to standard output for "-".
sim::Status write_plan(const std::string& output, const sim::Document& document,
                       const Console& console);

} // namespace shardplan::plan::cli
