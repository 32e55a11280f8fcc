#pragma once

#include <string>
#include <string_view>

#include "simulator/units/result.hpp"

/// The terms of a layout's text form one by one.
namespace shardplan::sim {

/// What a term sets, under one name for all its spellings: "zero" for "zero1", "hsdp8" and "ddp",
/// "off=opt" for "off=opt:1.0:host". Errors: no term of a layout, or no value for it; `where`.
Result<std::string> slot_of_term(std::string_view term, std::string_view where);

/// Does a text begin with the name of a term, and go on as one: with a digit, '=', ':' or not at
/// all? Its value may be wrong.
bool begins_a_term(std::string_view text);

/// The layout without the terms that set a slot. Terms are in lower case and apart by commas.
/// Errors: those of `slot_of_term`.
Result<std::string> without_slot(std::string_view layout, std::string_view slot,
                                 std::string_view where);

} // namespace shardplan::sim
