#pragma once

#include "simulator/spec/model.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Whether the executor can train this model: the first thing it cannot do, by the path of its
/// field, with what to write instead.
sim::Status check_model(const sim::ModelSpec& model);

} // namespace shardplan::exec
