#include "planner/import/xml.hpp"

#include <algorithm>

#include <pugixml.hpp>

namespace shardplan::plan {
namespace {

constexpr int deepest = 64;

/// Lines of a text by offset.
class Lines {
public:
    explicit Lines(std::string_view text) {
        for (std::size_t at = text.find('\n'); at != std::string_view::npos;
             at = text.find('\n', at + 1)) {
            ends_.push_back(at);
        }
    }
    [[nodiscard]] std::int64_t at(std::size_t offset) const {
        return 1 + (std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    }

private:
    std::vector<std::size_t> ends_;
};

XmlElement element_of(const pugi::xml_node& node, const Lines& lines, std::size_t start,
                      int depth) {
    XmlElement out;
    out.name = node.name();
    out.line = lines.at(start +
                        static_cast<std::size_t>(std::max<std::ptrdiff_t>(node.offset_debug(), 0)));
    for (const pugi::xml_attribute attribute : node.attributes()) {
        out.attributes.emplace_back(attribute.name(), attribute.value());
    }
    for (const pugi::xml_node child : node.children()) {
        if (child.type() == pugi::node_element && depth < deepest) {
            out.children.push_back(element_of(child, lines, start, depth + 1));
        }
    }
    return out;
}

} // namespace

std::string_view XmlElement::attribute(std::string_view key) const {
    for (const auto& [name_of_it, value] : attributes) {
        if (name_of_it == key) {
            return value;
        }
    }
    return {};
}

bool XmlElement::has(std::string_view key) const {
    return std::any_of(attributes.begin(), attributes.end(),
                       [&](const auto& attribute) { return attribute.first == key; });
}

const XmlElement* XmlElement::child(std::string_view wanted) const {
    const auto at = std::find_if(children.begin(), children.end(),
                                 [&](const XmlElement& one) { return one.name == wanted; });
    return at == children.end() ? nullptr : &*at;
}

Xml read_xml(std::string_view text, std::string_view name) {
    Xml out;
    const std::size_t open = text.find("<" + std::string(name));
    if (open == std::string_view::npos) {
        return out;
    }
    const std::string end = "</" + std::string(name) + ">";
    const std::size_t close = text.find(end, open);
    const std::size_t size =
        close == std::string_view::npos ? text.size() - open : close + end.size() - open;
    const Lines lines(text);
    pugi::xml_document document;
    const pugi::xml_parse_result result =
        document.load_buffer(text.data() + open, size, pugi::parse_default, pugi::encoding_utf8);
    if (!result) {
        out.problem = result.description();
        out.problem_line =
            lines.at(open + static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0)));
    }
    if (const pugi::xml_node root = document.child(std::string(name).c_str())) {
        out.root = element_of(root, lines, open, 0);
    }
    return out;
}

} // namespace shardplan::plan
