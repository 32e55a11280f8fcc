#include <algorithm>
#include <filesystem>
#include <system_error>

#include "planner/cli/inputs.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan::cli {
namespace {

/// A file that is there, whatever its name looks like.
bool is_file(const std::string& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error);
}

bool holds(std::string_view text, std::string_view word) {
    return text.find(word) != std::string_view::npos;
}

} // namespace

std::string foreign_cluster_format(std::string_view text) {
    const std::string_view head = text.substr(0, 16384);
    if (holds(head, "<system") && holds(head, "<cpu")) {
        return "an NCCL topology file (XML)";
    }
    if (holds(head, "GPU0") && (holds(head, "NV") || holds(head, "PIX") || holds(head, "SYS"))) {
        return "a topology print of nvidia-smi (`nvidia-smi topo -m`)";
    }
    if (holds(head, "SwitchName") || holds(head, "BlockName")) {
        return "a Slurm topology file (topology.conf)";
    }
    if (holds(head, "\"apiVersion\"") || holds(head, "apiVersion:")) {
        return "a Kubernetes object list";
    }
    if (holds(head, "busbw") && holds(head, "algbw")) {
        return "output of nccl-tests";
    }
    if (holds(head, "memory.total") && holds(head, "name")) {
        return "a query of nvidia-smi (`nvidia-smi --query-gpu`)";
    }
    return "";
}

sim::Result<sim::Cluster> cluster_from(const ClusterOptions& options,
                                       std::vector<sim::Assumption>& assumptions) {
    std::string name = options.cluster;
    if (is_file(name)) {
        const auto text = sim::read_file(name);
        if (!text) {
            return text.error();
        }
        const std::string format = foreign_cluster_format(*text);
        if (!format.empty()) {
            return sim::Error{sim::ErrorCode::unsupported, name,
                              "this looks like " + format + ", which cannot be read yet",
                              "describe the machine in a cluster file (see `shardplan list "
                              "clusters` for ready ones), and --gpus for its size"};
        }
        // A bare file name is told from the name of a built-in by a slash.
        if (name.find('/') == std::string::npos) {
            name.insert(0, "./");
        }
    }
    auto loaded = sim::load_cluster(name);
    if (!loaded) {
        return loaded.error();
    }
    assumptions.insert(assumptions.end(), loaded->assumptions.begin(), loaded->assumptions.end());
    sim::Cluster cluster = std::move(loaded->value);
    if (const auto status = apply_sets(cluster, "cluster", options.sets); !status) {
        return status.error();
    }
    if (const auto status = sim::check_cluster(cluster, "--cluster " + options.cluster); !status) {
        return status.error();
    }
    if (!options.gpus) {
        if (cluster.scalable) {
            assumptions.push_back({"cluster.gpus", std::to_string(sim::device_count(cluster)),
                                   "the cluster as described", "give --gpus"});
        }
        return cluster;
    }
    return sim::resize(std::move(cluster), *options.gpus, "--gpus");
}

} // namespace shardplan::plan::cli
