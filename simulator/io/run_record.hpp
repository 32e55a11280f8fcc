#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// Run records: training runs somebody measured and published, one JSON object per line. The format
/// is described in simulator/io/schema/run_record.md. A key that is null or absent is not known;
/// keys that are not listed there are ignored.
namespace shardplan::sim {

/// Dimensions of the model of a run; widths are elements, counts are counts.
struct RunModel {
    std::string name;
    std::optional<std::int64_t> params, params_computed;
    std::optional<std::int64_t> layers, hidden, heads, kv_heads, head_dim, ffn_hidden;
    std::optional<std::int64_t> vocab, vocab_divisor, vocab_padded;
    std::optional<std::int64_t> seq_len, max_positions;
    std::optional<std::int64_t> window; ///< tokens, on every second layer
    std::optional<bool> gated_mlp, tied_embeddings, qk_norm;
    std::optional<std::string> activation, norm, biases, positions, attention;
    std::optional<double> attention_dropout, hidden_dropout; ///< probabilities
    std::optional<std::int64_t> experts, experts_per_token, moe_ffn_hidden, shared_expert_ffn;
    std::optional<std::int64_t> first_dense_layers, mtp_layers;
    std::optional<std::int64_t> q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim;
    std::optional<std::int64_t> v_head_dim;
    bool hybrid = false; ///< has blocks that are not described by the keys above

    friend bool operator==(const RunModel&, const RunModel&) = default;
};

/// Hardware of a run.
struct RunCluster {
    std::optional<std::string> device; ///< name in the catalogue
    bool device_assumed = false;       ///< the source leaves the product open; never scored for fit
    std::optional<std::int64_t> gpus, gpus_per_node;
    std::optional<std::string> intra_kind;    ///< nvswitch, nvlink-mesh, xgmi-mesh, pcie
    std::optional<double> intra_gbytes_per_s; ///< one device, one direction
    std::optional<std::string> fabric_kind;
    std::optional<std::int64_t> nics_per_node;
    std::optional<double> gbit_per_nic;
    std::optional<std::int64_t> nvlink_domain_gpus;

    friend bool operator==(const RunCluster&, const RunCluster&) = default;
};

/// Software of a run.
struct RunStack {
    std::string name;
    std::optional<std::string> version;
    std::vector<std::string> features;         ///< said by the source
    std::vector<std::string> features_assumed; ///< known defaults of the stack

    friend bool operator==(const RunStack&, const RunStack&) = default;
};

/// How a run was split; dp x tp x pp x cp = gpus.
struct RunLayout {
    std::optional<std::int64_t> dp, tp, pp, cp, ep, etp;
    std::optional<std::int64_t> vpp; ///< model chunks per stage
    std::optional<std::string> schedule, stage_partition;
    std::optional<std::int64_t> zero_stage, zero_group;
    std::optional<std::string> fsdp;
    std::optional<std::int64_t> shard_group;
    std::optional<std::int64_t> micro_batch, global_batch, num_microbatches;
    std::optional<bool> sequence_parallel, flash_attention;
    std::optional<std::string> recompute;
    std::optional<std::int64_t> recompute_layers; ///< of the whole model
    std::optional<std::string> precision, precision_detail, optimizer, cp_comm, offload, task;

    friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// One memory figure of a run.
struct RunMemory {
    double gib = 0.0;
    std::string kind; ///< allocated, reserved, process, analytic
    std::string rank; ///< first, last, max, all, unknown
    /// Printed as "GB": the true figure in GiB lies between 0.931 of `gib` and `gib`.
    bool unit_uncertain = false;
    bool kind_uncertain = false;

    friend bool operator==(const RunMemory&, const RunMemory&) = default;
};

/// What was measured.
struct RunMeasured {
    std::optional<double> step_time_s;
    bool oom = false; ///< the run did not fit
    std::vector<RunMemory> memory;
    std::optional<double> params_opt_gib;  ///< published formula, first stage
    std::optional<double> activations_gib; ///< published formula, first stage
    std::optional<double> activation_pct;  ///< published formula, percent of tp alone

    friend bool operator==(const RunMeasured&, const RunMeasured&) = default;
};

/// One published run.
struct RunRecord {
    std::string id;
    std::string group;
    std::string source;
    std::int64_t line = 0; ///< in the file it was read from, from 1
    bool complete = false;
    std::vector<std::string> flags, usable_for, essentials_missing;
    /// Records with the same text differ in layout and kernels only, so that they can be ranked.
    std::optional<std::string> sweep;
    std::optional<double> noise; ///< relative spread of the step time of this case
    RunModel model;
    RunCluster cluster;
    RunStack stack;
    RunLayout layout;
    RunMeasured measured;

    friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

/// True if `name` is among `usable_for`.
bool usable_for(const RunRecord& record, std::string_view name);
/// True if `name` is among `flags`.
bool has_flag(const RunRecord& record, std::string_view name);

/// What a file of run records gave.
struct RunRecords {
    std::vector<RunRecord> records; ///< in the order of the file
    /// Lines that are not a record (lost, the others stand) and values of a wrong type (taken as
    /// not known); `where` is "file:line" with the pointer of the value.
    std::vector<Error> problems;

    friend bool operator==(const RunRecords&, const RunRecords&) = default;
};

/// Reads JSON lines; empty lines are skipped. `source_name` is used in problems.
/// Errors: no line holds a record.
Result<RunRecords> parse_run_records(std::string_view text, std::string_view source_name);
/// The same from a file. Errors: as above, and a file that cannot be read.
Result<RunRecords> read_run_records(const std::string& path);

} // namespace shardplan::sim
