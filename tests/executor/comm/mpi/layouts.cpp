// One rank of `mpirun -n N test_executor_mpi_layouts`: every layout of N ranks, one after another
// in the same processes, takes the steps that N threads of one process take.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "executor/comm/mpi/mpi_world.hpp"
#include "tests/executor/run/layouts_to_run.hpp"

namespace shardplan::test {
namespace {

using exec::Arithmetic;
using exec::Communicator;
using exec::Index;

constexpr Index steps = 20;

Communicator* all = nullptr; ///< ranks of this program

/// How a layout is run, and how near losses have to be.
struct Way {
    const char* name;
    Arithmetic arithmetic;
    bool rank_order; ///< sums in the order of ranks
    bool library;    ///< collectives of MPI itself, which promises no order
    double allowed;
};
constexpr Way ways[] = {
    {"in rank order", Arithmetic::fp32, true, false, 0.0},
    {"16 bits", Arithmetic::bf16, false, false, 0.0},
    {"library", Arithmetic::fp32, false, true, 1e-5},
};

struct Case {
    exec::TrainingPlan plan;
    std::string name;
    double allowed = 0.0;
    std::vector<double> losses; ///< of threads
};

/// Layouts of as many ranks as there are, in the ways in turn, beginning with that of number
/// `first`.
std::vector<Case> cases_of(const sim::ModelSpec& model, std::span<const char* const> layouts,
                           std::size_t first) {
    std::vector<Case> out;
    for (const char* layout : layouts) {
        const Way& way = ways[(first + out.size()) % std::size(ways)];
        exec::TrainingPlan plan = training_plan({model, layout, way.arithmetic, steps});
        if (sim::rank_count(plan.layout) != all->size()) continue;
        plan.deterministic = way.rank_order;
        plan.collectives.library = way.library;
        out.push_back({std::move(plan), std::string(layout) + ", " + way.name, way.allowed,
                       std::vector<double>(steps)});
    }
    return out;
}

std::vector<double> losses_of(const std::vector<exec::TrainStep>& taken) {
    std::vector<double> out;
    for (const exec::TrainStep& step : taken)
        out.push_back(step.loss);
    return out;
}

/// Each process runs a part of the cases on threads of its own, and tells the others.
void train_on_threads(std::vector<Case>& cases) {
    const auto ranks = static_cast<std::size_t>(all->size());
    for (std::size_t i = static_cast<std::size_t>(all->rank()); i < cases.size(); i += ranks) {
        const TinyOutcome out = train(cases[i].plan, steps);
        ASSERT_TRUE(out.status) << cases[i].name << ": " << sim::to_text(out.status.error());
        cases[i].losses = losses_of(out.steps.front());
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto owner = static_cast<int>(i % ranks);
        ASSERT_TRUE(all->broadcast(exec::view(cases[i].losses), owner));
    }
}

void expect_losses_of_threads(const sim::ModelSpec& model, std::span<const char* const> layouts,
                              std::size_t first) {
    std::vector<Case> cases = cases_of(model, layouts, first);
    ASSERT_FALSE(cases.empty());
    train_on_threads(cases);
    for (const Case& one : cases) {
        std::vector<exec::TrainStep> taken;
        const sim::Status status = train_rank(*all, one.plan, steps, taken);
        ASSERT_TRUE(status) << one.name << ": " << sim::to_text(status.error());
        for (std::size_t i = 0; i < taken.size(); ++i) {
            EXPECT_NEAR(one.losses[i], taken[i].loss, one.allowed * one.losses[i])
                << one.name << ", step " << i + 1;
        }
    }
}

TEST(MpiLayouts, OfAModelWithLearnedPositionsTakeTheStepsOfThreads) {
    expect_losses_of_threads(deeper(tiny_gpt2()), dense_layouts, 0);
}
TEST(MpiLayouts, OfAModelWithRotaryPositionsTakeTheStepsOfThreads) {
    expect_losses_of_threads(deeper(tiny_llama()), dense_layouts, 1);
}
TEST(MpiLayouts, OfExpertsTakeTheStepsOfThreads) {
    expect_losses_of_threads(deeper(tiny_mixtral()), expert_layouts, 2);
}

} // namespace
} // namespace shardplan::test

int main(int argc, char** argv) {
    using namespace shardplan;
    ::testing::InitGoogleTest(&argc, argv);
    auto mpi = exec::MpiWorld::start({.timeout = std::chrono::seconds(120)});
    if (!mpi) {
        std::fprintf(stderr, "%s\n", sim::to_text(mpi.error()).c_str());
        return 1;
    }
    test::all = &(*mpi)->world();
    if (test::all->rank() > 0) { // all ranks say the same
        auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
    }
    const int failed = RUN_ALL_TESTS();
    (*mpi)->finish(failed == 0 ? sim::Status(sim::Done{})
                               : sim::Error{sim::ErrorCode::backend_failed, "layouts over MPI",
                                            "a test failed", "see above"});
    return failed;
}
