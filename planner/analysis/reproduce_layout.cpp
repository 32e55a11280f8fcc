#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/reproduce_notes.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

using sim::Result;
using Notes = std::vector<sim::Assumption>;

bool has_feature_named(const sim::RunRecord& record, std::string_view name) {
    const auto in = [&](const std::vector<std::string>& names) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    return in(record.stack.features) || in(record.stack.features_assumed);
}

sim::Status set_precision(const sim::RunRecord& record, sim::Precision& precision, Notes& notes) {
    const std::string word = lower(record.layout.precision);
    if (word.empty()) {
        return missing("layout.precision");
    }
    const std::string detail = lower(record.layout.precision_detail);
    if (word == "fp32" || word == "tf32" || word == "fp16" || word == "bf16") {
        precision.compute = *sim::enum_from<sim::Dtype>(word);
        return sim::Done{};
    }
    if (word == "nvfp4" || word == "fp4") {
        precision.compute = sim::Dtype::fp4;
        precision.recipe = sim::Fp8Recipe::nvfp4;
        return sim::Done{};
    }
    if (word != "fp8") {
        return unusable("layout.precision", "nobody knows the precision " + sim::in_quotes(word));
    }
    precision.compute = sim::Dtype::fp8;
    if (has_feature_named(record, "mxfp8") || has_word(detail, "mx")) {
        precision.recipe = sim::Fp8Recipe::mxfp8;
    } else if (has_feature_named(record, "float8-rowwise") || has_word(detail, "rowwise")) {
        precision.recipe = sim::Fp8Recipe::rowwise;
    } else if (has_word(detail, "block")) {
        precision.recipe = sim::Fp8Recipe::blockwise;
    } else {
        precision.recipe = sim::Fp8Recipe::tensorwise;
        if (!has_feature_named(record, "float8-tensorwise")) {
            note(notes, "layout.precision_detail", "tensorwise", "default",
                 "one scale for each tensor");
        }
    }
    return sim::Done{};
}

void set_optimizer(const sim::RunRecord& record, sim::Job& job, Notes& notes) {
    const std::string word = lower(record.layout.optimizer);
    if (word.empty()) {
        note(notes, "layout.optimizer", "adamw", "default");
    }
    const bool eight_bit = has_word(word, "8-bit") || has_word(word, "8bit") ||
                           has_feature_named(record, "adamw-8bit");
    if (eight_bit) {
        job.optimizer.kind = sim::OptimizerKind::adamw_8bit;
    } else if (has_word(word, "muon")) {
        job.optimizer.kind = sim::OptimizerKind::muon;
    } else if (has_word(word, "adafactor")) {
        job.optimizer.kind = sim::OptimizerKind::adafactor;
    } else if (has_word(word, "sgd")) {
        job.optimizer.kind =
            has_word(word, "momentum") ? sim::OptimizerKind::sgd_momentum : sim::OptimizerKind::sgd;
    }
    if (has_word(word, "bf16 state") || has_word(word, "bf16 moment")) {
        job.optimizer.state = sim::Dtype::bf16;
    }
    if (has_word(word, "fp32 grad") || has_word(word, "18 bytes/param")) {
        job.precision.gradients = sim::Dtype::fp32;
    } else if (has_word(word, "bf16 grad")) {
        job.precision.gradients = sim::Dtype::bf16;
    }
}

/// Sequences per step. Where the last micro-batch is smaller, the full ones are counted.
Result<std::int64_t> global_batch_of(const sim::RunRecord& record, std::int64_t dp, Notes& notes) {
    const sim::RunLayout& l = record.layout;
    const std::int64_t per_pass = dp * *l.micro_batch;
    const std::int64_t given = l.global_batch.value_or(0);
    const std::int64_t passes = l.num_microbatches.value_or(0);
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (given < 1 && passes < 1) {
        return missing("layout.global_batch");
    }
    if (given > most || passes > most / per_pass) {
        return unusable("layout.global_batch", "the global batch is beyond any use");
    }
    if (given >= 1 && given % per_pass == 0) {
        return given;
    }
    const std::int64_t whole =
        passes >= 1 ? passes * per_pass : (given + per_pass - 1) / per_pass * per_pass;
    note(notes, "layout.global_batch", std::to_string(whole),
         given >= 1 ? "rounded up from " + std::to_string(given) : "from num_microbatches");
    return whole;
}

/// A degree between 1 and the largest its field holds; absent: 1.
template <class Field>
sim::Status set_degree(const std::optional<std::int64_t>& value, std::string path, bool needed,
                       Field& out, Notes& notes) {
    if (!value) {
        if (needed) {
            return missing(std::move(path));
        }
        note(notes, std::move(path), "1", "default");
        return sim::Done{};
    }
    if (*value < 1 || *value > std::numeric_limits<Field>::max()) {
        std::string what = path + " is " + std::to_string(*value);
        return unusable(std::move(path), std::move(what));
    }
    out = static_cast<Field>(*value);
    return sim::Done{};
}

sim::Status set_degrees(const sim::RunRecord& record, sim::Layout& layout, Notes& notes) {
    const sim::RunLayout& l = record.layout;
    for (const auto& status : {
             set_degree(l.tp, "layout.tp", true, layout.tp, notes),
             set_degree(l.pp, "layout.pp", true, layout.pp, notes),
             set_degree(l.cp, "layout.cp", false, layout.cp, notes),
             set_degree(l.ep, "layout.ep", false, layout.ep, notes),
             set_degree(l.vpp, "layout.vpp", false, layout.chunks, notes),
             set_degree(l.micro_batch, "layout.micro_batch", true, layout.micro_batch, notes),
         }) {
        if (!status) {
            return status.error();
        }
    }
    if (l.etp && (*l.etp < 1 || *l.etp > std::numeric_limits<std::uint16_t>::max())) {
        return unusable("layout.etp", "layout.etp is " + std::to_string(*l.etp));
    }
    // Dense models carry etp 1 without meaning it.
    const bool moe = record.model.experts.value_or(0) > 0;
    layout.etp = moe ? static_cast<std::uint16_t>(l.etp.value_or(0)) : std::uint16_t{0};
    if (layout.etp == layout.tp) {
        layout.etp = 0;
    }
    const std::int64_t replica = std::int64_t{layout.tp} * layout.pp * layout.cp;
    const std::int64_t gpus = record.cluster.gpus.value_or(0);
    if (std::string text = rank_contradiction(record); !text.empty()) {
        return unusable("layout.dp", std::move(text));
    }
    const std::int64_t dp = l.dp.value_or(gpus / replica);
    if (dp < 1 || dp > (std::int64_t{1} << 24)) {
        return unusable("layout.dp", "layout.dp is " + std::to_string(dp));
    }
    layout.dp = static_cast<std::uint32_t>(dp);
    return sim::Done{};
}

sim::Status set_shard(const sim::RunRecord& record, const sim::StackProfile& stack,
                      sim::Layout& layout, Notes& notes) {
    const sim::RunLayout& l = record.layout;
    const std::string fsdp = lower(l.fsdp);
    const auto& known = stack.capabilities.shards;
    const auto can = [&](sim::Shard shard) {
        return std::find(known.begin(), known.end(), shard) != known.end();
    };
    std::int64_t group = l.zero_group.value_or(0);
    if (fsdp == "full" || fsdp == "hybrid") {
        layout.shard = sim::Shard::all;
        if (fsdp == "hybrid") {
            group = l.shard_group.value_or(record.cluster.gpus_per_node.value_or(8));
            if (!l.shard_group) {
                note(notes, "layout.shard_group", std::to_string(group), "one node");
            }
        }
    } else if (fsdp == "shard_grad_op" && !can(sim::Shard::optimizer_gradients)) {
        // Parameters are split too, but stay whole from the forward pass to the end of the
        // backward.
        layout.shard = sim::Shard::all;
        layout.reshard = false;
    } else if (l.zero_stage || fsdp == "shard_grad_op") {
        const std::int64_t stage = l.zero_stage.value_or(2);
        if (stage > 3) {
            return unusable("layout.zero_stage", "zero_stage is " + std::to_string(stage));
        }
        layout.shard = static_cast<sim::Shard>(stage);
    } else {
        return missing("layout.zero_stage");
    }
    const std::int64_t all = std::int64_t{layout.dp} * layout.cp;
    if (group > 0 && group < all) {
        layout.shard_group = static_cast<std::uint32_t>(group);
    }
    return sim::Done{};
}

sim::Status set_recompute(const sim::RunRecord& record, sim::Layout& layout,
                          sim::LayoutTables& tables, Notes& notes) {
    const std::string word = lower(record.layout.recompute);
    if (word.empty()) {
        return missing("layout.recompute");
    }
    const auto kind = sim::enum_from<sim::Recompute>(word);
    if (!kind) {
        return unusable("layout.recompute", "nobody knows recompute " + sim::in_quotes(word));
    }
    sim::RecomputePlan plan{*kind, 0};
    const std::int64_t layers = record.model.layers.value_or(0);
    const std::int64_t some = record.layout.recompute_layers.value_or(0);
    if (*kind == sim::Recompute::full && some > 0 && some < layers) {
        plan.layers_per_stage = (some + layout.pp - 1) / layout.pp;
        if (some % layout.pp != 0) {
            note(notes, "layout.recompute_layers",
                 std::to_string(plan.layers_per_stage) + " per stage",
                 std::to_string(some) + " do not divide by the stages");
        }
    }
    layout.recompute = tables.intern(plan);
    return sim::Done{};
}

/// "11,12,12,11: words" as a stage map; nothing if it does not add up.
std::optional<sim::StageMap> parse_partition(std::string_view text, std::int64_t layers,
                                             std::int64_t stages) {
    sim::StageMap map;
    text = text.substr(0, text.find(':'));
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        std::string_view item = text.substr(0, comma);
        text.remove_prefix(std::min(comma + 1, text.size()));
        while (item.starts_with(' ')) {
            item.remove_prefix(1);
        }
        std::int64_t count = 0;
        const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), count);
        if (error != std::errc{} || count < 0 || count > layers) {
            return std::nullopt;
        }
        map.layers.push_back(count);
        if (static_cast<std::int64_t>(map.layers.size()) > stages) {
            return std::nullopt;
        }
    }
    const std::int64_t sum = std::accumulate(map.layers.begin(), map.layers.end(), std::int64_t{0});
    if (sum != layers || static_cast<std::int64_t>(map.layers.size()) != stages) {
        return std::nullopt;
    }
    return map;
}

sim::Status set_pipeline(const sim::RunRecord& record, sim::Layout& layout,
                         sim::LayoutTables& tables, Notes& notes) {
    const sim::RunLayout& l = record.layout;
    const std::string schedule = lower(l.schedule);
    const std::int64_t layers = record.model.layers.value_or(0);
    if (layout.chunks > 1) {
        layout.schedule = sim::ScheduleKind::interleaved;
    } else if (schedule == "interleaved") {
        if (layout.pp > 1) {
            note(notes, "layout.schedule", "1f1b", "one chunk per stage", "nothing to interleave");
        }
    } else if (!schedule.empty() && schedule != "none") {
        const auto kind = sim::enum_from<sim::ScheduleKind>(schedule);
        if (!kind) {
            return unusable("layout.schedule",
                            "nobody knows the schedule " + sim::in_quotes(schedule));
        }
        layout.schedule = *kind;
    }
    if (layout.pp == 1) {
        layout.chunks = 1;
        layout.schedule = sim::ScheduleKind::one_f_one_b;
    }
    if (layout.pp > layers) {
        return unusable("layout.pp", std::to_string(layers) + " layers on " +
                                         std::to_string(layout.pp) + " stages");
    }
    std::int64_t fewest = layers / layout.pp;
    if (l.stage_partition) {
        const auto map = parse_partition(*l.stage_partition, layers, layout.pp);
        if (!map) {
            return unusable("layout.stage_partition", sim::in_quotes(*l.stage_partition) +
                                                          " does not split " +
                                                          std::to_string(layers) + " layers into " +
                                                          std::to_string(layout.pp) + " stages");
        }
        layout.stage_map = tables.intern(*map);
        fewest = *std::min_element(map->layers.begin(), map->layers.end());
    }
    if (layout.chunks > fewest && fewest >= 1) {
        // Where embedding and loss count as layers, a chunk may hold nothing else.
        note(notes, "layout.vpp", std::to_string(fewest),
             "reduced from " + std::to_string(layout.chunks),
             "chunks without a layer are not estimated");
        layout.chunks = static_cast<std::uint16_t>(fewest);
        if (layout.chunks == 1) {
            layout.schedule = sim::ScheduleKind::one_f_one_b;
        }
    }
    return sim::Done{};
}

sim::Status set_offload(const sim::RunRecord& record, sim::Layout& layout) {
    if (!record.layout.offload) {
        return sim::Done{};
    }
    const std::string word = lower(record.layout.offload);
    const auto whole = static_cast<std::uint16_t>(sim::offload_scale);
    layout.offload_optimizer = has_word(word, "opt") ? whole : std::uint16_t{0};
    layout.offload_parameters = has_word(word, "param") ? whole : std::uint16_t{0};
    layout.offload_activations = has_word(word, "activation") ? whole : std::uint16_t{0};
    if (layout.offload_optimizer + layout.offload_parameters + layout.offload_activations == 0) {
        if (word.empty() || word == "none") {
            return sim::Done{};
        }
        return unusable("layout.offload", "nobody knows what is offloaded by " +
                                              sim::in_quotes(*record.layout.offload));
    }
    layout.offload_tier = has_word(word, "nvme") ? sim::OffloadTier::nvme : sim::OffloadTier::host;
    return sim::Done{};
}

void set_context_parallel(const sim::RunRecord& record, const sim::StackProfile& stack,
                          sim::Layout& layout, Notes& notes) {
    const std::string word = lower(record.layout.cp_comm);
    if (has_word(word, "a2a") || has_word(word, "all_to_all") || has_word(word, "all-to-all") ||
        has_word(word, "ulysses")) {
        layout.cp_kind = sim::CpKind::all_to_all;
    } else if (has_word(word, "allgather") || has_word(word, "all_gather") ||
               has_word(word, "all-gather")) {
        layout.cp_kind = sim::CpKind::all_gather;
    } else {
        if (word.empty() && !stack.capabilities.cp_kinds.empty()) {
            layout.cp_kind = stack.capabilities.cp_kinds.front();
        }
        if (layout.cp > 1) {
            note(notes, "layout.cp_comm", std::string(name_of(layout.cp_kind)),
                 "default of the stack");
        }
    }
    if (layout.cp == 1) {
        layout.cp_kind = sim::CpKind::ring;
    }
}

} // namespace

std::string rank_contradiction(const sim::RunRecord& record) {
    constexpr std::int64_t most = std::int64_t{1} << 15; // products of four stay within 64 bits
    const sim::RunLayout& l = record.layout;
    const std::int64_t gpus = record.cluster.gpus.value_or(0);
    if (gpus < 1 || !l.tp || !l.pp) {
        return "";
    }
    std::int64_t ranks = 1;
    std::string product;
    const auto multiply = [&](const char* name, const std::optional<std::int64_t>& degree,
                              std::int64_t limit) {
        const std::int64_t value = degree.value_or(1);
        if (value < 1 || value > limit) {
            return false; // refused for its own sake
        }
        ranks *= value;
        product += (product.empty() ? "" : " x ") + std::string(name) + " " + std::to_string(value);
        return true;
    };
    if (!multiply("tp", l.tp, most) || !multiply("pp", l.pp, most) || !multiply("cp", l.cp, most)) {
        return "";
    }
    if (l.dp && !multiply("dp", l.dp, most)) {
        return "";
    }
    if (l.dp ? ranks == gpus : gpus % ranks == 0) {
        return "";
    }
    return product + " is " + std::to_string(ranks) + " ranks, " +
           (l.dp ? "but there are " : "which do not divide the ") + std::to_string(gpus) + " GPUs";
}

Result<sim::Job> job_of(const sim::RunRecord& record, Notes& notes) {
    const sim::RunLayout& l = record.layout;
    sim::Job job;
    job.name = "job of the record";
    if (!record.model.seq_len) {
        return missing("model.seq_len");
    }
    job.sequence.max = *record.model.seq_len;
    sim::Layout degrees;
    Notes unused; // layout_of reports the same ones
    if (const auto status = set_degrees(record, degrees, unused); !status) {
        return status.error();
    }
    const auto batch = global_batch_of(record, degrees.dp, notes);
    if (!batch) {
        return batch.error();
    }
    job.global_batch.sequences = *batch;
    if (const auto status = set_precision(record, job.precision, notes); !status) {
        return status.error();
    }
    set_optimizer(record, job, notes);
    const std::string task = lower(l.task);
    if (has_word(task, "lora")) {
        job.method.kind = has_word(task, "qlora") ? sim::MethodKind::qlora : sim::MethodKind::lora;
        note(notes, "layout.task", "rank " + std::to_string(job.method.rank), "default");
    }
    if (sim::has_flag(record, "capacity-factor-1")) {
        job.moe.capacity = 1.0;
    }
    return job;
}

Result<sim::Layout> layout_of(const sim::RunRecord& record, const sim::StackProfile& stack,
                              sim::LayoutTables& tables, Notes& notes) {
    sim::Layout layout;
    if (const auto status = set_degrees(record, layout, notes); !status) {
        return status.error();
    }
    if (const auto status = set_shard(record, stack, layout, notes); !status) {
        return status.error();
    }
    if (const auto status = set_recompute(record, layout, tables, notes); !status) {
        return status.error();
    }
    if (const auto status = set_pipeline(record, layout, tables, notes); !status) {
        return status.error();
    }
    if (const auto status = set_offload(record, layout); !status) {
        return status.error();
    }
    set_context_parallel(record, stack, layout, notes);
    if (!record.layout.sequence_parallel) {
        note(notes, "layout.sequence_parallel", "false", "default");
    }
    layout.sp = record.layout.sequence_parallel.value_or(false) && layout.tp > 1;
    return layout;
}

} // namespace shardplan::plan
