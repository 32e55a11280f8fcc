#pragma once

#include <string_view>

#include "simulator/spec/model.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// Whether everything that reads a model may rely on it: exactly one trunk; names that are unique;
/// sizes that are positive where the kind needs them; runs that name existing block kinds; query
/// heads a multiple of key-value heads; experts per token at most experts; a kind used at one
/// hidden width; and a total below 2^62, so that sums of counts never overflow. `where` is the file
/// or name the model came from; the Error adds the path of the field. Every loader of models calls
/// it.
Status check_model(const ModelSpec& model, std::string_view where);

} // namespace shardplan::sim
