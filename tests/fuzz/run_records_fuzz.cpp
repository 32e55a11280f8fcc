// Run records, predicted as `validate` does.
#include <filesystem>
#include <fstream>

#include "tests/fuzz/verbs.hpp"

namespace {

/// Every n-th record of the unpacked data, so that all sources are there.
std::vector<std::string> some_records() {
    const std::filesystem::path program(SHARDPLAN_PROGRAM);
    std::ifstream in(program.parent_path().parent_path() / "test_data" / "runs.jsonl");
    std::vector<std::string> out;
    int number = 0;
    for (std::string line; std::getline(in, line); ++number) {
        if (number % 12 == 0) {
            out.push_back(line + "\n");
        }
    }
    return out;
}

} // namespace

int main() {
    using namespace shardplan;
    return fuzz::run({{"run records", some_records(), [](const std::string& text) {
                           return fuzz::run_verb(
                               plan::cli::run_validate,
                               plan::cli::ValidateOptions{fuzz::as_file(text, ".jsonl"), {}, true});
                       }}});
}
