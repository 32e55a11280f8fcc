#pragma once

#include <string>
#include <vector>

#include "planner/analysis/diff.hpp"
#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"

/// Figures and fields of two sides beside one another, as `diff` and `simulate --what-if` show
/// them.
namespace shardplan::plan::cli {

/// More inputs than fit on a screen are listed by --json.
inline constexpr std::size_t most_fields_shown = 24;

/// "+1.2 GiB"; nothing for 0. `value` in base units.
std::string signed_amount(double value, sim::Dimension dimension);
/// "+1.2 %": what b is more than a; nothing where they are equal or a is 0.
std::string signed_percent(double a, double b);

/// A section with a row per term, and one of their sums; nothing where there are none.
void print_terms(const Console& console, const char* title, const std::vector<DiffTerm>& terms,
                 sim::Dimension dimension);
/// A section with the first `most` fields; nothing where there are none.
void print_fields(const Console& console, const char* title, const std::vector<DiffField>& fields,
                  std::size_t most);

/// A member of the object that is open: the same.
void write_terms(sim::JsonWriter& json, const char* key, const std::vector<DiffTerm>& terms);
void write_fields(sim::JsonWriter& json, const char* key, const std::vector<DiffField>& fields);

} // namespace shardplan::plan::cli
