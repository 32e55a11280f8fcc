#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/legality.hpp"

/// The parts of the table of legality rules, for the files that make it up.
namespace shardplan::sim {

std::span<const LegalityRule> input_rules();   ///< model, job and stack as such
std::span<const LegalityRule> degree_rules();  ///< what must divide what
std::span<const LegalityRule> feature_rules(); ///< what the stack can express

/// Legal values of a degree ("tp", "pp", "cp", "ep", "etp", "dp", "mb", "v") around the one in the
/// layout: the next one below and above for which no rule of that field is broken, as terms.
std::vector<std::string> nearest_degrees(const LegalityCase& c, std::string_view field);

/// The members of `allowed` as terms, closest to `value` first, at most four.
std::vector<std::string> nearest_of(const std::vector<std::int64_t>& allowed, std::int64_t value,
                                    std::string_view field);

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

/// The names of the members of a list.
template <class E>
std::vector<std::string> names_of(const std::vector<E>& list, std::string_view prefix = "") {
    std::vector<std::string> out;
    for (const E value : list) {
        out.push_back(std::string(prefix) + std::string(name_of(value)));
    }
    return out;
}

} // namespace shardplan::sim
