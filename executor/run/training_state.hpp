#pragma once

#include <string>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/model/parameters.hpp"

namespace shardplan::exec {

/// What a rank holds of a parameter, or of a state kept for each of its elements in the same order
/// (`suffix`: of its name), `data`: its first element. Vectors have one dimension.
TensorPart state_part(const Parameter& parameter, const std::string& suffix, exec::Scalar scalar,
                      std::byte* data);

} // namespace shardplan::exec
