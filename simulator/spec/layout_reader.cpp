#include "simulator/spec/layout_reader.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim::layout_reader {

Error Reader::error(std::string what, std::string hint) const {
    return Error{ErrorCode::bad_input, std::string(where),
                 fmt::format("{}: {}", in_quotes(term), what), std::move(hint)};
}

Status Reader::take(std::string_view slot) {
    if (std::find(seen.begin(), seen.end(), slot) != seen.end()) {
        return error(fmt::format("{} is set a second time", slot),
                     fmt::format("keep one of the terms that set {}", slot));
    }
    seen.push_back(slot);
    return Done{};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(end + 1);
    }
}

Result<std::int64_t> read_count(const Reader& r, std::string_view name, std::string_view digits,
                                std::int64_t max) {
    if (digits.empty()) {
        return r.error(fmt::format("{} needs a number", name), fmt::format("write {}2", name));
    }
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, code] = std::from_chars(digits.data(), end, value);
    if (code == std::errc::result_out_of_range && stop == end) {
        return r.error(fmt::format("{} is at most {}", name, max),
                       fmt::format("write {}{} or less", name, max));
    }
    if (code != std::errc() || stop != end || digits.front() == '-') {
        return r.error(fmt::format("{} is no whole number", in_quotes(digits)),
                       fmt::format("write a whole number, as in {}2", name));
    }
    const std::string_view noun = name.ends_with(' ') ? name.substr(0, name.size() - 1) : name;
    if (value < 1) {
        return r.error(fmt::format("{} is at least 1", noun),
                       fmt::format("write {}1, or leave {} out", name, name));
    }
    if (value > max) {
        return r.error(fmt::format("{} is at most {}", name, max),
                       fmt::format("write {}{} or less", name, max));
    }
    return value;
}

Result<std::int64_t> read_fraction(const Reader& r, std::string_view text) {
    const std::string hint = "write a fraction from 0.001 to 1.0, as in off=opt:0.5:host";
    const std::size_t dot = text.find('.');
    const std::string_view whole = text.substr(0, dot);
    std::string_view decimals =
        dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
    while (decimals.size() > 3 && decimals.back() == '0') {
        decimals.remove_suffix(1);
    }
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if ((whole != "0" && whole != "1") || decimals.size() > 3 ||
        !std::all_of(decimals.begin(), decimals.end(), is_digit)) {
        return r.error(fmt::format("{} is no fraction in thousandths", in_quotes(text)), hint);
    }
    std::int64_t thousandths = whole == "1" ? offload_scale : 0;
    std::int64_t weight = offload_scale / 10;
    for (const char c : decimals) {
        thousandths += (c - '0') * weight;
        weight /= 10;
    }
    if (thousandths < 1 || thousandths > offload_scale) {
        return r.error(fmt::format("{} is outside 0.001 to 1.0", in_quotes(text)), hint);
    }
    return thousandths;
}

Error unknown_word(const Reader& r, std::string_view what, std::string_view text,
                   std::span<const std::string_view> names) {
    return r.error(fmt::format("{} is no {}", in_quotes(text), what), nearest_hint(text, names));
}

} // namespace shardplan::sim::layout_reader
