#pragma once

#include "simulator/spec/device.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// Memory behaviour of a stack: formats it accumulates in, and Constants of its runtime.
struct StackMemory {
    Dtype gradient = Dtype::fp32;         ///< accumulation format unless the job says otherwise
    bool sharded_fp32_parameters = false; ///< zero3 shards are fp32, compute copies are cast (FSDP)
    bool pure_16bit = false;    ///< weights, gradients and moments all in the compute format
    Constant context;           ///< bytes outside the allocator before any collective
    Constant host_process;      ///< bytes of host memory of one rank's process
    Constant workspace;         ///< bytes of GEMM workspaces, compute capability 9.0 and later
    Constant workspace_older;   ///< the same before 9.0
    Constant grouped_workspace; ///< added where experts run as grouped products
    Constant grouped_workspace_older; ///< the same before 9.0
    /// Bytes outside the allocator per communicator of more than one rank, where the profile of its
    /// network states no buffers.
    Constant communicator;
    Constant message_channel; ///< bytes outside the allocator for pipeline messages
    Constant bucket_bytes;    ///< one gradient reduction or parameter gathering bucket
    Constant fragmentation; ///< share of the bytes that are not persistent which is reserved beyond
    Constant phase_slack;   ///< share of min(loss, block) working set that is held twice
    Constant activation_sigma; ///< value: relative sigma of the bytes that are not persistent

    friend bool operator==(const StackMemory&, const StackMemory&) = default;
};

void describe(FieldVisitor& v, StackMemory& x);

} // namespace shardplan::sim
