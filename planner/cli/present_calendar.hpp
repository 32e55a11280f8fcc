#pragma once

#include <optional>

#include "planner/analysis/calendar.hpp"
#include "planner/cli/console.hpp"
#include "planner/cli/options.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {

/// Losses from their flags. Errors: `where` is the flag.
sim::Result<Losses> losses_from(const LossOptions& options);

/// The calendar of a job that says how many tokens it trains on; nothing where it does not, or
/// where the layout does not fit. Errors: the flags; losses without --tokens.
sim::Result<std::optional<Calendar>> calendar_from(const LossOptions& options,
                                                   const sim::Scenario& scenario,
                                                   const sim::Estimate& estimate);

/// Nothing where there is none.
void print_calendar(const Console& console, const std::optional<Calendar>& calendar);
/// The member "calendar" of the object that is open, null where there is none.
void write_calendar(sim::JsonWriter& json, const std::optional<Calendar>& calendar);

} // namespace shardplan::plan::cli
