#include "simulator/units/in_quotes.hpp"

#include <algorithm>
#include <cstddef>

#include "simulator/units/utf8.hpp"

namespace shardplan::sim {

std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string out = "\"";
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (out.size() + std::max<std::size_t>(length, 1) > longest + 1) { // 1: the first quote
            out += "...";
            break;
        }
        const auto byte = static_cast<unsigned char>(text.front());
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += '?';
            text.remove_prefix(1);
        } else {
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    out += '"';
    return out;
}

} // namespace shardplan::sim
