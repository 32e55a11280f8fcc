#pragma once

#include <string_view>
#include <vector>

#include "planner/import/hf_config.hpp"
#include "simulator/io/catalogue.hpp"

namespace shardplan::plan {

/// A model by what a person types:
///   - a file: a Hugging Face config.json or a Shardplan model file, told apart by their content;
///   - a folder that holds a config.json;
///   - a built-in of samples/models, by its name without regard to case and separators, a hub name
///     ("meta-llama/Meta-Llama-3-8B-Instruct") or an alias ("gpt3").
/// Errors: no such file or name (with the nearest names), and those of the two readers. The result
/// has passed check_model.
sim::Result<ImportedModel> load_model(std::string_view name_or_path);

/// Every built-in, ordered by name, with its size and shape in a few words.
sim::Result<std::vector<sim::CatalogueEntry>> list_models();

} // namespace shardplan::plan
