#pragma once

#include <cstdint>
#include <string>

namespace shardplan::exec {

/// The machine a process runs on, as far as it says.
struct MachineFacts {
    std::string cpu;         ///< "AMD EPYC 9654"; empty: not known
    std::int64_t cores = 1;  ///< this process may run on
    std::int64_t memory = 0; ///< bytes; 0: not known
    std::int64_t cache = 0;  ///< bytes of the largest cache before memory; 0: not known
    std::string compiler;
    std::string instructions; ///< that the kernels were built for: "AVX512, FMA"
    std::string date;         ///< "2026-11-29", UTC
};

MachineFacts machine_facts();

} // namespace shardplan::exec
