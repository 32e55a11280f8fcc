#include "simulator/io/run_record.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/cell_reader.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::sim {
namespace {

using detail::CellReader;

void read_model(const CellReader& in, RunModel& m) {
    in.get("name", m.name);
    in.get("params", m.params);
    in.get("params_computed", m.params_computed);
    in.get("layers", m.layers);
    in.get("hidden", m.hidden);
    in.get("heads", m.heads);
    in.get("kv_heads", m.kv_heads);
    in.get("head_dim", m.head_dim);
    in.get("ffn_hidden", m.ffn_hidden);
    in.get("vocab", m.vocab);
    in.get("vocab_divisor", m.vocab_divisor);
    in.get("vocab_padded", m.vocab_padded);
    in.get("seq_len", m.seq_len);
    in.get("max_positions", m.max_positions);
    in.get("window", m.window);
    in.get("gated_mlp", m.gated_mlp);
    in.get("tied_embeddings", m.tied_embeddings);
    in.get("qk_norm", m.qk_norm);
    in.get("activation", m.activation);
    in.get("norm", m.norm);
    in.get("biases", m.biases);
    in.get("positions", m.positions);
    in.get("attention", m.attention);
    in.get("attention_dropout", m.attention_dropout);
    in.get("hidden_dropout", m.hidden_dropout);
    in.get("experts", m.experts);
    in.get("experts_per_token", m.experts_per_token);
    in.get("moe_ffn_hidden", m.moe_ffn_hidden);
    in.get("shared_expert_ffn", m.shared_expert_ffn);
    in.get("first_dense_layers", m.first_dense_layers);
    in.get("mtp_layers", m.mtp_layers);
    in.get("q_lora_rank", m.q_lora_rank);
    in.get("kv_lora_rank", m.kv_lora_rank);
    in.get("qk_nope_head_dim", m.qk_nope_head_dim);
    in.get("qk_rope_head_dim", m.qk_rope_head_dim);
    in.get("v_head_dim", m.v_head_dim);
    in.get("hybrid", m.hybrid);
}

void read_cluster(const CellReader& in, RunCluster& c) {
    in.get("device", c.device);
    in.get("device_assumed", c.device_assumed);
    in.get("gpus", c.gpus);
    in.get("gpus_per_node", c.gpus_per_node);
    in.get("intra_kind", c.intra_kind);
    in.get("intra_GBps_per_gpu_per_direction", c.intra_gbytes_per_s);
    const CellReader fabric = in.section("fabric");
    fabric.get("kind", c.fabric_kind);
    fabric.get("nics_per_node", c.nics_per_node);
    fabric.get("gbit_per_nic", c.gbit_per_nic);
    fabric.get("nvlink_domain_gpus", c.nvlink_domain_gpus);
}

void read_layout(const CellReader& in, RunLayout& l) {
    in.get("dp", l.dp);
    in.get("tp", l.tp);
    in.get("pp", l.pp);
    in.get("cp", l.cp);
    in.get("ep", l.ep);
    in.get("etp", l.etp);
    in.get("vpp", l.vpp);
    in.get("schedule", l.schedule);
    in.get("stage_partition", l.stage_partition);
    in.get("zero_stage", l.zero_stage);
    in.get("zero_group", l.zero_group);
    in.get("fsdp", l.fsdp);
    in.get("shard_group", l.shard_group);
    in.get("micro_batch", l.micro_batch);
    in.get("global_batch", l.global_batch);
    in.get("num_microbatches", l.num_microbatches);
    in.get("sequence_parallel", l.sequence_parallel);
    in.get("flash_attention", l.flash_attention);
    in.get("recompute", l.recompute);
    in.get("recompute_layers", l.recompute_layers);
    in.get("precision", l.precision);
    in.get("precision_detail", l.precision_detail);
    in.get("optimizer", l.optimizer);
    in.get("cp_comm", l.cp_comm);
    in.get("offload", l.offload);
    in.get("task", l.task);
}

void read_measured(const CellReader& in, RunMeasured& m) {
    in.get("step_time_s", m.step_time_s);
    in.get("oom", m.oom);
    in.get("memory_params_opt_gib", m.params_opt_gib);
    in.get("memory_activations_gib", m.activations_gib);
    in.get("activation_memory_pct_of_tp_baseline", m.activation_pct);
    for (const CellReader& item : in.items("memory")) {
        std::optional<double> gib;
        RunMemory entry;
        item.get("gib", gib);
        item.get("kind", entry.kind);
        item.get("rank", entry.rank);
        item.get("unit_uncertain", entry.unit_uncertain);
        item.get("kind_uncertain", entry.kind_uncertain);
        if (gib && *gib > 0.0) {
            entry.gib = *gib;
            m.memory.push_back(std::move(entry));
        }
    }
}

RunRecord read_record(const JsonValue& json, std::vector<Error>& problems) {
    RunRecord record;
    const CellReader in(json, problems);
    in.get("id", record.id);
    in.get("group", record.group);
    in.get("source", record.source);
    in.get("complete", record.complete);
    in.get("flags", record.flags);
    in.get("usable_for", record.usable_for);
    in.get("essentials_missing", record.essentials_missing);
    in.get("noise", record.noise);
    read_model(in.section("model"), record.model);
    read_cluster(in.section("cluster"), record.cluster);
    const CellReader stack = in.section("stack");
    stack.get("name", record.stack.name);
    stack.get("version", record.stack.version);
    stack.get("features", record.stack.features);
    stack.get("features_assumed", record.stack.features_assumed);
    read_layout(in.section("layout"), record.layout);
    read_measured(in.section("measured"), record.measured);
    return record;
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

} // namespace

bool usable_for(const RunRecord& record, std::string_view name) {
    return contains(record.usable_for, name);
}

bool has_flag(const RunRecord& record, std::string_view name) {
    return contains(record.flags, name);
}

Result<RunRecords> parse_run_records(std::string_view text, std::string_view source_name) {
    RunRecords out;
    const auto take = [&out](const JsonValue& json, std::int64_t line_number) {
        RunRecord record = read_record(json, out.problems);
        record.line = line_number;
        if (record.id.empty()) {
            record.id = "line-" + std::to_string(line_number);
        }
        if (record.group.empty()) {
            record.group = "ungrouped";
        }
        out.records.push_back(std::move(record));
    };
    detail::for_each_record_line(text, source_name, out.problems, take);
    if (out.records.empty()) {
        if (!out.problems.empty()) {
            Error first = out.problems.front();
            first.hint = "no line of the file is a run record; write one JSON object per line";
            return first;
        }
        return Error{ErrorCode::bad_input, std::string(source_name), "there is no run record in it",
                     "write one JSON object per line, with model, cluster, stack, layout and "
                     "measured"};
    }
    return out;
}

Result<RunRecords> read_run_records(const std::string& path) {
    auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_run_records(*text, path);
}

} // namespace shardplan::sim
