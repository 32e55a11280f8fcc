#pragma once

#include <string>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/model/parameters.hpp"

namespace shardplan::exec {

/// Elements `begin` to `end` - 1 of a rank's part of a parameter, or of a state kept for each of
/// its elements in the same order (`suffix`: of its name); `data`: the first of them. Vectors have
/// one dimension. Rows that only fill up a table are left out.
TensorPart state_part(const Parameter& parameter, const std::string& suffix, exec::Scalar scalar,
                      Index begin, Index end, std::byte* data);

} // namespace shardplan::exec
