#include "simulator/network/communicators.hpp"

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

constexpr double mib = 1024.0 * 1024.0;

sim::Scenario on(const char* cluster, std::int64_t gpus) {
    auto resized = sim::resize(sim::load_cluster(cluster)->value, gpus);
    auto scenario = sim::assemble_scenario({}, *resized, {}, {}, {});
    return *scenario;
}
sim::GroupPath data_parallel(const sim::Scenario& scenario, std::uint32_t ranks,
                             std::uint16_t tensor = 1) {
    sim::Layout layout;
    layout.tp = tensor;
    layout.dp = ranks;
    return path_of(scenario, layout, sim::Group::dp);
}

TEST(Communicators, OfANodeOfA100TakeAsMuchAsIsReported) {
    // reported: 544 to 688 MiB
    const sim::GroupPath path = data_parallel(on("dgx-a100", 8), 8);
    EXPECT_EQ(channels_of(path), 24.0);
    EXPECT_NEAR(communicator_memory(path).value() / mib, 24 * 3 * 9.1875, 1e-9);
}

TEST(Communicators, HoldMoreWhereTheSwitchReduces) {
    EXPECT_GT(communicator_memory(data_parallel(on("dgx-h100", 8), 8)),
              communicator_memory(data_parallel(on("dgx-a100", 8), 8)));
}

TEST(Communicators, OfOneRankPerNodeNeedFewChannels) {
    const sim::Scenario scenario = on("dgx-h100", 64);
    EXPECT_EQ(channels_of(data_parallel(scenario, 8, 8)), 4.0);
    EXPECT_EQ(channels_of(data_parallel(scenario, 64)), 16.0);
}

TEST(Communicators, AllToAllHoldsBuffersForEveryPeer) {
    const sim::Scenario scenario = on("dgx-h100", 64);
    EXPECT_NEAR(message_memory(data_parallel(scenario, 64)).value() / mib, 2 * 63 * 4.0, 1e-9);
    EXPECT_EQ(message_memory(sim::GroupPath{}).value(), 0.0);
}

TEST(Communicators, TakeTheFigureOfTheStackWhereTheNetworkStatesNone) {
    const sim::Scenario scenario =
        test::scenario(llama_3_8b(), dgx_h100(2), job(4096, 64), generic_stack());
    sim::Layout layout;
    layout.tp = 8;
    layout.dp = 2;
    EXPECT_EQ(communicators_of(scenario, layout), (sim::CommunicatorMemory{sim::Bytes(), 2}));
}

} // namespace
} // namespace shardplan::test
