#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/import/hf_config.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan {

/// What `shardplan model` says about the size of a model.
struct ModelReport {
    sim::ParameterCounts counts;
    std::int64_t text_params = 0; ///< the trunk with embedding and head, without other parts
    std::int64_t moe_layers = 0;  ///< blocks of the trunk with routed experts
    /// Tensor-parallel degree and rows of the token table after padding to a multiple of 128 times
    /// the degree.
    std::vector<std::pair<std::int64_t, std::int64_t>> padded_vocab;
    std::vector<std::string> omitted; ///< size keys whose class default was taken

    friend bool operator==(const ModelReport&, const ModelReport&) = default;
};

ModelReport report_model(const ImportedModel& model);

/// Adds to the object that is open: `params`, `params_without_mtp`, `active_params`,
/// `active_params_without_mtp`, `text_params`, `moe_layers`, `padded_vocab`, `omitted`, and
/// `parameters` {`total`, `active`, `embedding`, `mtp`, `parts`, `block_kinds`}. `params` and
/// `active_params` never include MTP modules, so they equal their namesakes.
void write_model_report(sim::JsonWriter& json, const ModelReport& report);

} // namespace shardplan::plan
