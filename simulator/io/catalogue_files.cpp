#include "simulator/io/catalogue_files.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "simulator/io/data_dir.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim::detail {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view extension = ".json";

} // namespace

Result<std::vector<std::string>> names_in(std::string_view folder) {
    const std::string path = data_dir() + "/" + std::string(folder);
    std::error_code error;
    fs::directory_iterator it(path, error);
    if (error) {
        return Error{ErrorCode::not_found, path, "the folder of built-in files cannot be read",
                     "set SHARDPLAN_DATA to the folder that holds \"topologies\" and \"samples\""};
    }
    std::vector<std::string> names;
    for (const fs::directory_iterator end; it != end; it.increment(error)) {
        if (it->path().extension() == extension) {
            names.push_back(it->path().stem().string());
        }
        if (error) {
            break;
        }
    }
    // The order a folder is read in differs between machines.
    std::sort(names.begin(), names.end());
    return names;
}

std::string path_of_built_in(std::string_view folder, std::string_view name) {
    return data_dir() + "/" + std::string(folder) + "/" + std::string(name) +
           std::string(extension);
}

bool is_path(std::string_view name_or_path) {
    return name_or_path.find('/') != std::string_view::npos ||
           (name_or_path.size() > extension.size() && name_or_path.ends_with(extension));
}

bool same_name(std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); }

Error unknown_name(std::string_view kind, std::string_view name,
                   const std::vector<std::string>& known) {
    std::string hint = nearest_hint(name, known);
    if (kind != "fabric") { // nobody names those by hand
        hint +=
            (hint.empty() ? "" : "; ") + ("`shardplan list " + std::string(kind) + "s` shows all");
    }
    return Error{ErrorCode::not_found, std::string(kind),
                 "there is no " + std::string(kind) + " " + in_quotes(name), std::move(hint)};
}

Result<std::string> find_file(std::string_view folder, std::string_view kind,
                              const std::string& name_or_path) {
    if (is_path(name_or_path)) {
        return name_or_path;
    }
    const Result<std::vector<std::string>> names = names_in(folder);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        if (same_name(name, name_or_path)) {
            return path_of_built_in(folder, name);
        }
    }
    Error error = unknown_name(kind, name_or_path, *names);
    error.hint += ", and a file is given by a path with \"/\" or \".json\"";
    return error;
}

} // namespace shardplan::sim::detail
