#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/assumption.hpp"
#include "simulator/spec/model.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan {

/// A model read from somebody else's file, with everything that had to be assumed.
struct ImportedModel {
    sim::ModelSpec model;
    std::vector<sim::Assumption> assumptions;
    /// Size keys the file leaves out and whose class default (or a value derived as the class
    /// does) was taken, in the order they were looked for.
    std::vector<std::string> omitted;
    std::string checkpoint_dtype; ///< of the published weights, as the file says; empty: not said
    std::string quantization;     ///< method of quantization_config; empty: none

    friend bool operator==(const ImportedModel&, const ImportedModel&) = default;
};

/// Reads a Hugging Face config.json: every family of planner/import/hf_families.cpp, nested text
/// configs, and models of unknown type whose keys are those of a llama. Never runs remote code:
/// a model with auto_map is read by its keys.
///
/// The counts are those of the published architecture (see ParameterCounts). What the file leaves
/// out takes the default of the transformers class, each recorded as an Assumption; where no
/// default is known the Error lists every missing field. `source_name` is the file, for errors.
/// The result has passed check_model.
sim::Result<ImportedModel> import_hf_config(std::string_view text, std::string_view source_name);

} // namespace shardplan::plan
