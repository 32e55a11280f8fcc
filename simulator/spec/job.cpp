#include "simulator/spec/job.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, Sequence& x) {
    field(v,
          {"max", "longest sample",
           "Tokens of the longest sample; 0: as many as the model has positions, at most 8192.",
           false, 0.0, 1e9},
          x.max);
    field(v,
          {"mean", "mean sample", "Mean tokens of a sample; 0: the longest (packed or padded).",
           false, 0.0, 1e9},
          x.mean);
    field(
        v,
        {"mean_square", "mean square of samples",
         "Mean of the squared lengths, in tokens^2, which decides attention work; 0: the square of "
         "the mean.",
         false, 0.0, 1e18},
        x.mean_square);
}

void describe(FieldVisitor& v, GlobalBatch& x) {
    field(v,
          {"sequences", "samples per step",
           "Samples of one optimizer step over all ranks; 0: given in tokens.", false, 0.0, 1e9},
          x.sequences);
    field(v,
          {"tokens", "tokens per step",
           "Tokens of one optimizer step over all ranks; 0: given in samples.", false, 0.0, 1e13},
          x.tokens);
    field(v, {"held", "held", "The planner may not change the batch."}, x.held);
}

void describe(FieldVisitor& v, Precision& x) {
    field(v, {"compute", "matrix products", "Format of matrix products."}, x.compute);
    field(v,
          {"master", "master weights",
           "Format of the copy the optimizer updates; the compute format: no extra copy."},
          x.master);
    field(v, {"gradients", "gradients", "Format gradients accumulate in; absent: the stack's."},
          x.gradients);
    field(v,
          {"recipe", "scaling recipe",
           "How 8-bit and 4-bit products are scaled: none, tensorwise, rowwise, blockwise, mxfp8, "
           "nvfp4."},
          x.recipe);
}

void describe(FieldVisitor& v, Method& x) {
    field(v,
          {"kind", "method",
           "full (all weights), lora (adapters on frozen weights), qlora (on 4-bit weights)."},
          x.kind);
    field(v, {"rank", "adapter rank", "Rank of the adapters.", false, 1.0, 65536}, x.rank);
    field(v, {"targets", "adapter targets", "Maps that get an adapter: attention or all_linear."},
          x.targets);
}

void describe(FieldVisitor& v, Optimizer& x) {
    field(v, {"kind", "optimizer", "adamw, adamw_8bit, sgd, sgd_momentum, muon or adafactor."},
          x.kind);
    field(v, {"state", "moments", "Format of the moments."}, x.state);
}

void describe(FieldVisitor& v, MoeLoad& x) {
    field(v,
          {"capacity", "capacity factor",
           "Tokens an expert has room for over the mean, with padding and drops; 0: dropless.",
           false, 0.0, 1000.0},
          x.capacity);
    field(v,
          {"imbalance", "imbalance", "Tokens of the busiest rank over the mean; 1: balanced.",
           false, 1.0, 1000.0},
          x.imbalance);
}

namespace {

void describe_degree(FieldVisitor& v, std::string_view key, std::string_view label,
                     std::vector<std::int64_t>& allowed) {
    field(v, {key, label, "Values a layout may have; empty: all.", false, 1.0, 1e6}, allowed);
}

} // namespace

void describe(FieldVisitor& v, Constraints& x) {
    describe_degree(v, "tp", "tensor parallel degrees", x.tp);
    describe_degree(v, "pp", "pipeline degrees", x.pp);
    describe_degree(v, "cp", "context parallel degrees", x.cp);
    describe_degree(v, "ep", "expert parallel degrees", x.ep);
    describe_degree(v, "dp", "data parallel degrees", x.dp);
    describe_degree(v, "micro_batch", "micro-batch sizes", x.micro_batch);
    field(
        v,
        {"recompute", "recomputation", "any (the planner chooses), forbid, or full (insisted on)."},
        x.recompute);
    field(v,
          {"memory_cap", "memory cap",
           "Per device, below the usable memory; absent: the usable memory.", false, 1.0},
          x.memory_cap);
    field(v, {"idle_devices", "idle devices", "Layouts may leave devices unused."}, x.idle_devices);
}

void describe(FieldVisitor& v, Job& x) {
    field(v, {"name", "name", "Name of the job."}, x.name);
    field(v, {"sequence", "samples", "Lengths of training samples."}, x.sequence);
    field(v, {"global_batch", "global batch", "Samples or tokens per optimizer step; give one."},
          x.global_batch);
    field(v, {"precision", "precision", "Number formats."}, x.precision);
    field(v, {"method", "method", "What is trained."}, x.method);
    field(v, {"optimizer", "optimizer", "The optimizer and its states."}, x.optimizer);
    field(v, {"moe", "expert load", "How evenly tokens reach experts."}, x.moe);
    field(v, {"constraints", "constraints", "What a layout must keep to."}, x.constraints);
    field(v,
          {"tokens_to_train", "tokens to train",
           "Tokens of the whole run; 0: not stated, then no calendar and no total cost.", false,
           0.0, 1e18},
          x.tokens_to_train);
    field(v, {"objective", "objective", "What plans are ranked by: time, cost or headroom."},
          x.objective);
}

} // namespace shardplan::sim
