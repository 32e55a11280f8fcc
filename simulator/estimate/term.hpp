#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/text.hpp"

namespace shardplan::sim {

/// One number with the numbers it is made of. The children of a node add up to it.
struct Term {
    std::string path;   ///< "memory.weights", "time.tp_comm"
    std::string label;  ///< a few words
    double value = 0.0; ///< base units of `dimension`
    Dimension dimension = Dimension::scalar;
    std::string formula; ///< id of the formula, "mem.weights"
    std::string detail;  ///< the formula with its numbers: "2 B x 262 668 288 parameters"
    std::string source;  ///< where the formula or the constant comes from
    std::vector<Term> children;

    friend bool operator==(const Term&, const Term&) = default;
};

/// Receives the leaves of a computation; formulas are templates on it. NullRecorder compiles away.
struct NullRecorder {
    static constexpr bool active = false;
};

/// Builds a Term tree while the same formulas run. `enter` and `leave` bracket a node; `leaf` adds
/// one number below the node that is open.
class TermRecorder {
public:
    static constexpr bool active = true;
    TermRecorder(std::string path, std::string label, Dimension dimension);
    void enter(std::string_view name, std::string_view label, std::string_view formula);
    void leaf(std::string_view name, std::string_view label, double value, std::string_view formula,
              std::string detail);
    /// Closes the open node; its value is the sum of its children in order.
    void leave();
    /// The finished tree; every node is closed.
    [[nodiscard]] Term take();

private:
    Dimension dimension_;
    std::vector<Term> open_;
};

/// The node of `path` in a tree ("memory.activations" or a suffix); nullptr if there is none.
const Term* find_term(const Term& root, std::string_view path);
/// All paths of a tree, for hints.
std::vector<std::string> term_paths(const Term& root);
/// Sum of the leaves below a term, in order.
double sum_of_leaves(const Term& term);

} // namespace shardplan::sim
