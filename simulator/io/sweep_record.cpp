#include "simulator/io/sweep_record.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "simulator/io/cell_reader.hpp"
#include "simulator/io/file.hpp"

namespace shardplan::sim {
namespace {

/// A number that must be there for the record to mean something; 1 stands for it otherwise.
std::int64_t count_in(const detail::CellReader& in, std::string_view key) {
    std::optional<std::int64_t> value;
    in.get(key, value);
    return value.value_or(1);
}

SweepMachine read_machine(const JsonValue& json, std::vector<Error>& problems) {
    const detail::CellReader whole(json, problems);
    const detail::CellReader in = whole.section("machine");
    const detail::CellReader probe = whole.section("probe");
    SweepMachine out;
    in.get("cpu", out.cpu);
    in.get("compiler", out.compiler);
    in.get("instructions", out.instructions);
    in.get("date", out.date);
    in.get("device", out.device);
    in.get("backend", out.backend);
    in.get("clock", out.clock);
    out.cores = count_in(in, "cores");
    out.memory_bytes = count_in(in, "memory_bytes");
    out.ranks = count_in(in, "ranks");
    out.threads = count_in(in, "threads");
    std::optional<std::int64_t> processors;
    in.get("processors", processors);
    out.processors = processors.value_or(0);
    out.nodes = count_in(in, "nodes");
    out.machines = count_in(in, "machines");
    std::optional<double> spread;
    probe.get("spread", spread);
    out.probe_spread = spread.value_or(0.0);
    out.probes = count_in(probe, "samples");
    return out;
}

OperatorRecord read_operator(const JsonValue& json, std::int64_t line,
                             std::vector<Error>& problems) {
    const detail::CellReader in(json, problems);
    OperatorRecord out;
    out.line = line;
    in.get("id", out.id);
    in.get("op", out.op);
    in.get("rows", out.rows);
    in.get("width", out.width);
    in.get("hidden", out.hidden);
    in.get("chunk", out.chunk);
    in.get("bytes", out.bytes);
    in.get("seconds", out.seconds);
    return out;
}

bool is_kernel(std::string_view op) { return op == "gemm" || op.starts_with("attention"); }

/// Reads the lines of a file that are no kernels or collectives, and says which line is what.
class Reader {
public:
    explicit Reader(std::string_view source_name) : source_name_(source_name) {}

    void take(const JsonValue& json, std::int64_t line) {
        if (json.find("machine")) {
            starts_.push_back(line);
            out.sweeps.emplace_back().machine = read_machine(json, out.problems);
            return;
        }
        if (out.sweeps.empty()) {
            if (!orphan) orphan = line;
            return;
        }
        if (json.find("collective")) return;
        OperatorRecord record = read_operator(json, line, out.problems);
        bool alone = false;
        detail::CellReader(json, out.problems).get("alone", alone);
        if (alone) alone_.insert(line);
        if (!is_kernel(record.op)) out.sweeps.back().operators.push_back(std::move(record));
    }

    void add_kernels(std::string_view text) {
        auto all = parse_kernel_records(text, source_name_);
        if (!all) return;
        for (KernelRecord& record : all->records) {
            if (!is_kernel(record.op)) continue;
            Sweep& sweep = at(record.line);
            const bool alone = alone_.count(record.line) > 0;
            (alone ? sweep.alone : sweep.kernels).push_back(std::move(record));
        }
    }
    void add_collectives(std::string_view text) {
        auto all = parse_collective_records(text, source_name_);
        if (!all) return;
        for (CollectiveRecord& record : all->records) {
            if (!record.collective.empty())
                at(record.line).collectives.push_back(std::move(record));
        }
    }

    Sweeps out;
    std::optional<std::int64_t> orphan; ///< first line of a measurement without a machine

private:
    Sweep& at(std::int64_t line) {
        const auto after = std::upper_bound(starts_.begin(), starts_.end(), line);
        return out.sweeps[static_cast<std::size_t>(
            std::max<std::ptrdiff_t>(0, after - starts_.begin() - 1))];
    }

    std::string source_name_;
    std::vector<std::int64_t> starts_;
    std::set<std::int64_t> alone_;
};

} // namespace

bool is_sweep(std::string_view text) {
    const std::string_view first = text.substr(0, text.find('\n'));
    const auto json = JsonValue::parse(first, "first line");
    return json && json->is_object() && json->find("machine").has_value();
}

Result<Sweeps> parse_sweeps(std::string_view text, std::string_view source_name) {
    Reader reader(source_name);
    detail::for_each_line(
        text, source_name, reader.out.problems,
        [&reader](const JsonValue& json, std::int64_t line) { reader.take(json, line); });
    const std::string where(source_name);
    if (reader.orphan) {
        return Error{ErrorCode::bad_input, where + ":" + std::to_string(*reader.orphan),
                     "a measurement stands before the line of its machine",
                     "keep the first line of the sweep, the one with \"machine\""};
    }
    if (reader.out.sweeps.empty()) {
        return detail::no_record(source_name, reader.out.problems, "sweep",
                                 "the machine, and behind it its measurements");
    }
    for (const Sweep& sweep : reader.out.sweeps) {
        if (sweep.machine.device.empty() || sweep.machine.ranks < 1) {
            return Error{ErrorCode::bad_input, where + ": /machine",
                         "it does not say what device a rank is, or how many there were",
                         "measure again; the line is written by the sweep"};
        }
    }
    reader.add_kernels(text);
    reader.add_collectives(text);
    return std::move(reader.out);
}

Result<Sweeps> read_sweeps(const std::string& path) {
    auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_sweeps(*text, path);
}

} // namespace shardplan::sim
