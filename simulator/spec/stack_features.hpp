#pragma once

#include "simulator/spec/stack.hpp"

namespace shardplan::sim {

/// Changes the rules and formats of a profile to what it does with `feature` on.
void apply_rules_of(Feature feature, StackProfile& stack);

/// What a feature is, in a few words.
std::string_view doc_of(Feature feature);

} // namespace shardplan::sim
