#include "simulator/io/collective_record.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/cell_reader.hpp"
#include "simulator/io/file.hpp"

namespace shardplan::sim {
namespace {

using detail::CellReader;

CollectiveRecord read_record(const JsonValue& json, std::vector<Error>& problems) {
    const CellReader in(json, problems);
    CollectiveRecord r;
    in.get("id", r.id);
    in.get("source", r.source);
    in.get("system", r.system);
    in.get("system_id", r.system);
    in.get("curve", r.curve);
    in.get("collective", r.collective);
    in.get("device", r.device);
    in.get("device_assumed", r.device_assumed);
    in.get("nodes", r.nodes);
    in.get("gpus", r.gpus);
    in.get("ranks_per_node", r.ranks_per_node);
    in.get("intra_kind", r.intra_kind);
    const CellReader fabric = in.section("fabric");
    fabric.get("kind", r.fabric.kind);
    fabric.get("nics_per_node", r.fabric.nics_per_node);
    fabric.get("gbit_per_nic", r.fabric.gbit_per_nic);
    fabric.get("nvlink_domain_gpus", r.fabric.nvlink_domain_gpus);
    in.get("library", r.library);
    in.get("library_version", r.library_version);
    in.get("dtype", r.dtype);
    in.get("env", r.env);
    if (r.env) {
        r.algorithm = variable_in(*r.env, "NCCL_ALGO");
        r.protocol = variable_in(*r.env, "NCCL_PROTO");
        if (!r.algorithm && variable_in(*r.env, "NCCL_NVLS_ENABLE") == "0") {
            r.algorithm = "^NVLS,NVLSTree";
        }
    }
    in.get("algorithm", r.algorithm);
    in.get("protocol", r.protocol);
    in.get("size_bytes", r.size_bytes);
    in.get("time_us", r.time_us);
    in.get("algbw_GBps", r.algbw_gbytes);
    in.get("busbw_GBps", r.busbw_gbytes);
    in.get("in_place", r.in_place);
    in.get("quality", r.quality);
    in.get("time_derived", r.time_derived);
    in.get("size_assumed", r.size_assumed);
    in.get("ranks_inferred", r.ranks_inferred);
    in.get("fault_noted", r.fault_noted);
    in.get("fault", r.fault);
    in.get("scorable", r.scorable);
    return r;
}

} // namespace

std::optional<std::string> variable_in(std::string_view env, std::string_view name) {
    constexpr std::string_view separators = " \t;";
    std::size_t at = 0;
    while (at < env.size()) {
        const std::size_t start = env.find_first_not_of(separators, at);
        if (start == std::string_view::npos) {
            break;
        }
        const std::size_t end = std::min(env.find_first_of(separators, start), env.size());
        const std::string_view word = env.substr(start, end - start);
        at = end;
        if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
            // a list of values may stand there, or the next variable behind a comma
            std::string_view value = word.substr(name.size() + 1);
            if (const std::size_t next = value.find('='); next != std::string_view::npos) {
                value = value.substr(0, value.rfind(',', next));
            }
            return std::string(value);
        }
    }
    return std::nullopt;
}

Result<CollectiveRecords> parse_collective_records(std::string_view text,
                                                   std::string_view source_name) {
    CollectiveRecords out;
    const auto take = [&out](const JsonValue& json, std::int64_t line_number) {
        CollectiveRecord record = read_record(json, out.problems);
        record.line = line_number;
        if (record.id.empty()) {
            record.id = "line-" + std::to_string(line_number);
        }
        if (record.system.empty()) {
            record.system = "unnamed";
        }
        out.records.push_back(std::move(record));
    };
    detail::for_each_line(text, source_name, out.problems, take);
    if (out.records.empty()) {
        return detail::no_record(source_name, out.problems, "collective record",
                                 "collective, device, gpus, size_bytes and time_us");
    }
    return out;
}

Result<CollectiveRecords> read_collective_records(const std::string& path) {
    auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_collective_records(*text, path);
}

} // namespace shardplan::sim
