// One rank of an MPI run: `mpirun -n N test_executor_mpi_ranks CASE`. Exit code 0 if all was in
// order, 3 if the run failed, as the cases that fail on purpose do.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "executor/comm/layout_groups.hpp"
#include "executor/comm/mpi/mpi_world.hpp"
#include "tests/executor/comm/conformance.hpp"

namespace {

using namespace shardplan;
using exec::Communicator;
using exec::Status;
using sim::Done;

struct MpiCase {
    std::function<Status(Communicator&)> body;
    exec::MpiOptions options = {};
};

/// All-reduces by a ring until one fails; rank 1 does something else in the fifth.
Status until_rank_1_ends(Communicator& all, const std::function<Status()>& end) {
    if (Status status = all.set_choice({.algorithm = sim::Algorithm::ring}); !status) return status;
    std::vector<double> data(1000, 1.0);
    for (int i = 0;; ++i) {
        if (i == 4 && all.rank() == 1) return end();
        Status status = all.all_reduce(exec::view(data), exec::ReduceOp::sum);
        if (!status) return status;
    }
}

Status fails(Communicator& all) {
    return until_rank_1_ends(all, []() -> Status {
        return exec::Error{exec::ErrorCode::backend_failed, "batch 4", "the disk is full", ""};
    });
}

Status is_silent(Communicator& all) {
    return until_rank_1_ends(all, []() -> Status {
        std::this_thread::sleep_for(std::chrono::seconds(5));
        return Done{};
    });
}

/// The same in a collective of MPI's own.
Status is_silent_in_library(Communicator& all) {
    if (all.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(5));
        return Done{};
    }
    std::vector<double> data(1000, 1.0);
    return all.all_reduce(exec::view(data), exec::ReduceOp::sum);
}

Status is_killed(Communicator& all) {
    return until_rank_1_ends(all, []() -> Status {
        std::raise(SIGKILL);
        return Done{};
    });
}

Status groups_of_a_layout(Communicator& all) {
    sim::Layout layout;
    layout.tp = 2;
    layout.pp = 2;
    auto groups = exec::LayoutGroups::make(all, layout);
    if (!groups) return groups.error();
    std::vector<std::int64_t> sum = {1LL << all.rank()};
    Status status = (*groups)[sim::Group::tp].all_reduce(exec::view(sum), exec::ReduceOp::sum);
    if (!status) return status;
    if (sum[0] == (all.rank() < 2 ? 3 : 12)) return Done{};
    return exec::Error{exec::ErrorCode::backend_failed, "groups", "tp joins other ranks", ""};
}

/// More elements than MPI counts in one call, with a value that says where it stood.
Status sends_more_than_2_to_the_31(Communicator& all) {
    const std::size_t count = (std::size_t{1} << 31U) + 5;
    std::vector<std::uint8_t> data(count);
    const auto value_at = [](std::size_t i) {
        return static_cast<std::uint8_t>((i ^ (i >> 8U) ^ (i >> 16U) ^ (i >> 24U)) & 0xFFU);
    };
    if (all.rank() == 0) {
        for (std::size_t i = 0; i < count; ++i) {
            data[i] = value_at(i);
        }
        return all.send(exec::const_view(data), 1);
    }
    if (Status status = all.receive(exec::view(data), 0); !status) return status;
    for (std::size_t i = 0; i < count; ++i) {
        if (data[i] == value_at(i)) continue;
        return exec::Error{exec::ErrorCode::backend_failed, "large message",
                           "byte " + std::to_string(i) + " is another", ""};
    }
    return Done{};
}

} // namespace

int main(int argc, char** argv) {
    const std::map<std::string, MpiCase> cases = {
        {"everything", {test::check_everything}},
        {"everything_in_parts", {test::check_everything, {.largest_part = 1000}}},
        {"groups_of_a_layout", {groups_of_a_layout}},
        {"large_message", {sends_more_than_2_to_the_31}},
        {"fails", {fails, {.timeout = std::chrono::seconds(30)}}},
        {"is_silent", {is_silent, {.timeout = std::chrono::milliseconds(500)}}},
        {"is_silent_in_library",
         {is_silent_in_library, {.timeout = std::chrono::milliseconds(500)}}},
        {"is_killed", {is_killed, {.timeout = std::chrono::milliseconds(500)}}},
    };
    const auto chosen = cases.find(argc == 2 ? argv[1] : "");
    if (chosen == cases.end()) {
        std::fprintf(stderr, "usage: mpirun -n N %s CASE\n", argv[0]);
        return 2;
    }
    auto mpi = exec::MpiWorld::start(chosen->second.options);
    if (!mpi) {
        std::fprintf(stderr, "%s\n", to_text(mpi.error()).c_str());
        return 3;
    }
    const Status status = chosen->second.body((*mpi)->world());
    if (!status) std::fprintf(stderr, "%s\n", to_text(status.error()).c_str());
    (*mpi)->finish(status);
    return 0;
}
