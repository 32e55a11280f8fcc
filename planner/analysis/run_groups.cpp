#include "planner/analysis/run_groups.hpp"

#include <algorithm>
#include <map>

namespace shardplan::plan {
namespace {

/// The root of a tree of indices in which every node names its parent.
std::size_t root_of(const std::vector<std::size_t>& parents, std::size_t node) {
    while (parents[node] != node) {
        node = parents[node];
    }
    return node;
}

} // namespace

std::string place_of(std::string_view source) {
    constexpr std::string_view paper = "arXiv ";
    if (source.starts_with(paper)) {
        return std::string(source.substr(0, source.find(' ', paper.size())));
    }
    const std::string_view first = source.substr(0, source.find_first_of(";, "));
    const std::size_t colon = first.find(':');
    const std::size_t slash = first.find('/');
    if (colon == std::string_view::npos || slash > colon) {
        return std::string(source);
    }
    const std::string_view file = first.substr(colon + 1);
    const std::size_t folder = file.rfind('/');
    const std::size_t revision = std::min(first.find('@'), colon);
    return std::string(first.substr(0, revision)) + ":" +
           std::string(file.substr(0, folder == std::string_view::npos ? 0 : folder));
}

std::vector<std::vector<std::string>> independent_groups(
    const std::vector<sim::RunRecord>& records) {
    std::vector<std::string> names;
    std::map<std::string, std::size_t> index_of;
    std::map<std::string, std::size_t> first_at; // place -> group that named it first
    std::vector<std::size_t> parents;
    for (const sim::RunRecord& record : records) {
        const auto [entry, is_new] = index_of.try_emplace(record.group, names.size());
        if (is_new) {
            names.push_back(record.group);
            parents.push_back(entry->second);
        }
        if (record.source.empty()) {
            continue;
        }
        const auto [place, first] = first_at.try_emplace(place_of(record.source), entry->second);
        if (!first) {
            const std::size_t a = root_of(parents, entry->second);
            const std::size_t b = root_of(parents, place->second);
            parents[std::max(a, b)] = std::min(a, b);
        }
    }
    std::vector<std::vector<std::string>> joined(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        joined[root_of(parents, i)].push_back(names[i]);
    }
    std::erase_if(joined, [](const auto& group) { return group.empty(); });
    return joined;
}

} // namespace shardplan::plan
