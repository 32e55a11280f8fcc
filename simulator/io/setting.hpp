#pragma once

#include <string_view>
#include <utility>

#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

namespace detail {
/// As below, in place; after an Error the value is in an unspecified state.
Status apply_setting(ObjectAccess& root, std::string_view path, std::string_view value_text,
                     std::string_view where);
} // namespace detail

/// Sets one field of a described value from text, as `--set sequence.mean=8192` does; `root` is
/// unchanged after an Error.
///
/// `path`: keys joined by dots; element i of a list as `[i]` or `.i`; an element of a map by its
/// key, in braces if it has dots or brackets itself ("limits.{a.b}.value").
/// `value_text`: as in a file but without quotes: "8192", "80 GiB", "true", a choice, any text;
/// "null" empties an optional field; a whole list as "1,2,4" or JSON; a group of fields as JSON.
/// `where` begins the Error (the flag). Errors: no such field (with the nearest path), and those of
/// `read_described`.
template <Described T>
Status apply_setting(T& root, std::string_view path, std::string_view value_text,
                     std::string_view where) {
    T changed = root;
    FieldsOf<T> fields(changed);
    Status status = detail::apply_setting(fields, path, value_text, where);
    if (status) {
        root = std::move(changed);
    }
    return status;
}

} // namespace shardplan::sim
