#include "simulator/spec/stack_memory.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, StackMemory& x) {
    field(
        v,
        {"gradient", "gradients", "Format gradients accumulate in unless the job says otherwise."},
        x.gradient);
    field(v,
          {"sharded_fp32_parameters", "fp32 shards",
           "zero3 shards are fp32 and cast into compute copies when gathered (FSDP)."},
          x.sharded_fp32_parameters);
    field(v,
          {"pure_16bit", "pure 16 bit",
           "Weights, gradients and moments are all kept in the compute format."},
          x.pure_16bit);
    field(v, {"context", "context", "Bytes outside the allocator before any collective."},
          x.context);
    field(v, {"host_process", "host process", "Bytes of host memory of one rank's process."},
          x.host_process);
    field(v,
          {"workspace", "workspace",
           "Bytes of GEMM workspaces inside the allocator, compute capability 9.0 and later."},
          x.workspace);
    field(v, {"workspace_older", "workspace before 9.0", "The same before compute capability 9.0."},
          x.workspace_older);
    field(v,
          {"grouped_workspace", "grouped workspace",
           "Bytes added where experts run as grouped products, 9.0 and later."},
          x.grouped_workspace);
    field(v,
          {"grouped_workspace_older", "grouped workspace before 9.0",
           "The same before compute capability 9.0."},
          x.grouped_workspace_older);
    field(v,
          {"communicator", "communicator",
           "Bytes outside the allocator per communicator with more than one rank."},
          x.communicator);
    field(v,
          {"message_channel", "message channel",
           "Bytes outside the allocator for sending and receiving between pipeline stages."},
          x.message_channel);
    field(v, {"bucket_bytes", "bucket", "Bytes of one gradient reduction bucket."}, x.bucket_bytes);
    field(v,
          {"fragmentation", "fragmentation",
           "Share of the bytes that are not persistent which the allocator reserves beyond them."},
          x.fragmentation);
    field(v,
          {"phase_slack", "phase slack",
           "Share of the smaller of the loss's and a block's working set that is held twice, "
           "because the blocks of one cannot serve the other."},
          x.phase_slack);
    field(v,
          {"activation_sigma", "activation spread",
           "Relative standard deviation of the bytes that are not persistent."},
          x.activation_sigma);
}

} // namespace shardplan::sim
