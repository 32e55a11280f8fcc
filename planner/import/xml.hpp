#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <pugixml.hpp>

/// XML as people paste it. Only for .cpp files of planner/import.
namespace shardplan::plan {

struct Xml {
    std::unique_ptr<pugi::xml_document> document;
    pugi::xml_node root; ///< the element asked for; empty if there is none
    std::string problem; ///< why the end is missing; what stands before it is there
    std::int64_t problem_line = 0;
    std::vector<std::size_t> line_ends; ///< of the text before and in the element
    std::size_t start = 0;              ///< of the element

    /// The line a node stands in, from 1.
    [[nodiscard]] std::int64_t line_of(const pugi::xml_node& node) const;
};

/// The first element `name` of a text; lines of a log before and after it do not matter. A text
/// that breaks off gives what stands before.
Xml read_xml(std::string_view text, std::string_view name);

} // namespace shardplan::plan
