#pragma once

#include <filesystem>
#include <string>

namespace shardplan::test {

/// The file of run records that the build unpacks beside the program.
inline std::string runs_path() {
    const std::filesystem::path program(SHARDPLAN_PROGRAM);
    return (program.parent_path().parent_path() / "test_data" / "runs.jsonl").string();
}

} // namespace shardplan::test
