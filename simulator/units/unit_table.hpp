#pragma once

#include <span>
#include <string_view>

#include "simulator/units/text.hpp"

/// The units of each dimension, for the two directions of text.hpp; nobody else needs them.
namespace shardplan::sim::detail {

enum class Spelling { main, alias };

/// base = number x 10^decimal x factor. The power of ten is kept apart so that it can be joined to
/// the exponent of the number before the one rounding, which makes "3.35 TB/s" the nearest double.
struct Unit {
    std::string_view name;
    int decimal = 0;
    double factor = 1.0; ///< a power of two, or a small whole number
    Spelling spelling = Spelling::main;
};

/// What one dimension is called and which of its units a message proposes.
struct DimensionWords {
    std::span<const Unit> units;
    std::string_view noun;
    std::string_view example_unit;
    std::string_view accepted;
};

DimensionWords words_of(Dimension dimension);

/// The unit spelled `name`, alias or not; nullptr if the dimension has none.
const Unit* find_unit(Dimension dimension, std::string_view name);

} // namespace shardplan::sim::detail
