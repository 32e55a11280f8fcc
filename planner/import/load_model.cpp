#include "planner/import/load_model.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "simulator/io/catalogue_files.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/spec/parameters.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view model_folder = "samples/models";

/// What people call a built-in, beside its name. In the form of `plain`.
constexpr std::pair<std::string_view, std::string_view> aliases[] = {
    {"gpt3", "gpt-3-175b"},
    {"gpt175b", "gpt-3-175b"},
    {"gpt3175b", "gpt-3-175b"},
    {"gptsmall", "gpt2"},
    {"gpt215b", "gpt2-xl"},
    {"neox20b", "gpt-neox-20b"},
    {"megatron530b", "mt-nlg-530b"},
    {"mtnlg", "mt-nlg-530b"},
    {"gpt530b", "mt-nlg-530b"},
    {"gpt1t", "megatron-1t"},
    {"bloom", "bloom-176b"},
    {"llama27b", "llama-2-7b"},
    {"llama318b", "llama-3.1-8b"},
    {"llama3405b", "llama-3.1-405b"},
    {"mixtral", "mixtral-8x7b"},
    {"deepseekr1", "deepseek-v3"},
    {"deepseekv30324", "deepseek-v3"},
    {"kimik2", "kimi-k2"},
    {"mistralnemo", "mistral-nemo-12b"},
    {"mistralnemo2407", "mistral-nemo-12b"},
    {"phi3mini4k", "phi-3-mini"},
    {"phi3mini128k", "phi-3-mini"},
    {"nemotron415b", "nemotron-4-15b"},
};

/// Endings that name a training of the same shape.
constexpr std::array<std::string_view, 9> endings = {"instruct", "base", "chat", "hf", "it",
                                                     "v01",      "v02",  "v03",  "pt"};

/// Small letters and digits only, without what stands before the last '/' and a leading "meta".
std::string plain(std::string_view name) {
    const std::size_t slash = name.find_last_of('/');
    if (slash != std::string_view::npos) {
        name.remove_prefix(slash + 1);
    }
    std::string out;
    for (const char c : name) {
        if (c >= 'A' && c <= 'Z') {
            out += static_cast<char>(c - 'A' + 'a');
        } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
            out += c;
        }
    }
    if (out.rfind("metallama", 0) == 0) {
        out.erase(0, 4);
    }
    return out;
}

/// The built-in a name means; empty if none.
std::string built_in_of(const std::vector<std::string>& known, std::string_view name) {
    std::string wanted = plain(name);
    for (;;) {
        const auto same = [&](const std::string& k) { return plain(k) == wanted; };
        const auto hit = std::find_if(known.begin(), known.end(), same);
        if (hit != known.end()) {
            return *hit;
        }
        for (const auto& [alias, target] : aliases) {
            if (alias == wanted) {
                return std::string(target);
            }
        }
        const auto ending = std::find_if(endings.begin(), endings.end(), [&](std::string_view e) {
            return wanted.size() > e.size() && wanted.ends_with(e);
        });
        if (ending == endings.end()) {
            return {};
        }
        wanted.resize(wanted.size() - ending->size());
    }
}

sim::Result<ImportedModel> read_own(const sim::JsonValue& json) {
    sim::ReadNotes notes;
    sim::Result<sim::ModelSpec> model = sim::read_described<sim::ModelSpec>(json, &notes);
    if (!model) {
        return model.error();
    }
    if (const sim::Status status = sim::check_model(*model, json.source_name()); !status) {
        return status.error();
    }
    ImportedModel out;
    out.model = std::move(*model);
    for (sim::DefaultTaken& taken : notes.defaults_taken) {
        out.assumptions.push_back({"model." + taken.path, std::move(taken.value), "default", ""});
    }
    return out;
}

/// The model of a file by its path; a config.json is called after its folder.
std::string name_of_file(const fs::path& path) {
    if (path.stem() != "config") {
        return path.stem().string();
    }
    return path.parent_path().filename().string();
}

sim::Result<ImportedModel> read_model_file(const std::string& path) {
    const sim::Result<std::string> text = sim::read_file(path);
    if (!text) {
        return text.error();
    }
    const sim::Result<sim::JsonValue> json = sim::JsonValue::parse(*text, path);
    if (json && (json->find("block_kinds") || json->find("parts"))) {
        return read_own(*json);
    }
    sim::Result<ImportedModel> model = import_hf_config(*text, path);
    if (model) {
        const std::string name = name_of_file(path);
        if (!name.empty() && name != "." && name != "..") {
            model->model.name = name;
        }
    }
    return model;
}

sim::Result<ImportedModel> load_built_in(std::string_view name) {
    const auto known = sim::detail::names_in(model_folder);
    if (!known) {
        return known.error();
    }
    const std::string found = built_in_of(*known, name);
    if (found.empty()) {
        return sim::detail::unknown_name("model", name, *known);
    }
    sim::Result<ImportedModel> model =
        read_model_file(sim::detail::path_of_built_in(model_folder, found));
    if (model && plain(found) != plain(name)) {
        model->assumptions.push_back(
            {"model.name", found, "alias",
             "'" + std::string(name) + "' has the shape of this built-in"});
    }
    return model;
}

std::string summary_of(const sim::ModelSpec& model) {
    const sim::ParameterCounts counts = sim::count_parameters(model);
    const sim::Part& trunk = *sim::trunk_of(model);
    const sim::BlockKind& last =
        model.block_kinds[static_cast<std::size_t>(trunk.runs.back().kind)];
    std::string out = sim::group_digits(counts.total) + " parameters";
    if (counts.active != counts.total) {
        out += ", " + sim::group_digits(counts.active) + " active";
    }
    out += ", " + std::to_string(sim::block_count(trunk)) + " blocks of " +
           std::to_string(trunk.hidden);
    if (last.ffn.kind == sim::FfnKind::moe) {
        out += ", " + std::to_string(last.ffn.top_k) + " of " + std::to_string(last.ffn.experts) +
               " experts";
    }
    return out;
}

} // namespace

sim::Result<ImportedModel> load_model(std::string_view name_or_path) {
    if (name_or_path.empty()) {
        return sim::Error{sim::ErrorCode::bad_input, "--model", "no model is named",
                          "a built-in such as llama-3-8b, or the path of a config.json"};
    }
    const std::string text(name_or_path);
    std::error_code error;
    if (fs::is_directory(text, error)) {
        const fs::path config = fs::path(text) / "config.json";
        if (!fs::exists(config, error)) {
            return sim::Error{sim::ErrorCode::not_found, text, "the folder holds no config.json",
                              "a folder as downloaded from the hub, or a file"};
        }
        sim::Result<ImportedModel> model = read_model_file(config.string());
        if (model && model->model.name.empty()) {
            model->model.name = "model";
        }
        return model;
    }
    if (fs::exists(text, error)) {
        return read_model_file(text);
    }
    // A hub name has a '/' too; only what cannot be one is certainly a missing file.
    const bool file_like = text.ends_with(".json") || text.front() == '.' || text.front() == '/';
    if (file_like) {
        const sim::Result<std::string> missing = sim::read_file(text);
        if (!missing) {
            return missing.error();
        }
    }
    return load_built_in(text);
}

sim::Result<std::vector<sim::CatalogueEntry>> list_models() {
    const auto names = sim::detail::names_in(model_folder);
    if (!names) {
        return names.error();
    }
    std::vector<sim::CatalogueEntry> entries;
    for (const std::string& name : *names) {
        const auto model = read_model_file(sim::detail::path_of_built_in(model_folder, name));
        if (!model) {
            return model.error();
        }
        entries.push_back({name, summary_of(model->model)});
    }
    return entries;
}

} // namespace shardplan::plan
