#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// XML as people paste it: elements and attributes, without text between them.
namespace shardplan::plan {

struct XmlElement {
    std::string name; ///< empty: there is none
    std::vector<std::pair<std::string, std::string>> attributes;
    std::vector<XmlElement> children;
    std::int64_t line = 0; ///< from 1

    /// The value of an attribute; empty where it is absent.
    [[nodiscard]] std::string_view attribute(std::string_view key) const;
    [[nodiscard]] bool has(std::string_view key) const;
    /// The first child of this name; nullptr: there is none.
    [[nodiscard]] const XmlElement* child(std::string_view wanted) const;
};

struct Xml {
    XmlElement root;     ///< the element asked for
    std::string problem; ///< why the end is missing; what stands before it is there
    std::int64_t problem_line = 0;
};

/// The first element `name` of a text; lines of a log before and after it do not matter. A text
/// that breaks off gives what stands before. Elements deeper than 64 are left out.
Xml read_xml(std::string_view text, std::string_view name);

} // namespace shardplan::plan
