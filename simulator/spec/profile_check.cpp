#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/constants.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {

namespace {

Error problem(const std::string& where, std::string what, std::string hint) {
    return Error{ErrorCode::bad_input, where, std::move(what), std::move(hint)};
}

// --- Constants, found by walking the fields --------------------------------------------------

/// Those that are no plain ratios, factors or counts.
constexpr auto units = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"context", "B"},
    {"host_process", "B"},
    {"workspace", "B"},
    {"workspace_older", "B"},
    {"grouped_workspace", "B"},
    {"grouped_workspace_older", "B"},
    {"communicator", "B"},
    {"message_channel", "B"},
    {"bucket_bytes", "B"},
    {"half_size", "B"},
    {"launch", "s"},
    {"step_overhead", "s"},
    {"slice_host", "s"},
    {"step_latency", "s"},
    {"launch_latency", "s"},
    {"floor_latency", "s"},
    {"staged_latency", "s"},
    {"channel_rate", "B/s"},
    {"connection_buffers", "B"},
    {"message_buffers", "B"},
    {"in_switch_buffers", "B"},
    {"kernel_time", "s"},
    {"reduction_rate", "B/s"},
    {"norm_forward", "B/s"},
    {"norm_backward", "B/s"},
    {"activation_forward", "B/s"},
    {"activation_backward", "B/s"},
    {"gate_forward", "B/s"},
    {"gate_backward", "B/s"},
    {"rope", "B/s"},
    {"loss", "B/s"},
    {"sums", "B/s"},
    {"update", "B/s"},
});

std::string_view unit_of(std::string_view key) {
    const auto* it =
        std::find_if(units.begin(), units.end(), [&](const auto& row) { return row.first == key; });
    return it == units.end() ? std::string_view() : it->second;
}

bool is_fraction(std::string_view key) {
    return key.ends_with("_efficiency") || key.ends_with("_overlap");
}

Status check_constant(const Constant& c, std::string_view key, const std::string& where) {
    if (c.source.empty()) {
        return problem(where, "the constant is not stated",
                       "write its value, unit, origin, source, lo, hi and sigma, or derive the "
                       "profile from one that does");
    }
    if (c.unit != unit_of(key)) {
        return problem(where + "/unit",
                       "the unit is \"" + c.unit + "\", not \"" + std::string(unit_of(key)) + "\"",
                       "write the value in that base unit");
    }
    if (!(0.0 <= c.lo && c.lo <= c.value && c.value <= c.hi)) {
        return problem(where + "/value", "the value is outside its range",
                       "keep 0 <= lo <= value <= hi");
    }
    if (key.ends_with("sigma") && c.value >= 1.0) {
        return problem(where + "/value", "a relative spread of 1 or more leaves nothing to say",
                       "write a value below 1");
    }
    if (is_fraction(key) && c.value > 1.0) {
        return problem(where + "/value", "a fraction above 1", "write a value between 0 and 1");
    }
    if (c.unconfirmed && c.origin != Origin::fitted_to_runs) {
        return problem(where + "/unconfirmed", "only a value fitted to runs can be unconfirmed",
                       "leave the key out");
    }
    return Done{};
}

/// Checks every Constant of a profile in the order of its fields; the first problem.
template <Described T>
Status check_constants(T profile, const std::string& where) {
    Status status = Done{};
    for_each_constant(
        profile, "", [&](const std::string& path, const FieldMeta& meta, const Constant& c) {
            if (status) {
                std::string pointer = where + "/" + path;
                std::replace(pointer.begin() + static_cast<std::ptrdiff_t>(where.size()),
                             pointer.end(), '.', '/');
                status = check_constant(c, meta.key, pointer);
            }
        });
    return status;
}

// --- the rest --------------------------------------------------------------------------------

/// A feature that names an attention kernel must name the one that runs.
Status check_attention(const StackProfile& stack, const std::string& where) {
    for (std::size_t i = 0; i < stack.features.size(); ++i) {
        StackProfile none;
        none.attention = stack.attention;
        if (with_features(none, {stack.features[i]}).attention != stack.attention) {
            return problem(where + "/features/" + std::to_string(i),
                           "the feature \"" + std::string(name_of(stack.features[i])) +
                               "\" contradicts the attention kernel \"" +
                               std::string(name_of(stack.attention)) + "\"",
                           "keep one of the two");
        }
    }
    return Done{};
}

bool is_storage_format(Dtype type) {
    return type == Dtype::fp32 || type == Dtype::bf16 || type == Dtype::fp16;
}

Status check_rank_orders(const Capabilities& can, const std::string& where) {
    for (const std::string& order : can.rank_orders) {
        if (order != any_rank_order && !order_named(order)) {
            return problem(where + "/capabilities/rank_orders",
                           in_quotes(order) + " does not name each of tp, cp, ep, dp, pp once",
                           "write tp-cp-ep-dp-pp, neighbours first, or any");
        }
    }
    if (can.rank_orders.empty()) {
        return problem(where + "/capabilities/rank_orders",
                       "the stack can lay out ranks in no order", "list at least tp-cp-ep-dp-pp");
    }
    return Done{};
}

} // namespace

Status check_stack(const StackProfile& stack, std::string_view source) {
    const std::string where = std::string(source) + ": ";
    const Capabilities& can = stack.capabilities;
    if (can.schedules.empty()) {
        return problem(where + "/capabilities/schedules", "the stack can run no schedule",
                       "list at least 1f1b");
    }
    if (std::find(can.shards.begin(), can.shards.end(), stack.default_shard) == can.shards.end()) {
        return problem(where + "/default_shard",
                       std::string(name_of(stack.default_shard)) + " is not among its capabilities",
                       "add it to \"capabilities.shards\", or name one of those");
    }
    if (Status status = check_rank_orders(can, where); !status) {
        return status;
    }
    if (Status status = check_attention(stack, where); !status) {
        return status;
    }
    return check_constants(stack, where);
}

Status check_fabric(const FabricProfile& fabric, std::string_view source) {
    return check_constants(fabric, std::string(source) + ": ");
}

Status check_compute(const ComputeProfile& compute, std::string_view source) {
    return check_constants(compute, std::string(source) + ": ");
}

Status check_job(const Job& job, std::string_view source) {
    const std::string where = std::string(source) + ": ";
    if (job.global_batch.sequences > 0 && job.global_batch.tokens > 0) {
        return problem(where + "/global_batch", "the batch is given in samples and in tokens",
                       "keep one of the two");
    }
    const Sequence& s = job.sequence;
    if (s.max > 0 && s.mean > static_cast<double>(s.max)) {
        return problem(where + "/sequence/mean", "the mean sample is longer than the longest",
                       "write a mean of at most " + std::to_string(s.max) + " tokens");
    }
    // The mean of squares is never below the square of the mean; allow for rounded input.
    if (s.mean > 0.0 && s.mean_square > 0.0 && s.mean_square < 0.999 * s.mean * s.mean) {
        return problem(where + "/sequence/mean_square",
                       "the mean of the squared lengths is below the square of the mean",
                       "write the mean of length x length, in tokens^2");
    }
    const Precision& precision = job.precision;
    if (precision.master != precision.compute && !is_storage_format(precision.master)) {
        return problem(
            where + "/precision/master",
            "master weights in " + std::string(name_of(precision.master)) + " are not known",
            "write fp32, or the compute format for no extra copy");
    }
    if (precision.gradients && !is_storage_format(*precision.gradients)) {
        return problem(
            where + "/precision/gradients",
            "gradients in " + std::string(name_of(*precision.gradients)) + " are not known",
            "write fp32, bf16 or fp16");
    }
    return Done{};
}

} // namespace shardplan::sim
