#include "simulator/io/kernel_record.hpp"

#include <utility>

#include "simulator/io/cell_reader.hpp"
#include "simulator/io/file.hpp"

namespace shardplan::sim {
namespace {

KernelRecord read_record(const JsonValue& json, std::int64_t line, std::vector<Error>& problems) {
    KernelRecord r;
    const detail::CellReader in(json, problems);
    r.line = line;
    in.get("id", r.id);
    in.get("source", r.source);
    in.get("op", r.op);
    in.get("device", r.device);
    in.get("dtype", r.dtype);
    in.get("impl", r.impl);
    in.get("m", r.m);
    in.get("n", r.n);
    in.get("k", r.k);
    in.get("groups", r.groups);
    in.get("batch", r.batch);
    in.get("stage", r.stage);
    in.get("out_dtype", r.out_dtype);
    in.get("accumulate", r.accumulate);
    in.get("heads", r.heads);
    in.get("kv_heads", r.kv_heads);
    in.get("seq_q", r.seq_q);
    in.get("seq_k", r.seq_k);
    in.get("head_dim", r.head_dim);
    in.get("head_dim_v", r.head_dim_v);
    in.get("causal", r.causal);
    in.get("flops_counted", r.flops_counted);
    in.get("tflops", r.tflops);
    in.get("scorable", r.scorable);
    if (r.id.empty()) {
        r.id = "line-" + std::to_string(line);
    }
    return r;
}

} // namespace

Result<KernelRecords> parse_kernel_records(std::string_view text, std::string_view source_name) {
    KernelRecords out;
    detail::for_each_line(text, source_name, out.problems,
                          [&out](const JsonValue& json, std::int64_t line) {
                              out.records.push_back(read_record(json, line, out.problems));
                          });
    if (out.records.empty()) {
        return detail::no_record(source_name, out.problems, "kernel record",
                                 "op, device, dtype, a shape and tflops");
    }
    return out;
}

Result<KernelRecords> read_kernel_records(const std::string& path) {
    auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_kernel_records(*text, path);
}

} // namespace shardplan::sim
