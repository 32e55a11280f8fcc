// Model configs of other people and our own model files.
#include "tests/fuzz/verbs.hpp"

int main() {
    using namespace shardplan;
    const auto read = [](const std::string& text) {
        return fuzz::run_verb(plan::cli::run_model,
                              plan::cli::ModelOptions{fuzz::as_file(text), {}});
    };
    auto configs = fuzz::tree_files("tests/data/inputs", "config.json", 40);
    for (const char* file : {"config_explicit_head_dim", "config_gpt2_style", "config_mpt_style",
                             "config_moe_shared_interleaved", "config_multimodal_text_config",
                             "config_nas_block_configs", "config_bigcode_multiquery",
                             "config_multimodal_defaults_omitted"}) {
        configs.push_back(fuzz::tree_file(std::string("tests/data/inputs/") + file + ".json"));
    }
    return fuzz::run({
        {"configs", configs, read},
        {"model files", fuzz::tree_files("samples/models", ".json", 60), read},
    });
}
