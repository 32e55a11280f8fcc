#include "simulator/io/data_dir.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "shardplan_data_dir.hpp"

namespace shardplan::sim {

namespace {

namespace fs = std::filesystem;

/// The folder of the running program, or an empty path where the system does not say.
fs::path program_folder() {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    return error ? fs::path{} : program.parent_path();
}

bool holds_data(const fs::path& folder) {
    std::error_code error;
    return fs::is_directory(folder / "topologies", error);
}

} // namespace

std::vector<std::string> data_dir_candidates() {
    const char* named = std::getenv("SHARDPLAN_DATA");
    if (named != nullptr && *named != '\0') return {named};
    std::vector<std::string> candidates;
    const fs::path programs = program_folder();
    if (!programs.empty()) {
        candidates.push_back((programs.parent_path() / data_subdir).string());
    }
    candidates.emplace_back(installed_data_dir);
    candidates.emplace_back(source_data_dir);
    return candidates;
}

std::string data_dir() {
    const std::vector<std::string> candidates = data_dir_candidates();
    for (const std::string& candidate : candidates) {
        if (holds_data(candidate)) return candidate;
    }
    return candidates.back();
}

} // namespace shardplan::sim
