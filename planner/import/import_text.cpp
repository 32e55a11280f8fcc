#include "planner/import/import_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan::text {
namespace {

constexpr char escape = '\x1b';

/// The place behind an escape code that begins at `at`.
std::size_t skip_escape(std::string_view text, std::size_t at) {
    ++at;
    if (at >= text.size()) {
        return at;
    }
    if (text[at] == '[') { // CSI: parameters, then a letter
        ++at;
        while (at < text.size() && (text[at] < '@' || text[at] > '~')) {
            if (text[at] == '\t' || text[at] == escape) {
                return at; // a code that was cut off
            }
            ++at;
        }
        return std::min(at + 1, text.size());
    }
    if (text[at] == ']') { // OSC: up to BEL or the next escape
        while (at < text.size() && text[at] != '\a' && text[at] != escape) {
            ++at;
        }
        return std::min(at + 1, text.size());
    }
    return at + 1;
}

std::string without_controls(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == escape) {
            i = skip_escape(text, i);
            continue;
        }
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x20 || byte == '\t') {
            out += text[i];
        }
        ++i;
    }
    return out;
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

} // namespace

std::vector<Line> lines_of(std::string_view text) {
    if (text.substr(0, 3) == "\xEF\xBB\xBF") {
        text.remove_prefix(3);
    }
    std::vector<Line> out;
    std::int64_t number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        out.push_back({++number, without_controls(text.substr(0, end))});
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

std::string_view trim(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_blank(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> out;
    std::size_t at = 0;
    while (at < text.size()) {
        while (at < text.size() && is_blank(text[at])) {
            ++at;
        }
        const std::size_t start = at;
        while (at < text.size() && !is_blank(text[at])) {
            ++at;
        }
        if (at > start) {
            out.push_back(text.substr(start, at - start));
        }
    }
    return out;
}

std::vector<std::string_view> split(std::string_view text, char sign) {
    std::vector<std::string_view> out;
    for (;;) {
        const std::size_t end = text.find(sign);
        out.push_back(trim(text.substr(0, end)));
        if (end == std::string_view::npos) {
            return out;
        }
        text.remove_prefix(end + 1);
    }
}

bool holds(std::string_view text, std::string_view word) {
    return text.find(word) != std::string_view::npos;
}

std::optional<std::int64_t> whole(std::string_view text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) {
        return std::nullopt;
    }
    return value;
}

std::optional<double> decimal(std::string_view text) {
    double value = 0.0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(value)) {
        return std::nullopt;
    }
    return value;
}

std::optional<std::int64_t> leading_whole(std::string_view text) {
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
        ++digits;
    }
    return whole(text.substr(0, digits));
}

std::string counted(std::int64_t count, std::string_view noun) {
    const bool es = noun.ends_with("ch");
    return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : es ? "es" : "s");
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
    std::string out;
    const std::size_t shown = std::min(names.size(), most);
    for (std::size_t i = 0; i < shown; ++i) {
        const bool last = i + 1 == shown && shown == names.size();
        out += (i == 0 ? "" : last ? " and " : ", ") + names[i];
    }
    if (shown < names.size()) {
        out += " and " + std::to_string(names.size() - shown) + " more";
    }
    return out;
}

} // namespace shardplan::plan::text
