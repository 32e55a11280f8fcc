#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::finds;
using test::help_with;
using test::line_of;
using test::loses;
using test::read_any;
using test::sample;

std::vector<std::string> expanded(const std::string& list) {
    const auto names = text::expand_hosts(list, "--nodes");
    EXPECT_TRUE(names) << list;
    return names ? *names : std::vector<std::string>();
}

TEST(HostList, KeepsZeroPaddingAndExpandsEveryBracket) {
    EXPECT_EQ(expanded("h100-[008-010]"),
              (std::vector<std::string>{"h100-008", "h100-009", "h100-010"}));
    EXPECT_EQ(expanded("a[1-2]b[3,5],login"),
              (std::vector<std::string>{"a1b3", "a1b5", "a2b3", "a2b5", "login"}));
    EXPECT_EQ(expanded("n[9-10]"), (std::vector<std::string>{"n9", "n10"}));
}

TEST(HostList, RefusesWhatIsNoListWithThePlace) {
    for (const char* list :
         {"n[1-", "n]1[", "n[3-1]", "n[a-b]", "n[1-999999999]", "n[[1]]", "n[1-1000][1-1000]"}) {
        const auto names = text::expand_hosts(list, "--nodes");
        ASSERT_FALSE(names) << list;
        EXPECT_EQ(names.error().where, "--nodes");
        EXPECT_FALSE(names.error().hint.empty());
    }
}

TEST(SlurmTopology, TreesOfDifferentDepthStandApart) {
    const ForeignCluster file = diagnosed(sample("slurm_topology_two_roots_unknown.conf"));
    EXPECT_EQ(file.fabric->roots().size(), 3U);
    EXPECT_EQ(file.fabric->nodes.size(), 28U);
    EXPECT_TRUE(finds(file, "separate-trees", "\"fab-a\" (19 nodes) and \"fab-b\" (4 nodes)"));
    EXPECT_TRUE(finds(file, "no-place", "5 nodes under \"fab-a.unknown\""));
    EXPECT_EQ(file.fabric->nodes[0].name, "h100-001");
}

TEST(SlurmTopology, CommentsAloneAreAnEmptyFabricAndNoFlatOne) {
    const ForeignCluster file = diagnosed(sample("slurm_topology_comment_only.conf"));
    EXPECT_TRUE(file.fabric->switches.empty());
    EXPECT_TRUE(finds(file, "empty", "names no switch"));
    const auto built = build_cluster(file, help_with("", "dgx-h100"));
    ASSERT_FALSE(built);
    EXPECT_NE(built.error().what.find("names no node"), std::string::npos);
}

TEST(SlurmTopology, DuplicateMissingAndStaleEntriesComeWithTheirLines) {
    const std::vector<std::string> inventory = expanded("node-[1-9]");
    const ForeignCluster file =
        diagnosed(sample("slurm_topology_stale_nodes.conf"), help_with(), &inventory);
    EXPECT_EQ(line_of(file, "duplicate-switch"), 3);
    EXPECT_TRUE(finds(file, "duplicate-switch", "\"l2\""));
    EXPECT_EQ(line_of(file, "missing-switch"), 4);
    EXPECT_TRUE(finds(file, "missing-switch", "l3"));
    EXPECT_EQ(line_of(file, "no-such-node"), 1);
    EXPECT_TRUE(finds(file, "no-such-node", "\"node-942\""));
    EXPECT_EQ(file.fabric->nodes.size(), 10U);
}

TEST(SlurmTopology, WithoutAnInventoryNothingIsSaidAboutNodesThatDoNotExist) {
    EXPECT_FALSE(finds(diagnosed(sample("slurm_topology_stale_nodes.conf")), "no-such-node"));
}

TEST(SlurmTopology, NodesOfTheInventoryThatTheFileLeavesOutAreNamed) {
    const std::vector<std::string> inventory = {"a", "b", "c"};
    const ForeignCluster file = diagnosed("SwitchName=s Nodes=a,b\n", help_with(), &inventory);
    EXPECT_TRUE(finds(file, "unlisted-node", "c is among --nodes"));
}

TEST(SlurmTopology, KeysAreReadWithoutRegardToCaseAndLinesMayGoOn) {
    const ForeignCluster file = read_any("switchname=s1 \\\n  NODES=n[1-2] # two\n");
    EXPECT_EQ(file.fabric->nodes.size(), 2U);
    EXPECT_TRUE(file.lost.empty());
}

TEST(SlurmTopology, BadListLosesItsLineAlone) {
    const ForeignCluster file = read_any("SwitchName=s1 Nodes=n[1-\nSwitchName=s2 Nodes=n[3-4]\n");
    EXPECT_EQ(file.fabric->nodes.size(), 2U);
    EXPECT_TRUE(loses(file, 1, "brackets do not match"));
}

TEST(SlurmTopology, SwitchesInARingAreFoundAndEnd) {
    const ForeignCluster file = diagnosed(
        "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Switches=c\n"
        "SwitchName=b Nodes=n1\n");
    EXPECT_TRUE(finds(file, "duplicate-switch", "\"c\" stands below itself"));
    EXPECT_TRUE(finds(file, "switch-ring"));
}

TEST(SlurmTopology, PrintOfScontrolRepeatsNodesAboveAndCountsThemOnce) {
    const ForeignCluster file = read_any(
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=l[1-2]\n"
        "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=l2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n");
    EXPECT_EQ(leaf_sizes(*file.fabric, true), (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(file.fabric->roots().size(), 1U);
}

TEST(SlurmTopology, LevelsFollowTheTreeAndTheNodeComesFromElsewhere) {
    const auto built = build_cluster(diagnosed(sample("slurm_topology_two_roots_unknown.conf")),
                                     help_with("", "dgx-h100"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    const sim::Cluster& cluster = built->cluster;
    EXPECT_EQ(cluster.node_groups[0].count, 19); // the largest tree
    EXPECT_EQ(cluster.node_groups[0].node.device, "H100-SXM-80GB");
    EXPECT_FALSE(cluster.scalable);
    ASSERT_EQ(cluster.fabric.levels.size(), 3U);
    EXPECT_EQ(cluster.fabric.levels[0].nodes_per_group, 8);
    EXPECT_EQ(cluster.fabric.levels[1].nodes_per_group, 16);
    EXPECT_EQ(cluster.fabric.levels[2].nodes_per_group, 0);
}

TEST(SlurmTopology, InventoryChoosesTheTree) {
    const std::vector<std::string> inventory = expanded("a100-[01-03]");
    const auto built = build_cluster(
        diagnosed(sample("slurm_topology_two_roots_unknown.conf"), help_with(), &inventory),
        help_with("", "dgx-a100"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_EQ(built->cluster.node_groups[0].count, 3);
}

TEST(SlurmTopology, WithoutANodeTheErrorAsksForOne) {
    const auto built =
        build_cluster(diagnosed(sample("slurm_topology_stale_nodes.conf")), help_with());
    ASSERT_FALSE(built);
    EXPECT_NE(built.error().hint.find("--node"), std::string::npos);
}

TEST(SlurmYaml, DefaultTopologyIsTakenAndTheOthersNamed) {
    const ForeignCluster file = diagnosed(sample("slurm_topology_block.yaml"));
    EXPECT_EQ(file.fabric->level_word, "block");
    EXPECT_EQ(file.fabric->nodes.size(), 8U);
    EXPECT_FALSE(finds(file, "separate-trees")); // blocks stand in one fabric
    const auto built = build_cluster(file, help_with("", "gb200-nvl72"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    ASSERT_EQ(built->cluster.fabric.levels.size(), 2U);
    EXPECT_EQ(built->cluster.fabric.levels[0].name, "block");
    EXPECT_EQ(built->cluster.fabric.levels[0].nodes_per_group, 4);
}

TEST(SlurmYaml, AnchorsThatUnfoldWithoutEndAreRefused) {
    std::string text = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 9; ++i) {
        const std::string before = "*a" + std::to_string(i - 1);
        text += "b" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
        for (int j = 0; j < 10; ++j) {
            text += (j > 0 ? ", " : "") + before;
        }
        text += "]\n";
    }
    EXPECT_FALSE(readers::slurm_yaml(text, "t.yaml"));
}

TEST(SlurmYaml, SignThatBelongsToNothingEndsWithItsLine) {
    const auto file = readers::slurm_yaml(
        "- topology: a\n  tree:\n    switches:\n"
        "      - switch: s\n,   nodes: n[1-2]\n",
        "t.yaml");
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().where.rfind("t.yaml:5", 0), 0U) << file.error().where;
}

TEST(Scontrol, DevicesMemoryAndStateOfANodeAreRead) {
    const ForeignCluster file = diagnosed(sample("scontrol_nodes.txt"));
    ASSERT_EQ(file.fabric->nodes.size(), 2U);
    EXPECT_EQ(file.fabric->nodes[0].gpus, 8);
    EXPECT_EQ(file.fabric->nodes[0].product, "h100");
    EXPECT_DOUBLE_EQ(file.fabric->nodes[0].memory.value(), 2063837.0 * 0x1p20);
    EXPECT_TRUE(file.fabric->nodes[0].trouble.empty());
    EXPECT_TRUE(finds(file, "degraded-node", "node-2 (state IDLE+DRAIN)"));
    const auto built = build_cluster(file, help_with("", "dgx-h100"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_EQ(built->cluster.node_groups[0].count, 1);
    EXPECT_EQ(built->cluster.node_groups[0].node.host.cores, 224);
}

TEST(Scontrol, OneLinePerNodeIsReadTheSame) {
    const ForeignCluster file = read_any(
        "NodeName=n1 Arch=x86_64 CPUTot=64 Gres=gpu:4 RealMemory=1024 State=MIXED\n"
        "NodeName=n2 Arch=x86_64 CPUTot=64 Gres=gpu:a100:2,nvme:1 RealMemory=1024 State=DOWN*\n");
    EXPECT_EQ(file.fabric->nodes[0].gpus, 4);
    EXPECT_EQ(file.fabric->nodes[1].gpus, 2);
    EXPECT_FALSE(file.fabric->nodes[1].trouble.empty());
}

} // namespace
} // namespace shardplan::plan
