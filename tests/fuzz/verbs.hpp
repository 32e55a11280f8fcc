#pragma once

#include <sstream>
#include <string>

#include "planner/cli/verbs.hpp"
#include "simulator/units/result.hpp"
#include "tests/fuzz/harness.hpp"

namespace shardplan::fuzz {

/// Runs a verb as a person would, with the human output.
template <class Verb, class Options>
Outcome run_verb(Verb verb, const Options& options) {
    std::ostringstream out;
    std::ostringstream err;
    const plan::cli::Console console{out, err};
    Outcome outcome;
    outcome.code = verb(options, console);
    outcome.err = err.str();
    return outcome;
}

/// The outcome of a reader that is called directly.
template <class T>
Outcome outcome_of(const sim::Result<T>& result) {
    if (result) {
        return {};
    }
    std::ostringstream out;
    std::ostringstream err;
    const plan::cli::Console console{out, err};
    const int code = plan::cli::fail(console, result.error());
    return {code, err.str()};
}

} // namespace shardplan::fuzz
