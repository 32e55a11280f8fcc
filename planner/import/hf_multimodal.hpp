#pragma once

#include <string>
#include <vector>

#include "planner/import/hf_reader.hpp"
#include "simulator/spec/model.hpp"

namespace shardplan::plan::hf {

/// Where the language model stands in a config.
struct TextPlace {
    std::vector<sim::JsonValue> objects; ///< from the root to the text config
    std::vector<std::string> keys;       ///< the steps between them
    std::string model_type;              ///< stated, or what the objects around it imply
    std::string implied_by;              ///< the outer model_type it was taken from; empty: stated

    [[nodiscard]] const sim::JsonValue& object() const { return objects.back(); }
    /// "thinker_config.text_config."; empty at the root.
    [[nodiscard]] std::string prefix() const;
};

/// Descends through text_config, llm_config, language_config, thinker_config and the like.
TextPlace find_text(const sim::JsonValue& root);

/// Adds what stands beside the language model (vision and audio towers, projectors, talkers) as
/// parts of their own: counted where the keys suffice, else held with an Assumption that says that
/// nothing was counted.
void add_other_parts(const TextPlace& place, sim::ModelSpec& model, Findings& findings);

} // namespace shardplan::plan::hf
