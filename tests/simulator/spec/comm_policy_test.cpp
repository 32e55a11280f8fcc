#include "simulator/spec/comm_policy.hpp"

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

TEST(CommPolicy, ReadsTheNamesOfNcclInAnyCase) {
    const auto policy = policy_of("Ring,NVLSTree", "simple,LL128", "NCCL_ALGO");
    ASSERT_TRUE(policy) << to_text(policy.error());
    EXPECT_EQ(policy->algorithms, (std::vector<Algorithm>{Algorithm::ring, Algorithm::nvls_tree}));
    EXPECT_EQ(policy->protocols, (std::vector<Protocol>{Protocol::simple, Protocol::ll128}));
}

TEST(CommPolicy, AnExclusionLeavesTheOthersOfNccl) {
    const auto policy = policy_of("^NVLS,NVLSTree", "", "NCCL_ALGO");
    ASSERT_TRUE(policy);
    EXPECT_EQ(policy->algorithms,
              (std::vector<Algorithm>{Algorithm::ring, Algorithm::tree, Algorithm::pat,
                                      Algorithm::collnet_chain, Algorithm::collnet_direct}));
}

TEST(CommPolicy, KnowsReductionInTheNetworkByNcclsNames) {
    const auto policy = policy_of("CollNetDirect,CollnetChain", "", "NCCL_ALGO");
    ASSERT_TRUE(policy) << to_text(policy.error());
    EXPECT_EQ(policy->algorithms,
              (std::vector<Algorithm>{Algorithm::collnet_direct, Algorithm::collnet_chain}));
}

TEST(CommPolicy, RefusesWordsThatNameNothing) {
    const auto policy = policy_of("Rinng", "", "NCCL_ALGO");
    ASSERT_FALSE(policy);
    EXPECT_NE(policy.error().what.find("Rinng"), std::string::npos);
    EXPECT_NE(policy.error().hint.find("ring"), std::string::npos);
    EXPECT_FALSE(policy_of("allreduce:tree", "", "NCCL_ALGO"));
}

TEST(CommPolicy, CpusDoNotReduceInASwitch) {
    const auto bit = [](Algorithm a) { return 1U << static_cast<unsigned>(a); };
    EXPECT_NE(allowed_algorithms({}, false) & bit(Algorithm::nvls), 0U);
    EXPECT_EQ(allowed_algorithms({}, true) & bit(Algorithm::nvls), 0U);
    EXPECT_NE(allowed_algorithms({}, true) & bit(Algorithm::halving_doubling), 0U);
}

} // namespace
} // namespace shardplan::sim
