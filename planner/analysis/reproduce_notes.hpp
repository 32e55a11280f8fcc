#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/assumption.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/result.hpp"

/// Small helpers shared by the files that turn a run record into a scenario.
namespace shardplan::plan {

inline void note(std::vector<sim::Assumption>& notes, std::string path, std::string value,
                 std::string origin, std::string why = "") {
    notes.push_back({std::move(path), std::move(value), std::move(origin), std::move(why)});
}

inline sim::Error missing(std::string path) {
    std::string what = path + " is missing";
    return {sim::ErrorCode::bad_input, std::move(path), std::move(what),
            "a run cannot be predicted without it"};
}

inline sim::Error unusable(std::string path, std::string what) {
    return {sim::ErrorCode::bad_input, std::move(path), std::move(what),
            "correct the record, or leave it out"};
}

/// In lower case, for words that sources spell in many ways; empty: nothing.
inline std::string lower(const std::optional<std::string>& text) {
    return text ? sim::lower_case(*text) : std::string();
}

inline bool has_word(std::string_view text, std::string_view word) {
    return text.find(word) != std::string_view::npos;
}

} // namespace shardplan::plan
