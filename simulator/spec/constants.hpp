#pragma once

#include <functional>
#include <string>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// Sees one Constant where it stands: its path ("stack.time.launch"), what the field means, and the
/// Constant itself, which it may change.
using ConstantLook =
    std::function<void(const std::string& path, const FieldMeta& meta, Constant& constant)>;

namespace detail {
void walk_constants(ObjectAccess& root, const std::string& path, const ConstantLook& look);
} // namespace detail

/// Shows every Constant of a described value, in the order of its fields. `path` is that of the
/// value: it begins every path, followed by a dot.
template <Described T>
void for_each_constant(T& root, const std::string& path, const ConstantLook& look) {
    FieldsOf<T> fields(root);
    detail::walk_constants(fields, path, look);
}

} // namespace shardplan::sim
