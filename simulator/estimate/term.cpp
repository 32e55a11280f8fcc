#include "simulator/estimate/term.hpp"

#include <utility>

namespace shardplan::sim {

TermRecorder::TermRecorder(std::string path, std::string label, Dimension dimension)
    : dimension_(dimension) {
    Term root;
    root.path = std::move(path);
    root.label = std::move(label);
    root.dimension = dimension;
    open_.push_back(std::move(root));
}

void TermRecorder::enter(std::string_view name, std::string_view label, std::string_view formula) {
    Term node;
    node.path = open_.back().path + "." + std::string(name);
    node.label = std::string(label);
    node.dimension = dimension_;
    node.formula = std::string(formula);
    open_.push_back(std::move(node));
}

void TermRecorder::leaf(std::string_view name, std::string_view label, double value,
                        std::string_view formula, std::string detail) {
    Term node;
    node.path = open_.back().path + "." + std::string(name);
    node.label = std::string(label);
    node.value = value;
    node.dimension = dimension_;
    node.formula = std::string(formula);
    node.detail = std::move(detail);
    open_.back().children.push_back(std::move(node));
}

void TermRecorder::leave() {
    if (open_.size() < 2) return;
    Term node = std::move(open_.back());
    open_.pop_back();
    for (const Term& child : node.children)
        node.value += child.value;
    open_.back().children.push_back(std::move(node));
}

Term TermRecorder::take() {
    while (open_.size() > 1)
        leave();
    Term root = std::move(open_.front());
    open_.clear();
    for (const Term& child : root.children)
        root.value += child.value;
    return root;
}

const Term* find_term(const Term& root, std::string_view path) {
    const std::string& own = root.path;
    const bool is_suffix =
        own.size() > path.size() && own.ends_with(path) && own[own.size() - path.size() - 1] == '.';
    if (own == path || is_suffix) return &root;
    for (const Term& child : root.children) {
        if (const Term* found = find_term(child, path)) return found;
    }
    return nullptr;
}

namespace {

void collect_paths(const Term& term, std::vector<std::string>& out) {
    out.push_back(term.path);
    for (const Term& child : term.children)
        collect_paths(child, out);
}

} // namespace

std::vector<std::string> term_paths(const Term& root) {
    std::vector<std::string> out;
    collect_paths(root, out);
    return out;
}

double sum_of_leaves(const Term& term) {
    if (term.children.empty()) return term.value;
    double sum = 0.0;
    for (const Term& child : term.children)
        sum += sum_of_leaves(child);
    return sum;
}

} // namespace shardplan::sim
