#include "planner/import/recognise.hpp"

#include <algorithm>

#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/lower_case.hpp"

namespace shardplan::plan {
namespace {

using text::holds;

/// What tells a format stands near the beginning; logs may have much before it.
std::string_view head_of(std::string_view text) {
    constexpr std::size_t enough = std::size_t{1} << 18;
    return text.substr(0, enough);
}

/// Whether `test` holds for a line of the head.
template <class Test>
bool any_line(std::string_view text, Test test) {
    const auto lines = text::lines_of(head_of(text));
    return std::any_of(lines.begin(), lines.end(),
                       [&](const text::Line& line) { return test(std::string_view(line.text)); });
}

/// A byte order mark is no sign: editors put it before every format.
char first_sign(std::string_view text) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) {
        text.remove_prefix(byte_order_mark.size());
    }
    const std::size_t at = text.find_first_not_of(" \t\r\n");
    return at == std::string_view::npos ? '\0' : text[at];
}

bool is_topology_xml(std::string_view text) {
    const std::string_view head = head_of(text);
    return holds(head, "<system") && (holds(head, "<cpu") || holds(head, "<pci"));
}

bool is_graph_xml(std::string_view text) {
    return holds(head_of(text), "<graphs") && holds(head_of(text), "<graph ");
}

bool is_kubernetes(std::string_view text) {
    const std::string_view head = head_of(text);
    if (first_sign(text) == '{') {
        return holds(head, "\"apiVersion\"") ||
               (holds(head, "\"metadata\"") && holds(head, "\"allocatable\""));
    }
    return holds(head, "apiVersion:") && any_line(text, [](std::string_view line) {
               const std::string_view trimmed = text::trim(line);
               return trimmed.starts_with("apiVersion:") || trimmed.starts_with("- apiVersion:");
           });
}

bool is_log(std::string_view text) {
    const std::string_view head = first_sign(text) == '{' ? "" : head_of(text);
    return (holds(head, "algbw") && holds(head, "busbw")) || holds(head, "_perf\n") ||
           holds(head, "# nThread ");
}

bool is_matrix(std::string_view text) {
    return first_sign(text) != '{' && any_line(text, [](std::string_view line) {
               const auto found = text::words(line);
               if (found.size() < 2 || !found[0].starts_with("GPU") ||
                   !text::leading_whole(found[0].substr(3))) {
                   return false;
               }
               const std::string_view cell = found[1];
               constexpr std::string_view codes[] = {"X",   "NV",   "PIX", "PXB",
                                                     "PHB", "NODE", "SYS", "SOC"};
               return cell.starts_with("GPU") ||
                      std::any_of(std::begin(codes), std::end(codes),
                                  [&](auto c) { return cell.starts_with(c); });
           });
}

bool is_gpu_list(std::string_view text) {
    return any_line(text, [](std::string_view line) {
        const std::string_view trimmed = text::trim(line);
        return trimmed.starts_with("GPU ") && holds(trimmed, ": ") && holds(trimmed, "UUID");
    });
}

bool is_gpu_query(std::string_view text) {
    return first_sign(text) != '{' && any_line(text, [](std::string_view line) {
               const auto cells = text::split(line, ',');
               if (cells.size() < 2) {
                   return false;
               }
               const bool header =
                   std::any_of(cells.begin(), cells.end(), [](std::string_view cell) {
                       return cell == "name" || cell == "gpu_name" ||
                              cell.starts_with("memory.total");
                   });
               const bool row = std::any_of(cells.begin(), cells.end(), [](std::string_view cell) {
                   return cell.ends_with(" MiB") && text::leading_whole(cell);
               });
               return header || row;
           });
}

bool is_scontrol_nodes(std::string_view text) {
    return any_line(text, [](std::string_view line) {
        return line.starts_with("NodeName=") &&
               (holds(line, "Arch=") || holds(line, "CoresPerSocket=") || holds(line, "State="));
    });
}

bool is_slurm_topology(std::string_view text) {
    return first_sign(text) != '{' && any_line(text, [](std::string_view line) {
               const std::string small = sim::lower_case(text::trim(line).substr(0, 11));
               return small.starts_with("switchname=") || small.starts_with("blockname=") ||
                      small.starts_with("ringname=") || small.starts_with("blocksizes=");
           });
}

bool is_slurm_yaml(std::string_view text) {
    return any_line(text, [](std::string_view line) {
        const std::string_view trimmed = text::trim(line);
        return trimmed.starts_with("- topology:") || trimmed.starts_with("topology:");
    });
}

/// A topology.conf that nobody filled yet.
bool is_comment_only(std::string_view text) {
    bool comment = false;
    const bool other = any_line(text, [&](std::string_view line) {
        const std::string_view trimmed = text::trim(line);
        comment = comment || trimmed.starts_with("#");
        return !trimmed.empty() && !trimmed.starts_with("#");
    });
    return comment && !other && text.size() == head_of(text).size();
}

constexpr ForeignFormat formats[] = {
    {"an NCCL topology (XML)", is_topology_xml, readers::topology_xml},
    {"an NCCL graph (XML)", is_graph_xml, readers::graph_xml},
    {"a Kubernetes node list", is_kubernetes, readers::kubernetes_nodes},
    {"a log of nccl-tests", is_log, readers::nccl_tests_log},
    {"a print of `nvidia-smi topo -m`", is_matrix, readers::topology_matrix},
    {"a print of `nvidia-smi -L`", is_gpu_list, readers::gpu_list},
    {"a print of `nvidia-smi --query-gpu`", is_gpu_query, readers::gpu_query},
    {"a print of `scontrol show node`", is_scontrol_nodes, readers::scontrol_nodes},
    {"a Slurm topology.conf", is_slurm_topology, readers::slurm_topology},
    {"a Slurm topology.yaml", is_slurm_yaml, readers::slurm_yaml},
    {"a Slurm topology.conf without a record", is_comment_only, readers::slurm_topology},
};

} // namespace

sim::Result<ForeignCluster> read_foreign(const ForeignFormat& format, std::string_view text,
                                         std::string_view source) {
    auto file = format.read(text, source);
    if (file) {
        file->format = format.name;
    }
    return file;
}

std::span<const ForeignFormat> foreign_formats() { return formats; }

const ForeignFormat* recognise(std::string_view text) {
    const auto format = std::find_if(std::begin(formats), std::end(formats),
                                     [&](const ForeignFormat& f) { return f.looks_like(text); });
    return format == std::end(formats) ? nullptr : format;
}

} // namespace shardplan::plan
