#include "executor/run/machine.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <string_view>

#include <sched.h>
#include <unistd.h>

#include "executor/kernels/cpu_kernels.hpp"

namespace shardplan::exec {

namespace {

/// What stands behind the first line that begins with `key`, up to its end.
std::string value_of(const char* path, std::string_view key) {
    std::ifstream in(path);
    std::string line;
    while (std::getline(in, line)) {
        if (!line.starts_with(key)) continue;
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::size_t first = line.find_first_not_of(" \t", colon + 1);
        return first == std::string::npos ? std::string() : line.substr(first);
    }
    return {};
}

std::int64_t cores_of_process() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? online : 1;
}

std::int64_t memory_of_machine() {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long size = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && size > 0 ? static_cast<std::int64_t>(pages) * size : 0;
}

/// Of the last level that the kernel lists: "32768K". (What the processor itself says may be of
/// more cores than a virtual machine has.)
std::int64_t cache_of_machine() {
    std::int64_t most = 0;
    for (int index = 0; index < 8; ++index) {
        std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                         "/size");
        std::int64_t size = 0;
        char unit = ' ';
        if (!(in >> size)) continue;
        in >> unit;
        most = std::max(most, size << (unit == 'K' ? 10U : unit == 'M' ? 20U : 0U));
    }
    return most;
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::array<char, 16> text{};
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc)};
}

} // namespace

MachineFacts machine_facts() {
    MachineFacts out;
    out.cpu = value_of("/proc/cpuinfo", "model name");
    out.cores = cores_of_process();
    out.memory = memory_of_machine();
    out.cache = cache_of_machine();
#ifdef __clang__
    out.compiler = "Clang " __clang_version__;
#else
    out.compiler = "GCC " __VERSION__;
#endif
    out.instructions = kernel_instructions();
    out.date = today();
    return out;
}

} // namespace shardplan::exec
