#include "executor/run/level.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;

constexpr std::string_view variable = "SHARDPLAN_LEVEL";

/// This program's file, without the level in its name.
std::string own_stem() {
    std::error_code error;
    std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
    for (const std::string_view level : {"-v3", "-v4"}) {
        if (path.size() > level.size() && path.ends_with(level)) {
            path.resize(path.size() - level.size());
        }
    }
    return path;
}

std::string own_level() {
    std::error_code error;
    const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
    return path == own_stem() ? std::string(baseline_level) : path.substr(path.size() - 2);
}

bool stands_beside(std::string_view level) {
    return ::access((own_stem() + "-" + std::string(level)).c_str(), X_OK) == 0;
}

} // namespace

std::span<const std::string_view> levels_here() {
    static constexpr std::array<std::string_view, 2> levels = {"v4", "v3"};
#if defined(__x86_64__)
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    return std::span(levels).subspan(v4 ? 0 : v3 ? 1 : 2);
#else
    return std::span(levels).subspan(2);
#endif
}

sim::Result<std::string> choose_level(std::string_view wanted,
                                      std::span<const std::string_view> here,
                                      bool (*exists)(std::string_view level)) {
    if (wanted == baseline_level) return std::string(wanted);
    std::string able(baseline_level);
    for (const std::string_view level : here) {
        if (!exists(level)) continue;
        if (wanted.empty() || wanted == level) return std::string(level);
        able += ", " + std::string(level);
    }
    if (wanted.empty()) return std::string(baseline_level);
    return Error{ErrorCode::bad_input, std::string(variable),
                 "there is no program of level \"" + std::string(wanted) + "\" for this processor",
                 "use one of: " + able + "; or leave it out, which takes the best"};
}

sim::Result<std::string> run_best_level(char** argv) {
    const char* wanted = std::getenv(variable.data());
    auto level = choose_level(wanted == nullptr ? "" : wanted, levels_here(), stands_beside);
    if (!level) return level;
    const std::string own = own_level();
    if (*level == own) return level;
    const std::string path =
        *level == baseline_level ? own_stem() : own_stem() + "-" + std::string(*level);
    ::execv(path.c_str(), argv);
    return Error{ErrorCode::backend_failed, path, std::strerror(errno),
                 std::string("set ") + std::string(variable) + "=" + own};
}

} // namespace shardplan::exec
