#include "planner/analysis/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "planner/analysis/reproduce_notes.hpp"
#include "simulator/compute/attention_op.hpp"
#include "simulator/compute/op_builder.hpp"
#include "simulator/compute/op_time.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

std::string text_or(const std::optional<std::string>& text, const char* otherwise) {
    return text.value_or(otherwise);
}

struct Grouping {
    const char* name;
    std::string (*key)(const sim::KernelRecord&);
};

constexpr Grouping groupings[] = {
    {"device", [](const sim::KernelRecord& r) { return text_or(r.device, "unknown"); }},
    {"operator", [](const sim::KernelRecord& r) { return r.op; }},
    {"kernel", [](const sim::KernelRecord& r) { return text_or(r.impl, "not stated"); }},
    {"dtype", [](const sim::KernelRecord& r) { return text_or(r.dtype, "unknown"); }},
    {"stage", [](const sim::KernelRecord& r) { return text_or(r.stage, "not stated"); }},
};

std::optional<sim::Dtype> dtype_of(const std::string& name) {
    if (name == "fp8_e4m3" || name == "fp8_e5m2") {
        return sim::Dtype::fp8;
    }
    const auto& names = sim::EnumNames<sim::Dtype>::names;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
        return std::nullopt;
    }
    return static_cast<sim::Dtype>(found - names.begin());
}

/// The generation a kernel is priced as; nothing: its rates are not known.
std::optional<sim::AttentionImpl> attention_of(const sim::KernelRecord& r,
                                               std::vector<sim::Assumption>& notes) {
    using sim::AttentionImpl;
    if (!r.impl) {
        note(notes, "impl", "cudnn", "assumed", "what Transformer Engine runs");
        return AttentionImpl::cudnn;
    }
    if (*r.impl == "triton") {
        note(notes, "impl", "fa2", "assumed", "the Triton kernel is the same algorithm");
        return AttentionImpl::flash_2;
    }
    const std::pair<const char*, AttentionImpl> known[] = {
        {"fa1", AttentionImpl::flash_1},     {"fa2", AttentionImpl::flash_2},
        {"fa3", AttentionImpl::flash_3},     {"cudnn", AttentionImpl::cudnn},
        {"unfused", AttentionImpl::unfused},
    };
    for (const auto& [name, impl] : known) {
        if (*r.impl == name) {
            return impl;
        }
    }
    return std::nullopt;
}

/// One record on its device, while it is predicted.
struct Case {
    const sim::KernelRecord& record;
    const sim::Device& device;
    sim::Dtype dtype;
    KernelPrediction& out;
};

void skip(Case& c, std::string why) { c.out.skipped = std::move(why); }

/// A product, or several of one shape at once.
void predict_product(Case& c) {
    const sim::KernelRecord& r = c.record;
    const std::int64_t count = r.op == "bmm" ? r.batch.value_or(0) : 1;
    if (!r.m || !r.n || !r.k || count == 0) {
        return skip(c, "the shape of the product is not known");
    }
    const sim::ComputeRates rates = bare_rates(c.device, sim::AttentionImpl::flash_2);
    const double in = sim::bytes_per_element(c.dtype);
    const auto result = dtype_of(r.out_dtype.value_or("bf16"));
    if (!result) {
        return skip(c, "no such format: " + sim::in_quotes(*r.out_dtype));
    }
    const double moved =
        sim::bytes_per_element(*result) * (r.accumulate.value_or(false) ? 2.0 : 1.0);
    const sim::Gemm gemm{*r.m, *r.n, *r.k, count};
    c.out.seconds = rates.kernel_time + sim::gemm_seconds(rates, c.dtype, gemm, count, in, moved);
    const double flops = 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                         static_cast<double>(gemm.k) * static_cast<double>(count);
    c.out.measured_s = flops / (*r.tflops * 1e12);
}

/// The product of all experts of a rank, forward or one of the two backward. Without a named kernel
/// it is that of Transformer Engine: one product per expert, some side by side.
void predict_grouped(Case& c) {
    const sim::KernelRecord& r = c.record;
    if (!r.m || !r.n || !r.k || !r.groups) {
        return skip(c, "the shape of the product is not known");
    }
    sim::Op op;
    op.kind = sim::OpKind::grouped_linear;
    op.dtype = c.dtype;
    op.gemm = {*r.m, *r.n, *r.k, *r.groups};
    op.at_once = *r.groups;
    op.kernels_forward = 1;
    if (!r.impl) {
        note(c.out.notes, "impl", "Transformer Engine", "assumed", "one product per group");
        op.at_once = sim::te_streams;
        op.kernels_forward = static_cast<std::int32_t>(*r.groups);
    }
    op.kernels_backward = 2 * op.kernels_forward;
    const sim::ComputeRates rates = bare_rates(c.device, sim::AttentionImpl::flash_2);
    const sim::OpCost cost = sim::op_cost(op, rates);
    const std::string stage = r.stage.value_or("fwd");
    const bool weight = stage == "bwd_grad_w";
    if (weight && !r.accumulate) {
        note(c.out.notes, "accumulate", "true, in 32 bits", "assumed",
             "a weight gradient is added to those of earlier micro-batches");
    }
    const double work = weight                    ? cost.backward_weight.gemm
                        : stage == "bwd_grad_act" ? cost.backward_input.gemm
                                                  : cost.forward.gemm;
    c.out.seconds = work + rates.kernel_time * op.kernels_forward;
    const double flops = 2.0 * static_cast<double>(op.gemm.m) * static_cast<double>(op.gemm.n) *
                         static_cast<double>(op.gemm.k) * static_cast<double>(op.gemm.count);
    c.out.measured_s = flops / (*r.tflops * 1e12);
}

/// Forward and backward flops over those of the forward pass, as `flops_counted` has it.
double counted_passes(const std::string& op) {
    return op == "attention_fwd" ? 1.0 : op == "attention_bwd" ? 2.5 : 3.5;
}

void predict_attention(Case& c) {
    const sim::KernelRecord& r = c.record;
    if (!r.batch || !r.heads || !r.seq_q || !r.seq_k || !r.head_dim || !r.causal) {
        return skip(c, "the shape or the mask of the attention is not known");
    }
    const auto impl = attention_of(r, c.out.notes);
    if (!impl) {
        return skip(c, "no rates are known of the kernel " + sim::in_quotes(*r.impl));
    }
    const bool causal = *r.causal;
    const auto queries = static_cast<double>(*r.batch * *r.seq_q);
    const double all_pairs = queries * static_cast<double>(*r.seq_k);
    sim::AttentionShape s;
    s.dtype = c.dtype;
    s.queries = *r.seq_q;
    s.keys = *r.seq_k;
    s.qk = *r.head_dim;
    s.v = r.head_dim_v.value_or(s.qk);
    s.heads = static_cast<double>(*r.heads);
    s.sequences = *r.batch;
    s.all_pairs = all_pairs;
    s.pairs = causal ? all_pairs / 2.0 : all_pairs;
    const auto kv_heads = static_cast<double>(r.kv_heads.value_or(*r.heads));
    const auto width = static_cast<double>(s.qk + s.v);
    s.io_bytes = sim::bytes_per_element(c.dtype) * width *
                 (queries * s.heads + static_cast<double>(*r.batch * *r.seq_k) * kv_heads);
    s.impl = *impl;
    s.softmax = {false, false, false, true,
                 causal ? sim::SoftmaxPasses::Mask::summed : sim::SoftmaxPasses::Mask::none};
    const sim::Op op = sim::attention_op(s);
    const sim::OpCost cost = sim::op_cost(op, bare_rates(c.device, *impl));
    const auto of = [](const sim::PassCost& pass) { return pass.attention + pass.elementwise; };
    const double forward = r.op == "attention_bwd" ? 0.0 : of(cost.forward);
    const double backward = r.op == "attention_fwd" ? 0.0 : of(cost.backward_input);
    c.out.seconds = forward + backward;
    const double halved = r.flops_counted == "causal-half" ? 0.5 : 1.0;
    c.out.measured_s =
        2.0 * all_pairs * s.heads * width * halved * counted_passes(r.op) / (*r.tflops * 1e12);
}

/// Why a record says nothing whatever the device; empty: it does.
std::string useless(const sim::KernelRecord& r) {
    if (!r.scorable) return "its shape, mask or type is not stated";
    if (!r.tflops || *r.tflops <= 0.0) {
        return "tflops is missing: there is nothing to compare with";
    }
    return {};
}

void predict_on(const sim::Device& device, const sim::KernelRecord& r, KernelPrediction& out) {
    const auto dtype = dtype_of(text_or(r.dtype, ""));
    if (!dtype) {
        out.skipped = "no such format: " + sim::in_quotes(text_or(r.dtype, "unknown"));
        return;
    }
    Case c{r, device, *dtype, out};
    if (r.op == "gemm" || r.op == "bmm") {
        predict_product(c);
    } else if (r.op == "grouped_gemm") {
        predict_grouped(c);
    } else if (r.op == "attention_fwd" || r.op == "attention_bwd" || r.op == "attention_fwd_bwd") {
        predict_attention(c);
    } else {
        skip(c, "no operator of training: " + sim::in_quotes(r.op));
    }
}

void predict(const std::vector<sim::Device>& devices, const sim::KernelRecord& r,
             KernelPrediction& out) {
    out.skipped = useless(r);
    if (!out.skipped.empty()) return;
    const auto device = std::find_if(devices.begin(), devices.end(),
                                     [&](const sim::Device& d) { return d.name == r.device; });
    if (device == devices.end()) {
        out.skipped = "the catalogue has no device " + sim::in_quotes(text_or(r.device, "unknown"));
        return;
    }
    predict_on(*device, r, out);
}

/// Errors of one group while they are collected.
struct Collected {
    KernelFigures figures;
    std::vector<double> errors;

    void add(const KernelPrediction& p) {
        ++figures.records;
        if (!p.skipped.empty()) {
            ++figures.skipped;
            return;
        }
        errors.push_back(p.seconds / p.measured_s - 1.0);
    }
    KernelFigures finish() {
        figures.time = error_figures(errors);
        for (const double error : errors) {
            figures.max = std::max(figures.max, std::abs(error));
        }
        return std::move(figures);
    }
};

} // namespace

std::vector<std::string> kernel_grouping_names() {
    std::vector<std::string> out;
    for (const Grouping& grouping : groupings) {
        out.emplace_back(grouping.name);
    }
    return out;
}

std::string kernel_group_key(const sim::KernelRecord& record, const std::vector<std::string>& by) {
    std::string key;
    for (const Grouping& grouping : groupings) {
        if (std::find(by.begin(), by.end(), grouping.name) != by.end()) {
            key += (key.empty() ? "" : " / ") + grouping.key(record);
        }
    }
    return key;
}

std::vector<KernelFigures> score_kernels(const std::vector<sim::KernelRecord>& records,
                                         const std::vector<KernelPrediction>& predictions,
                                         const std::vector<std::string>& by) {
    std::vector<Collected> groups;
    std::map<std::string, std::size_t> index_of;
    Collected all;
    all.figures.name = "all";
    for (std::size_t i = 0; i < records.size(); ++i) {
        const std::string key = kernel_group_key(records[i], by);
        const auto [entry, is_new] = index_of.try_emplace(key, groups.size());
        if (is_new) {
            groups.emplace_back().figures.name = key;
        }
        groups[entry->second].add(predictions[i]);
        all.add(predictions[i]);
    }
    std::vector<KernelFigures> out;
    for (Collected& group : groups) {
        out.push_back(group.finish());
    }
    out.push_back(all.finish());
    return out;
}

sim::ComputeRates bare_rates(const sim::Device& device, sim::AttentionImpl attention) {
    sim::StackProfile stack;
    stack.tensors.fused_weight_gradient = true;
    for (sim::Constant* factor : {&stack.time.gemm_efficiency, &stack.time.attention_efficiency,
                                  &stack.time.memory_efficiency, &stack.time.elementwise_passes}) {
        factor->value = 1.0;
    }
    sim::Resolved resolved;
    resolved.attention = attention;
    resolved.gradient = sim::Dtype::fp32;
    return sim::compute_rates(device, stack, resolved);
}

KernelPrediction predict_kernel(const sim::KernelRecord& record, const sim::Device& device) {
    KernelPrediction out;
    out.id = record.id;
    out.skipped = useless(record);
    if (out.skipped.empty()) predict_on(device, record, out);
    return out;
}

sim::Result<std::vector<KernelPrediction>> predict_kernels(
    const std::vector<sim::KernelRecord>& records) {
    const auto devices = sim::load_devices();
    if (!devices) {
        return devices.error();
    }
    std::vector<KernelPrediction> out(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
        out[i].id = records[i].id;
        predict(*devices, records[i], out[i]);
    }
    return out;
}

} // namespace shardplan::plan
