#pragma once

#include <string>

namespace shardplan::sim {

/// A value nobody stated: what was taken, and why. Every default taken becomes one.
struct Assumption {
    std::string path;   ///< "model.attention.kv_heads", "job.optimizer.kind"
    std::string value;  ///< as a person would write it
    std::string origin; ///< "class default of gemma3_text", "stack megatron-core", "default"
    std::string note;   ///< what it decides, if that is not plain

    friend bool operator==(const Assumption&, const Assumption&) = default;
};

} // namespace shardplan::sim
