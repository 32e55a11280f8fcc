#include "simulator/io/catalogue.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/quantity.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

template <class T>
std::string error_of(const Result<T>& result) {
    return result ? "no error" : to_text(result.error());
}

// --- devices ---------------------------------------------------------------------------------

/// The fact sheet the catalogue was made from; figures in its own units.
JsonValue fact_sheet() {
    const std::string path = std::string(SHARDPLAN_SOURCE_DIR) + "/tests/data/devices.json";
    const Result<std::string> text = read_file(path);
    EXPECT_TRUE(text) << error_of(text);
    Result<JsonValue> json = JsonValue::parse(*text, path);
    EXPECT_TRUE(json) << error_of(json);
    return std::move(json).value();
}

/// A figure of the sheet; 0 where it says null.
double figure(const JsonValue& object, std::string_view key) {
    const JsonValue value = object.get(key).value();
    return value.is_null() ? 0.0 : value.as_double().value();
}

void expect_equal_figures(const JsonValue& fact, const Device& device) {
    const JsonValue scaleup = fact.get("scaleup").value();
    const JsonValue pcie = fact.get("pcie").value();
    EXPECT_DOUBLE_EQ(device.memory_label.value(), figure(fact, "mem_GB_label") * 1e9);
    EXPECT_DOUBLE_EQ(device.memory_visible.value(), figure(fact, "mem_GiB_visible") * 0x1p30);
    EXPECT_DOUBLE_EQ(device.memory_bandwidth.physical.value(), figure(fact, "mem_bw_GBps") * 1e9);
    const double achievable = figure(fact, "mem_bw_achievable_GBps");
    ASSERT_EQ(device.memory_bandwidth.achievable.has_value(), achievable > 0.0);
    if (achievable > 0.0) {
        EXPECT_DOUBLE_EQ(device.memory_bandwidth.achievable->value(), achievable * 1e9);
    }
    EXPECT_DOUBLE_EQ(device.scaleup_per_direction.value(),
                     figure(scaleup, "uni_dir_GBps_per_gpu") * 1e9);
    EXPECT_DOUBLE_EQ(device.scaleup_pair.value(), figure(scaleup, "p2p_pair_uni_GBps") * 1e9);
    EXPECT_DOUBLE_EQ(static_cast<double>(device.scaleup_links), figure(scaleup, "links"));
    EXPECT_DOUBLE_EQ(device.pcie_per_direction.value(), figure(pcie, "uni_dir_GBps") * 1e9);
    EXPECT_DOUBLE_EQ(device.tdp_watts, figure(fact, "tdp_W"));
    EXPECT_DOUBLE_EQ(static_cast<double>(device.compute_units), figure(fact, "sm_or_cu"));
    const JsonValue peaks = fact.get("peak_dense_tflops").value();
    std::size_t known = 0;
    for (const std::string& format : peaks.keys()) {
        const double peak = figure(peaks, format);
        ASSERT_EQ(device.peak_dense.count(format) == 1, peak > 0.0) << format;
        if (peak > 0.0) {
            ++known;
            EXPECT_DOUBLE_EQ(device.peak_dense.at(format).value(), peak * 1e12) << format;
        }
    }
    EXPECT_EQ(device.peak_dense.size(), known) << "a peak the sheet does not give";
}

TEST(Catalogue, EveryDeviceOfTheFactSheetIsThereWithTheSameFigures) {
    const Result<std::vector<Device>> devices = load_devices();
    ASSERT_TRUE(devices) << error_of(devices);
    const JsonValue facts = fact_sheet().get("gpus").value();
    ASSERT_EQ(facts.size(), 37U);
    for (std::size_t i = 0; i < facts.size(); ++i) {
        const JsonValue fact = facts.at(i);
        const std::string name = fact.get("name")->as_string().value();
        SCOPED_TRACE(name);
        const auto it = std::find_if(devices->begin(), devices->end(),
                                     [&](const Device& device) { return device.name == name; });
        ASSERT_NE(it, devices->end());
        expect_equal_figures(fact, *it);
        const JsonValue aliases = fact.get("aliases").value();
        for (std::size_t k = 0; k < aliases.size(); ++k) {
            const std::string alias = aliases.at(k).as_string().value();
            const Result<Loaded<Device>> found = find_device(*devices, alias, "test");
            ASSERT_TRUE(found) << error_of(found);
            EXPECT_EQ(found->value.name, name) << alias;
            EXPECT_TRUE(found->assumptions.empty()) << alias;
        }
        const JsonValue assumed = fact.get("assumed_aliases").value();
        for (std::size_t k = 0; k < assumed.size(); ++k) {
            const std::string alias = assumed.at(k).get("alias")->as_string().value();
            const Result<Loaded<Device>> found = find_device(*devices, alias, "test");
            ASSERT_TRUE(found) << error_of(found);
            EXPECT_EQ(found->value.name, name) << alias;
            EXPECT_EQ(found->assumptions.size(), 1U) << alias;
        }
    }
}

TEST(Catalogue, EverySpellingBelongsToOneDevice) {
    const std::vector<Device> devices = load_devices().value();
    std::map<std::string, std::string> owner;
    const auto claim = [&](std::string spelling, const std::string& name) {
        std::transform(spelling.begin(), spelling.end(), spelling.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
        const auto [it, is_new] = owner.emplace(spelling, name);
        EXPECT_TRUE(is_new || it->second == name)
            << spelling << " names " << it->second << " and " << name;
    };
    for (const Device& device : devices) {
        claim(device.name, device.name);
        for (const std::string& alias : device.aliases) {
            claim(alias, device.name);
        }
        for (const AssumedAlias& assumed : device.assumed_aliases) {
            claim(assumed.alias, device.name);
        }
        EXPECT_FALSE(device.sources.empty()) << device.name;
    }
}

TEST(Catalogue, GivesEveryDeviceWhatItsArchitectureReaches) {
    for (const Device& device : load_devices().value()) {
        const Result<ComputeProfile> architecture = load_architecture(device.arch);
        ASSERT_TRUE(architecture) << error_of(architecture);
        EXPECT_EQ(device.compute.name, architecture->name) << device.name;
        EXPECT_FALSE(device.compute.matrix_efficiency.source.empty()) << device.name;
        EXPECT_FALSE(device.compute.flash_2.edge.source.empty()) << device.name;
    }
    EXPECT_EQ(load_architecture("hopper")->name, "hopper");
    EXPECT_EQ(load_architecture("an unknown one")->name, "generic");
}

TEST(Catalogue, LetsAProductReachLessThanItsArchitecture) {
    const Device sxm = find_device("A100-SXM-80GB")->value;
    const Device pcie = find_device("A100-PCIe-80GB")->value;
    EXPECT_LT(pcie.compute.matrix_efficiency.value, sxm.compute.matrix_efficiency.value);
    EXPECT_EQ(pcie.compute.flash_2.edge, sxm.compute.flash_2.edge);
    EXPECT_EQ(pcie.compute.matrix_ramp, sxm.compute.matrix_ramp);
}

TEST(Catalogue, FindsADeviceWithoutRegardToCase) {
    const Result<Loaded<Device>> found = find_device("nvidia h100 80gb hbm3");
    ASSERT_TRUE(found) << error_of(found);
    EXPECT_EQ(found->value.name, "H100-SXM-80GB");
}

TEST(Catalogue, SaysWhyAnAmbiguousSpellingWasTakenAsItWas) {
    const Result<Loaded<Device>> found = find_device("A100");
    ASSERT_TRUE(found) << error_of(found);
    EXPECT_EQ(found->value.name, "A100-SXM-80GB");
    ASSERT_EQ(found->assumptions.size(), 1U);
    EXPECT_EQ(found->assumptions[0].value, "A100-SXM-80GB");
    EXPECT_EQ(found->assumptions[0].note, "memory size and form factor not stated");
}

TEST(Catalogue, RefusesAnUnknownDeviceAndNamesTheNearest) {
    const Result<Loaded<Device>> found = find_device("RTX4091");
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::not_found);
    EXPECT_NE(found.error().hint.find("RTX4090"), std::string::npos) << found.error().hint;
}

// --- clusters --------------------------------------------------------------------------------

TEST(Catalogue, EveryClusterLoadsAndNamesKnownDevices) {
    const std::vector<CatalogueEntry> clusters = list_clusters().value();
    std::set<std::string> names;
    const Catalogue catalogue = load_catalogue().value();
    for (const CatalogueEntry& entry : clusters) {
        names.insert(entry.name);
        const Result<Loaded<Cluster>> cluster = load_cluster(entry.name);
        ASSERT_TRUE(cluster) << error_of(cluster);
        EXPECT_EQ(cluster->value.name, entry.name);
        EXPECT_FALSE(cluster->value.note.empty()) << entry.name;
        const Result<Scenario> scenario =
            assemble_scenario(test::llama_3_8b(), cluster->value, test::job(4096, 256),
                              load_stack("generic").value(), {}, catalogue);
        ASSERT_TRUE(scenario) << error_of(scenario);
        EXPECT_TRUE(scenario->assumptions.empty()) << entry.name << " uses an ambiguous spelling";
    }
    for (const char* name :
         {"dgx-1-v100", "dgx-2-v100", "dgx-a100", "p4d", "p4de", "a100-4x100g", "a100-4x200g",
          "dgx-h100", "p5", "a3-mega", "nd-h100-v5", "hgx-h200", "hgx-b200", "gb200-nvl72",
          "mi300x-8x", "8xl40s-pcie", "8xrtx4090-pcie", "local-cpu"}) {
        EXPECT_EQ(names.count(name), 1U) << name;
    }
}

TEST(Catalogue, ClusterLinksEqualWhatTheirDevicesOffer) {
    const Catalogue catalogue = load_catalogue().value();
    const std::vector<CatalogueEntry> clusters = list_clusters().value();
    for (const CatalogueEntry& entry : clusters) {
        const Cluster cluster = load_cluster(entry.name)->value;
        const NodeTemplate& node = cluster.node_groups[0].node;
        const Device device = find_device(catalogue.devices, node.device, "test")->value;
        if (device.scaleup_per_direction.value() > 0.0) {
            EXPECT_EQ(node.scaleup.per_device.physical, device.scaleup_per_direction) << entry.name;
            EXPECT_EQ(node.scaleup.kind, device.scaleup_kind) << entry.name;
        }
        if (device.scaleup_kind == ScaleupKind::pcie) {
            EXPECT_EQ(node.scaleup.per_device.physical, device.pcie_per_direction) << entry.name;
            EXPECT_FALSE(node.scaleup.peer_access) << entry.name;
        }
    }
}

TEST(Catalogue, TheCubeMeshOfDgx1HasSixLinksPerDevice) {
    const NodeTemplate node = load_cluster("dgx-1-v100")->value.node_groups[0].node;
    std::map<std::string, std::int64_t> links;
    for (const GraphLink& link : node.links) {
        if (link.from.starts_with("gpu") && link.to.starts_with("gpu")) {
            links[link.from] += link.count;
            links[link.to] += link.count;
        }
    }
    ASSERT_EQ(links.size(), 8U);
    for (const auto& [device, count] : links) {
        EXPECT_EQ(count, 6) << device;
    }
}

TEST(Catalogue, RefusesAnUnknownClusterAndNamesTheNearest) {
    const Result<Loaded<Cluster>> cluster = load_cluster("dgx-h10");
    ASSERT_FALSE(cluster);
    EXPECT_NE(cluster.error().hint.find("dgx-h100"), std::string::npos) << cluster.error().hint;
}

// --- resize ----------------------------------------------------------------------------------

std::int64_t devices_after(const char* name, std::int64_t gpus) {
    const Result<Cluster> resized = resize(load_cluster(name)->value, gpus);
    return resized ? device_count(*resized) : -1;
}

TEST(Resize, TakesWholeNodesAndAddsThemWhereTheClusterIsAnExample) {
    const Cluster cluster = load_cluster("dgx-h100")->value;
    const Result<Cluster> resized = resize(cluster, 512);
    ASSERT_TRUE(resized) << error_of(resized);
    EXPECT_EQ(resized->node_groups[0].count, 64);
    EXPECT_EQ(resized->node_groups[0].node, cluster.node_groups[0].node);
    EXPECT_EQ(devices_after("gb200-nvl72", 72), 72);
    EXPECT_EQ(devices_after("gb200-nvl72", 144), 144);
}

TEST(Resize, TakesAPartOfOneNode) {
    const Result<Cluster> resized = resize(load_cluster("dgx-1-v100")->value, 2);
    ASSERT_TRUE(resized) << error_of(resized);
    EXPECT_EQ(device_count(*resized), 2);
    EXPECT_EQ(resized->node_groups[0].count, 1);
    // what is left of the graph still describes the node
    const Result<Scenario> scenario = assemble_scenario(
        test::llama_3_8b(), *resized, test::job(4096, 256), load_stack("generic").value(), {});
    EXPECT_TRUE(scenario) << error_of(scenario);
}

TEST(Resize, RefusesANumberBetweenNodesWithBothNeighbours) {
    const Result<Cluster> resized = resize(load_cluster("dgx-h100")->value, 509, "--gpus");
    ASSERT_FALSE(resized);
    EXPECT_EQ(resized.error().where, "--gpus");
    EXPECT_EQ(resized.error().what, "509 devices are no whole number of nodes of 8");
    EXPECT_EQ(resized.error().hint, "write 504 or 512");
}

TEST(Resize, RefusesMoreThanADescribedClusterHas) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    cluster.scalable = false;
    cluster.node_groups[0].count = 4;
    const Result<Cluster> more = resize(cluster, 40);
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().hint, "write 32");
    EXPECT_EQ(resize(cluster, 24)->node_groups[0].count, 3);
}

TEST(Resize, TakesWholeRowsAndPlanesOfATorus) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    cluster.node_groups[0].count = 64;
    cluster.fabric.levels.clear();
    cluster.fabric.torus.assign(3, {4, {Bandwidth(50e9), {}, {}}, {}, true});
    // half of the planes: open where the others would follow
    const Result<Cluster> half = resize(cluster, 256, "--gpus");
    ASSERT_TRUE(half) << error_of(half);
    ASSERT_EQ(half->fabric.torus.size(), 3U);
    EXPECT_EQ(half->fabric.torus[2].nodes, 2);
    EXPECT_FALSE(half->fabric.torus[2].wraps);
    EXPECT_TRUE(half->fabric.torus[1].wraps);
    // one plane needs no third dimension, one node none
    EXPECT_EQ(resize(cluster, 128)->fabric.torus.size(), 2U);
    EXPECT_TRUE(resize(cluster, 4)->fabric.torus.empty());
    // an example grows along its last dimension
    EXPECT_EQ(resize(cluster, 1024)->fabric.torus[2].nodes, 8);
    const Result<Cluster> ragged = resize(cluster, 8 * 18, "--gpus");
    ASSERT_FALSE(ragged);
    EXPECT_EQ(ragged.error().hint, "write 128 or 256");
}

TEST(Resize, UsesNodeGroupsInOrder) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    cluster.scalable = false;
    cluster.node_groups[0].count = 2;
    cluster.node_groups.push_back(load_cluster("gb200-nvl72")->value.node_groups[0]);
    const Result<Cluster> mixed = resize(cluster, 24);
    ASSERT_TRUE(mixed) << error_of(mixed);
    EXPECT_EQ(mixed->node_groups[0].count, 2);
    EXPECT_EQ(mixed->node_groups[1].count, 2);
    EXPECT_EQ(resize(cluster, 16)->node_groups.size(), 1U);
    EXPECT_EQ(resize(cluster, 18).error().hint, "write 16 or 20");
}

TEST(Resize, RefusesNoneAndMoreThanCanBePlanned) {
    EXPECT_EQ(devices_after("dgx-h100", 0), -1);
    EXPECT_EQ(devices_after("dgx-h100", -8), -1);
    EXPECT_EQ(devices_after("dgx-h100", std::int64_t{1} << 62), -1);
    EXPECT_EQ(devices_after("dgx-h100", 16777216), 16777216);
}

TEST(Resize, KeepsBridgedPairsWhole) {
    Cluster cluster = load_cluster("8xl40s-pcie")->value;
    cluster.node_groups[0].node.scaleup.domain_devices = 2;
    EXPECT_EQ(device_count(resize(cluster, 6).value()), 6);
    EXPECT_EQ(resize(cluster, 3).error().hint, "write 2 or 4");
}

// --- fabrics, jobs, scenarios ----------------------------------------------------------------

TEST(Catalogue, EveryKindOfNetworkHasAProfile) {
    for (const std::string_view kind : EnumNames<ScaleupKind>::names) {
        EXPECT_TRUE(load_fabric(kind)) << kind;
    }
    for (const std::string_view kind : EnumNames<FabricKind>::names) {
        const Result<FabricProfile> profile = load_fabric(kind);
        ASSERT_TRUE(profile) << error_of(profile);
        EXPECT_EQ(profile->name, kind);
    }
}

TEST(Catalogue, EveryJobLoadsAndSaysWhatItTookByDefault) {
    const std::vector<CatalogueEntry> jobs = list_jobs().value();
    EXPECT_GE(jobs.size(), 6U);
    const Result<Loaded<Job>> job = load_job("pretrain-4m-tokens");
    ASSERT_TRUE(job) << error_of(job);
    EXPECT_EQ(job->value.global_batch.tokens, 4194304);
    const auto names = [&](const std::string& path) {
        return std::any_of(job->assumptions.begin(), job->assumptions.end(),
                           [&](const Assumption& a) { return a.path == path; });
    };
    EXPECT_TRUE(names("job.optimizer.state"));
    EXPECT_FALSE(names("job.global_batch.tokens"));
}

TEST(Catalogue, AScenarioHoldsTheDevicesOfItsNodeGroupsAndTheNetworksItUses) {
    const Result<Scenario> scenario =
        assemble_scenario(test::llama_3_8b(), load_cluster("gb200-nvl72")->value,
                          test::job(4096, 256), load_stack("megatron-core").value(), {});
    ASSERT_TRUE(scenario) << error_of(scenario);
    ASSERT_EQ(scenario->devices.size(), 1U);
    EXPECT_EQ(scenario->devices[0].name, "GB200");
    ASSERT_EQ(scenario->fabrics.size(), 3U);
    EXPECT_EQ(scenario->fabrics[0].name, "nvswitch");
    EXPECT_EQ(scenario->fabrics[1].name, "nvlink_domain");
    EXPECT_EQ(scenario->fabrics[2].name, "infiniband");
}

Result<Scenario> with_cluster(const Cluster& cluster) {
    return assemble_scenario(test::llama_3_8b(), cluster, test::job(4096, 256),
                             load_stack("generic").value(), {});
}

TEST(Catalogue, AScenarioReportsAnAmbiguousDeviceWithItsPath) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    cluster.node_groups[0].node.device = "H100";
    const Result<Scenario> scenario = with_cluster(cluster);
    ASSERT_TRUE(scenario) << error_of(scenario);
    ASSERT_EQ(scenario->assumptions.size(), 1U);
    EXPECT_EQ(scenario->assumptions[0].path, "cluster.node_groups[0].node.device");
}

TEST(Catalogue, AScenarioWithAnUnknownDeviceIsRefusedWithTheNearestName) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    cluster.node_groups[0].node.device = "H100-SXM-80G";
    const Result<Scenario> scenario = with_cluster(cluster);
    ASSERT_FALSE(scenario);
    EXPECT_EQ(scenario.error().where, "cluster.node_groups[0].node.device");
    EXPECT_NE(scenario.error().hint.find("H100-SXM-80GB"), std::string::npos)
        << scenario.error().hint;
}

TEST(Catalogue, ADeviceDescribedInTheClusterWinsAndNeedsAPeak) {
    Cluster cluster = load_cluster("dgx-h100")->value;
    Device own = find_device("H100-SXM-80GB")->value;
    own.memory_visible = Bytes(60.0 * 0x1p30);
    cluster.devices = {own};
    const Result<Scenario> scenario = with_cluster(cluster);
    ASSERT_TRUE(scenario) << error_of(scenario);
    EXPECT_EQ(scenario->devices[0].memory_visible, own.memory_visible);
    cluster.devices[0].peak_dense.clear();
    EXPECT_EQ(with_cluster(cluster).error().where, "cluster.node_groups[0].node.device");
}

TEST(Catalogue, ClusterThatTheReadmeShowsIsRead) {
    const auto readme = read_file(std::string(SHARDPLAN_SOURCE_DIR) + "/topologies/README.md");
    ASSERT_TRUE(readme) << to_text(readme.error());
    const std::string fence = "```json\n";
    const std::size_t begin = readme->find(fence);
    ASSERT_NE(begin, std::string::npos);
    const std::size_t start = begin + fence.size();
    const std::string text = readme->substr(start, readme->find("```", start) - start);
    const auto cluster = read_described<Cluster>(text, "README.md");
    ASSERT_TRUE(cluster) << to_text(cluster.error());
    EXPECT_EQ(device_count(*cluster), 32);
    EXPECT_TRUE(check_cluster(*cluster, "README.md"));
}

} // namespace
} // namespace shardplan::sim
