#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// Kernel records: timings of single kernels that somebody measured and published, one JSON object
/// per line. The format is described in simulator/io/schema/kernel_record.md. A key that is null or
/// absent is not known; keys that are not listed there are ignored.
namespace shardplan::sim {

/// One timing of one kernel; sizes are elements, counts are counts.
struct KernelRecord {
    std::string id;
    std::string source;
    std::int64_t line = 0; ///< in the file it was read from, from 1
    std::string op;        ///< gemm, grouped_gemm, bmm, attention_fwd, attention_bwd, ...
    std::optional<std::string> device; ///< name in the catalogue
    std::optional<std::string> dtype;  ///< of the inputs
    std::optional<std::string> impl;   ///< library or generation; not known: not stated
    /// The product m x n over k; grouped: m rows per group, shape of the forward product.
    std::optional<std::int64_t> m, n, k;
    std::optional<std::int64_t> groups; ///< of a grouped product
    std::optional<std::int64_t> batch;  ///< matrices, or sequences of attention
    std::optional<std::string> stage;   ///< fwd, bwd_grad_act, bwd_grad_w
    std::optional<std::string> out_dtype;
    std::optional<bool> accumulate; ///< adds to the result
    std::optional<std::int64_t> heads, kv_heads, seq_q, seq_k, head_dim, head_dim_v;
    std::optional<bool> causal;
    std::optional<std::string> flops_counted; ///< full, causal-half: of attention
    std::optional<double> tflops;             ///< reached, 10^12 flops/s as counted
    bool scorable = false;                    ///< shape, mask and type are known

    friend bool operator==(const KernelRecord&, const KernelRecord&) = default;
};

/// What a file of kernel records gave.
struct KernelRecords {
    std::vector<KernelRecord> records; ///< in the order of the file
    /// Lines that are not a record (lost, the others stand) and values of a wrong type (taken as
    /// not known); `where` is "file:line" with the pointer of the value.
    std::vector<Error> problems;

    friend bool operator==(const KernelRecords&, const KernelRecords&) = default;
};

/// Reads JSON lines; empty lines are skipped. `source_name` is used in problems.
/// Errors: no line holds a record.
Result<KernelRecords> parse_kernel_records(std::string_view text, std::string_view source_name);
/// The same from a file. Errors: as above, and a file that cannot be read.
Result<KernelRecords> read_kernel_records(const std::string& path);

} // namespace shardplan::sim
