// Files of foreign formats: each reader by itself, whether or not the text is still recognised, and
// behind it everything that is made of its answer.
#include <algorithm>
#include <cmath>

#include "planner/analysis/collectives_fit.hpp"
#include "planner/cli/present_foreign.hpp"
#include "planner/import/build_cluster.hpp"
#include "planner/import/collective_file.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/recognise.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "tests/fuzz/verbs.hpp"

namespace {

using namespace shardplan;

using Reader = sim::Result<plan::ForeignCluster> (*)(std::string_view, std::string_view);

/// What a person adds: the device, and once with a node that fills in the rest.
struct Helps {
    plan::ImportHelp device;
    plan::ImportHelp node;
};

Helps helps_with(const std::string& device, const std::string& cluster) {
    Helps helps;
    helps.device.device = device;
    auto devices = sim::load_devices();
    auto node = sim::load_cluster(cluster);
    if (!devices || !node) {
        std::fprintf(stderr, "the catalogue cannot be read\n");
        std::exit(1);
    }
    helps.device.catalogue = std::move(*devices);
    helps.node = helps.device;
    helps.node.node = std::move(node->value);
    return helps;
}

/// Everything that `cluster` does with a text. A file that says too little is not refused here: its
/// reader gave an answer.
fuzz::Outcome all_of(Reader read, const std::string& text, const Helps& helps) {
    [[maybe_unused]] const auto* format = plan::recognise(text);
    auto file = read(text, "input");
    if (!file) {
        return fuzz::outcome_of(file);
    }
    const std::vector<std::string> inventory = {"node-1", "node-2", "node-3"};
    plan::diagnose(*file, helps.node, text.size() % 2 == 0 ? &inventory : nullptr);
    std::ostringstream out;
    std::ostringstream err;
    plan::cli::print_foreign({out, err}, *file);
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object();
    plan::cli::write_foreign(json, *file);
    json.end_object();
    if (const auto again = sim::JsonValue::parse(json.str(), "answer"); !again) {
        return {3, again.error().what};
    }
    for (const plan::ImportHelp* help : {&helps.device, &helps.node}) {
        auto built = plan::build_cluster(*file, *help);
        if (!built) {
            if (fuzz::Outcome outcome = fuzz::outcome_of(built); outcome.code != 2) {
                return outcome;
            }
            continue;
        }
        plan::settle_nics(built->cluster, built->assumptions);
        // A part that the file lacks may be refused; a graph that contradicts itself may not.
        if (const auto status = sim::check_cluster(built->cluster, "input");
            !status && status.error().where.find("/vertices") != std::string::npos) {
            return {3, sim::to_text(status.error())};
        }
    }
    return {};
}

/// What `validate --collectives` and `calibrate` make of a text of timings, with the machine.
fuzz::Outcome timings_of(const std::string& text, const plan::TimedMachine& machine,
                         const plan::CollectiveReproducer& reproducer) {
    auto file = plan::parse_collectives(text, "input");
    if (!file) {
        return fuzz::outcome_of(file);
    }
    if (const auto status = plan::complete_collectives(*file, machine); !status) {
        return fuzz::outcome_of(status);
    }
    constexpr std::size_t few = 8; // enough for a fit, and quick
    auto& records = file->records.records;
    records.resize(std::min(records.size(), few));
    const auto fit = plan::fit_fabric(reproducer, records);
    if (!fit) {
        return fuzz::outcome_of(fit);
    }
    const bool sound = std::all_of(fit->residuals.begin(), fit->residuals.end(),
                                   [](double error) { return std::isfinite(error); });
    return sound ? fuzz::Outcome{} : fuzz::Outcome{3, "an error that is no number"};
}

std::vector<std::string> inputs(std::initializer_list<const char*> files) {
    std::vector<std::string> out;
    for (const char* file : files) {
        out.push_back(fuzz::tree_file(std::string("tests/data/inputs/") + file));
    }
    return out;
}

} // namespace

int main() {
    namespace readers = plan::readers;
    const Helps helps = helps_with("A100-SXM-80GB", "dgx-a100");
    const auto target = [&](const char* name, std::vector<std::string> seeds, Reader read) {
        return fuzz::Target{name, std::move(seeds), [read, &helps](const std::string& text) {
                                return all_of(read, text, helps);
                            }};
    };
    plan::TimedMachine machine;
    machine.catalogue = helps.device.catalogue;
    machine.cluster = helps_with("H100-SXM-80GB", "p5").node.node;
    const auto reproducer = plan::CollectiveReproducer::make(machine.cluster);
    if (!reproducer) {
        std::fprintf(stderr, "the catalogue cannot be read\n");
        return 1;
    }
    return fuzz::run({
        {"timings",
         {fuzz::tree_file("samples/machine/p5-all_reduce.log")},
         [&](const std::string& text) { return timings_of(text, machine, *reproducer); }},
        target(
            "matrices",
            inputs({"topo_h100_nic_legend.txt", "topo_missing_gpu.txt", "topo_v100_cubemesh.txt"}),
            readers::topology_matrix),
        target("topology XML",
               inputs({"nccl_topo_missing_arch.xml", "nccl_topo_pairwise_nvlink.xml",
                       "nccl_topo_cloud.xml", "rccl_topo_xgmi.xml"}),
               readers::topology_xml),
        target("graph XML", inputs({"nccl_graph.xml"}), readers::graph_xml),
        target("GPU lists", inputs({"nvidia_smi_list_mig.txt"}), readers::gpu_list),
        target("GPU queries", inputs({"nvidia_smi_query_vgpu.csv"}), readers::gpu_query),
        target("topology.conf",
               inputs({"slurm_topology_stale_nodes.conf", "slurm_topology_comment_only.conf",
                       "slurm_topology_two_roots_unknown.conf"}),
               readers::slurm_topology),
        target("topology.yaml", inputs({"slurm_topology_block.yaml"}), readers::slurm_yaml),
        target("scontrol", inputs({"scontrol_nodes.txt"}), readers::scontrol_nodes),
        target("node lists", inputs({"k8s_nodes_small.json", "k8s_nodes_small.yaml"}),
               readers::kubernetes_nodes),
        target("logs", inputs({"nccl_tests_interleaved.log", "nccl_tests_rank_prefix.log"}),
               readers::nccl_tests_log),
    });
}
