#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/layout.hpp"

/// Helpers of the reader of layouts' text form; only layout_parse.cpp and its helper include this.
namespace shardplan::sim::layout_reader {

/// What has been read so far, and of which terms.
struct Reader {
    ParsedLayout out;
    LayoutTables& tables;
    std::string_view where;
    std::string_view term;                ///< the one being read
    std::vector<std::string_view> seen{}; ///< slots that are taken

    [[nodiscard]] Error error(std::string what, std::string hint) const;
    /// Takes a slot; an Error if an earlier term has set it.
    [[nodiscard]] Status take(std::string_view slot);
};

std::vector<std::string_view> split(std::string_view text, char separator);

/// A whole number from 1 to `max`; `name` is what stands before it.
Result<std::int64_t> read_count(const Reader& r, std::string_view name, std::string_view digits,
                                std::int64_t max);

/// An offloaded fraction, 0.001 to 1, in thousandths.
Result<std::int64_t> read_fraction(const Reader& r, std::string_view text);

/// Reads a degree into a member of the layout.
template <class T>
Status read_degree(Reader& r, std::string_view name, std::string_view digits, std::int64_t max,
                   T& target) {
    if (Status taken = r.take(name); !taken) {
        return taken;
    }
    const Result<std::int64_t> value = read_count(r, name, digits, max);
    if (!value) {
        return value.error();
    }
    target = static_cast<T>(*value);
    return Done{};
}

/// The Error of a word that is none of `names`.
Error unknown_word(const Reader& r, std::string_view what, std::string_view text,
                   std::span<const std::string_view> names);

/// Reads a word of an enum; `what` names the enum in the Error.
template <class E>
Status read_choice(const Reader& r, std::string_view what, std::string_view text, E& target) {
    const std::optional<E> value = enum_from<E>(text);
    if (!value) {
        return unknown_word(r, what, text, EnumNames<E>::names);
    }
    target = *value;
    return Done{};
}

} // namespace shardplan::sim::layout_reader
