// Writes the JSON Schemas of our own file kinds: `shardplan_schemas FOLDER`. With `--check` it
// compares them with the files there instead, and fails if one differs or is missing.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/calendar.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/measurement.hpp"
#include "simulator/io/schema.hpp"
#include "simulator/spec/scenario.hpp"

namespace {

using namespace shardplan::sim;

struct Schema {
    std::string name;
    std::string text;
};

template <Described T>
Schema make(std::string_view name, std::string_view title) {
    return {std::string(name), schema_of<T>(title, "urn:shardplan:" + std::string(name))};
}

std::vector<Schema> all_schemas() {
    return {
        make<ModelSpec>("model", "Shardplan model"),
        make<Cluster>("cluster", "Shardplan cluster"),
        make<Device>("device", "Shardplan device"),
        make<Job>("job", "Shardplan training job"),
        make<StackProfile>("stack", "Shardplan stack profile"),
        make<FabricProfile>("fabric", "Shardplan fabric profile"),
        make<Calibration>("calibration", "Shardplan calibration"),
        make<MeasurementFile>("measurement", "Shardplan measurement"),
        make<shardplan::plan::Operations>("operations", "Shardplan figures of long runs"),
    };
}

/// True if the file is as it should be, after writing it or by comparison.
bool settle(const Schema& schema, const std::string& path, bool check) {
    if (!check) {
        const Status status = write_file(path, schema.text);
        if (!status) {
            std::fprintf(stderr, "%s\n", to_text(status.error()).c_str());
        }
        return status.has_value();
    }
    const Result<std::string> shipped = read_file(path);
    if (!shipped) {
        std::fprintf(stderr, "%s\n", to_text(shipped.error()).c_str());
        return false;
    }
    if (*shipped != schema.text) {
        std::fprintf(stderr, "%s differs from what the fields say; build the target `schemas`\n",
                     path.c_str());
        return false;
    }
    return true;
}

} // namespace

int main(int argc, char** argv) {
    const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
    if (argc != 2 && !check) {
        std::fprintf(stderr, "usage: %s [--check] FOLDER\n", argv[0]);
        return 2;
    }
    const std::string folder = argv[argc - 1];
    bool good = true;
    for (const Schema& schema : all_schemas()) {
        good = settle(schema, folder + "/" + schema.name + ".schema.json", check) && good;
    }
    return good ? 0 : 1;
}
