#pragma once

#include <string>
#include <string_view>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

namespace detail {
std::string schema_of(ObjectAccess& fields, std::string_view title, std::string_view id);
} // namespace detail

/// A JSON Schema (2020-12) of the files `read_described<T>` accepts, made from `describe`:
/// quantities are text with one of the accepted units or the number 0, keys that are not known are
/// refused, defaults and sentences are those of the fields. Bounds of quantities stand in their
/// description, since a schema cannot compare text; repeated keys cannot be told at all.
template <Described T>
std::string schema_of(std::string_view title, std::string_view id) {
    T value{};
    FieldsOf<T> fields(value);
    return detail::schema_of(fields, title, id);
}

} // namespace shardplan::sim
