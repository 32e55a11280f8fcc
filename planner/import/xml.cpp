#include "planner/import/xml.hpp"

#include <algorithm>

namespace shardplan::plan {
namespace {

std::int64_t line_at(const std::vector<std::size_t>& ends, std::size_t offset) {
    return 1 + (std::lower_bound(ends.begin(), ends.end(), offset) - ends.begin());
}

} // namespace

std::int64_t Xml::line_of(const pugi::xml_node& node) const {
    const auto offset = node.offset_debug();
    return offset < 0 ? 0 : line_at(line_ends, start + static_cast<std::size_t>(offset));
}

Xml read_xml(std::string_view text, std::string_view name) {
    Xml out;
    out.document = std::make_unique<pugi::xml_document>();
    for (std::size_t at = text.find('\n'); at != std::string_view::npos;
         at = text.find('\n', at + 1)) {
        out.line_ends.push_back(at);
    }
    const std::size_t open = text.find("<" + std::string(name));
    if (open == std::string_view::npos) {
        return out;
    }
    out.start = open;
    const std::string end = "</" + std::string(name) + ">";
    const std::size_t close = text.find(end, open);
    const std::size_t size =
        close == std::string_view::npos ? text.size() - open : close + end.size() - open;
    const pugi::xml_parse_result result = out.document->load_buffer(
        text.data() + open, size, pugi::parse_default, pugi::encoding_utf8);
    if (!result) {
        out.problem = result.description();
        out.problem_line =
            line_at(out.line_ends,
                    open + static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0)));
    }
    out.root = out.document->child(std::string(name).c_str());
    return out;
}

} // namespace shardplan::plan
