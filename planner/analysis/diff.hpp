#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/vary.hpp"
#include "simulator/io/document.hpp"

/// Two plans beside one another, term by term.
namespace shardplan::plan {

/// One plan with its figures. `scenario` is that of the document it came from.
struct DiffSide {
    std::string name; ///< file, or what stands for it
    sim::Scenario scenario;
    PricedLayout priced;
    sim::Headline promised; ///< what the document said when it was written
    bool has_promise = false;
};

/// A figure of both; 0 where a side has none. Base units.
struct DiffTerm {
    std::string name;
    double a = 0.0;
    double b = 0.0;

    [[nodiscard]] double change() const { return b - a; }
    friend bool operator==(const DiffTerm&, const DiffTerm&) = default;
};

/// Sorts by the size of the change, equal ones as they were.
void largest_first(std::vector<DiffTerm>& terms);
/// The name of a kind in words: "tp comm".
std::string kind_in_words(std::string_view name);

/// A text of both; empty where a side has no such field.
struct DiffField {
    std::string path;
    std::string a;
    std::string b;

    friend bool operator==(const DiffField&, const DiffField&) = default;
};

struct PlanDiff {
    std::vector<DiffField> inputs; ///< that differ, in the order of the inputs
    std::vector<DiffField> layout; ///< terms of the layout that differ
    std::vector<DiffTerm> memory; ///< bytes at the peak of the deciding class, largest change first
    std::vector<DiffTerm> host;   ///< bytes of host memory of that class by phase
    std::vector<DiffTerm> time;   ///< exposed seconds, largest change first; adds up to the step
    std::vector<DiffTerm> hidden; ///< seconds of communication under compute
    std::vector<DiffTerm> links;  ///< bytes one device sends per step, by dimension
    std::vector<std::string> stale; ///< sides whose document promised something else, in words
};

/// A plan of a document, from 1, priced as of now. Errors: no such plan; what vary refuses.
sim::Result<DiffSide> diff_side(const sim::Document& document, std::string_view name,
                                std::int64_t plan);

/// Inputs of two scenarios that differ, in the order of the fields.
std::vector<DiffField> diff_inputs(const sim::Scenario& a, const sim::Scenario& b);

/// Terms of two layouts in text form that differ.
std::vector<DiffField> diff_layouts(const std::string& a, const std::string& b);

/// Both must be legal.
PlanDiff diff_plans(const DiffSide& a, const DiffSide& b);

} // namespace shardplan::plan
