#include <cstdio>

#include <benchmark/benchmark.h>

#include "executor/run/level.hpp"

int main(int argc, char** argv) {
    const auto level = shardplan::exec::run_best_level(argv);
    if (!level) {
        std::fprintf(stderr, "%s: %s\n", level.error().where.c_str(), level.error().what.c_str());
        return 2;
    }
    benchmark::AddCustomContext("level", *level);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
