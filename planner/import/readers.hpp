#pragma once

#include <string_view>

#include "planner/import/foreign_cluster.hpp"
#include "simulator/units/result.hpp"

/// One reader per format, each in a file of its own. `source` is the name of the file, for
/// messages. Errors: nothing of the format could be made out.
namespace shardplan::plan::readers {

/// `nvidia-smi topo -m`.
sim::Result<ForeignCluster> topology_matrix(std::string_view text, std::string_view source);
/// What NCCL writes to NCCL_TOPO_DUMP_FILE and reads from NCCL_TOPO_FILE; RCCL's dumps.
sim::Result<ForeignCluster> topology_xml(std::string_view text, std::string_view source);
/// What NCCL writes to NCCL_GRAPH_DUMP_FILE: the channels it found.
sim::Result<ForeignCluster> graph_xml(std::string_view text, std::string_view source);
/// `nvidia-smi -L`.
sim::Result<ForeignCluster> gpu_list(std::string_view text, std::string_view source);
/// `nvidia-smi --query-gpu=... --format=csv`, with or without header and units.
sim::Result<ForeignCluster> gpu_query(std::string_view text, std::string_view source);
/// Slurm's topology.conf and `scontrol show topology`.
sim::Result<ForeignCluster> slurm_topology(std::string_view text, std::string_view source);
/// Slurm's topology.yaml.
sim::Result<ForeignCluster> slurm_yaml(std::string_view text, std::string_view source);
/// `scontrol show node`, with and without --oneliner.
sim::Result<ForeignCluster> scontrol_nodes(std::string_view text, std::string_view source);
/// `kubectl get nodes -o json` and `-o yaml`.
sim::Result<ForeignCluster> kubernetes_nodes(std::string_view text, std::string_view source);
/// What a program of nccl-tests or rccl-tests prints.
sim::Result<ForeignCluster> nccl_tests_log(std::string_view text, std::string_view source);

} // namespace shardplan::plan::readers
