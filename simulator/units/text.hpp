#pragma once

#include <string>
#include <string_view>

#include "simulator/units/quantity.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// The dimensions people write in files; `scalar` has no unit.
enum class Dimension { scalar, bytes, seconds, flops, bandwidth, flop_rate, watts };

/// "bytes", "bandwidth", ...; "number" for scalar.
std::string_view name_of_dimension(Dimension dimension);

/// The one place where text becomes an amount: "80 GiB", "400 Gbit/s", "10 us", "989 TFLOP/s",
/// "700 W". Returns base units. A bare number is refused (except 0), an unknown or wrong unit is
/// refused with the accepted ones; `where` names the file and field in the Error.
Result<double> parse_quantity(std::string_view text, Dimension dimension, std::string_view where);

/// The one place where an amount becomes text for people: 3 significant digits, memory in binary
/// units (GiB), rates in decimal ones (GB/s, TFLOP/s), times scaled (us, ms, s, h).
std::string format_quantity(double base, Dimension dimension);

/// Text that `parse_quantity` turns back into exactly the same double; for files we write.
std::string format_exact(double base, Dimension dimension);

inline std::string to_text(Bytes v) { return format_quantity(v.value(), Dimension::bytes); }
inline std::string to_text(Seconds v) { return format_quantity(v.value(), Dimension::seconds); }
inline std::string to_text(Flops v) { return format_quantity(v.value(), Dimension::flops); }
inline std::string to_text(Bandwidth v) { return format_quantity(v.value(), Dimension::bandwidth); }
inline std::string to_text(FlopRate v) { return format_quantity(v.value(), Dimension::flop_rate); }

/// 8030261248 as "8 030 261 248": exact, for counts that must be checked by eye.
std::string group_digits(long long count);

/// The accepted unit spellings of a dimension, for hints and schemas: "B, KB, KiB, ...".
std::string_view accepted_units(Dimension dimension);

/// A regular expression (ECMA 262, anchored) of the text `parse_quantity` accepts, for schemas.
std::string quantity_pattern(Dimension dimension);

} // namespace shardplan::sim
