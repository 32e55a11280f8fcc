#include <algorithm>

#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/text.hpp"

// Lists of devices without links: `nvidia-smi -L`, and the comma-separated print of `--query-gpu`.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using text::Line;

constexpr std::size_t most_gpus = 256;
/// MiB beyond any device.
constexpr double most_mib = 1e8;

/// "NVIDIA H100L-3-47C", "GRID A100-10C": a product, the memory in GB and the letter of a virtual
/// GPU profile.
bool is_vgpu_name(std::string_view name) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos || dash + 2 >= name.size()) {
        return false;
    }
    const char profile = name.back();
    return (profile == 'C' || profile == 'Q' || profile == 'A' || profile == 'B') &&
           text::whole(name.substr(dash + 1, name.size() - dash - 2)).has_value();
}

void note_vgpus(ForeignCluster& out) {
    for (const NodePart& gpu : out.node->gpus) {
        if (is_vgpu_name(gpu.product)) {
            out.find(
                "vgpu", gpu.line,
                gpu.name + " is a virtual GPU, " + in_quotes(gpu.product) + ": a share of a device",
                "its memory is that of the share; virtual GPUs have no peer access unless the "
                "host says so");
        }
    }
}

// --- --query-gpu -------------------------------------------------------------------------------

struct Columns {
    std::optional<std::size_t> name, memory, bus, index, uuid;
    double memory_unit = 0.0; ///< bytes per number without unit; 0: the cell must name one
};

/// "memory.total [MiB]" -> MiB.
double unit_in_brackets(std::string_view title) {
    const std::size_t open = title.find('[');
    if (open == std::string_view::npos) {
        return 0.0;
    }
    const auto unit =
        sim::parse_quantity("1 " + std::string(title.substr(open + 1, title.find(']') - open - 1)),
                            sim::Dimension::bytes, "");
    return unit ? *unit : 0.0;
}

std::optional<Columns> header_of(std::string_view line) {
    Columns columns;
    const auto titles = text::split(line, ',');
    for (std::size_t i = 0; i < titles.size(); ++i) {
        const std::string title = sim::lower_case(titles[i].substr(0, titles[i].find(' ')));
        if (title == "name" || title == "gpu_name") {
            columns.name = i;
        } else if (title == "memory.total") {
            columns.memory = i;
            columns.memory_unit = unit_in_brackets(titles[i]);
        } else if (title == "pci.bus_id" || title == "gpu_bus_id") {
            columns.bus = i;
        } else if (title == "index") {
            columns.index = i;
        } else if (title == "uuid" || title == "gpu_uuid") {
            columns.uuid = i;
        }
    }
    if (!columns.name) {
        return std::nullopt;
    }
    return columns;
}

bool has_digit(std::string_view text) {
    return text.find_first_of("0123456789") != std::string_view::npos;
}

/// Without a header columns are told by what stands in them: a product has letters and blanks,
/// memory a unit.
Columns columns_of_row(std::string_view line) {
    Columns columns;
    const auto cells = text::split(line, ',');
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string_view cell = cells[i];
        if (!columns.memory && has_digit(cell) && cell.ends_with("MiB")) {
            columns.memory = i; // the first amount is the total where people ask for several
        } else if (!columns.bus && std::count(cell.begin(), cell.end(), ':') == 2) {
            columns.bus = i;
        } else if (!columns.name &&
                   sim::lower_case(cell).find_first_of("abcdefghijklmnopqrstuvwxyz") < 3 &&
                   cell.find(' ') != std::string_view::npos) {
            columns.name = i;
        } else if (!columns.index && text::whole(cell)) {
            columns.index = i;
        }
    }
    return columns;
}

std::string_view cell(const std::vector<std::string_view>& cells, std::optional<std::size_t> at) {
    return at && *at < cells.size() ? cells[*at] : std::string_view{};
}

sim::Bytes memory_in(std::string_view text, double unit) {
    double bytes = 0.0;
    if (const auto number = text::decimal(text); number && unit > 0.0) {
        bytes = *number * unit;
    } else if (const auto amount = sim::parse_quantity(text, sim::Dimension::bytes, "")) {
        bytes = *amount;
    }
    return sim::Bytes(bytes > 0.0 && bytes < most_mib * 0x1p20 ? bytes : 0.0);
}

void read_query_row(ForeignCluster& out, const Line& line, const Columns& columns) {
    const auto cells = text::split(line.text, ',');
    NodePart part;
    part.line = line.number;
    part.product = cell(cells, columns.name);
    if (part.product.empty() || (columns.memory && cells.size() <= *columns.memory)) {
        out.lose(line.number, "the line " + in_quotes(line.text));
        return;
    }
    const auto index = text::whole(cell(cells, columns.index));
    part.name = "GPU" + std::to_string(index && *index >= 0
                                           ? *index
                                           : static_cast<std::int64_t>(out.node->gpus.size()));
    part.bus_id = cell(cells, columns.bus);
    if (columns.memory) {
        const std::string_view amount = cell(cells, columns.memory);
        part.memory = memory_in(amount, columns.memory_unit);
        if (part.memory.value() <= 0.0) {
            out.lose(line.number,
                     "the memory of " + part.name + ", which reads " + in_quotes(amount));
        }
    }
    if (out.node->gpus.size() < most_gpus) {
        out.node->gpus.push_back(std::move(part));
    } else {
        out.lose(line.number, "a device beyond the first " + std::to_string(most_gpus));
    }
}

/// Same device twice: people append the print of several runs.
bool same_bus(const NodeView& view, const NodePart& part) {
    return !part.bus_id.empty() &&
           std::any_of(view.gpus.begin(), view.gpus.end(),
                       [&](const NodePart& other) { return other.bus_id == part.bus_id; });
}

} // namespace

sim::Result<ForeignCluster> gpu_query(std::string_view text, std::string_view source) {
    ForeignCluster out;
    out.source = source;
    out.node.emplace();
    out.node->links_stated = false;
    std::optional<Columns> columns;
    for (const Line& line : text::lines_of(text)) {
        if (text::trim(line.text).empty()) {
            continue;
        }
        if (const auto header = header_of(line.text)) {
            columns = header;
            continue;
        }
        if (!columns) {
            const Columns guessed = columns_of_row(line.text);
            if (!guessed.name || !guessed.memory) {
                out.lose(line.number, "the line " + in_quotes(line.text));
                continue;
            }
            columns = guessed;
        }
        read_query_row(out, line, *columns);
        auto& gpus = out.node->gpus;
        if (!gpus.empty() && gpus.back().line == line.number) {
            NodePart last = gpus.back();
            gpus.pop_back();
            if (same_bus(*out.node, last)) {
                out.lose(line.number, "a second line for the device at " + last.bus_id);
            } else {
                gpus.push_back(std::move(last));
            }
        }
    }
    if (out.node->gpus.empty()) {
        return Error{ErrorCode::bad_input, std::string(source),
                     "no line names a device and its memory",
                     "print them with `nvidia-smi --query-gpu=name,memory.total,pci.bus_id "
                     "--format=csv`"};
    }
    note_vgpus(out);
    return out;
}

sim::Result<ForeignCluster> gpu_list(std::string_view text, std::string_view source) {
    ForeignCluster out;
    out.source = source;
    out.node.emplace();
    out.node->links_stated = false;
    std::int64_t slices = 0;
    std::int64_t first_slice = 0;
    std::string slice_kind;
    for (const Line& line : text::lines_of(text)) {
        const std::string_view trimmed = text::trim(line.text);
        const std::size_t colon = trimmed.find(':');
        const auto number = trimmed.starts_with("GPU ") && colon != std::string_view::npos
                                ? text::whole(trimmed.substr(4, colon - 4))
                                : std::nullopt;
        if (number && out.node->gpus.size() < most_gpus) {
            NodePart part;
            part.name = "GPU" + std::to_string(*number);
            part.line = line.number;
            const std::string_view rest = trimmed.substr(colon + 1);
            part.product = text::trim(rest.substr(0, rest.find("(UUID")));
            out.node->gpus.push_back(std::move(part));
        } else if (trimmed.starts_with("MIG ")) {
            ++slices;
            first_slice = first_slice == 0 ? line.number : first_slice;
            const auto found = text::words(trimmed);
            slice_kind = found.size() > 1 ? std::string(found[1]) : slice_kind;
        } else if (!trimmed.empty()) {
            out.lose(line.number, "the line " + in_quotes(line.text));
        }
    }
    if (out.node->gpus.empty()) {
        return Error{ErrorCode::bad_input, std::string(source), "no line names a device",
                     "print them with `nvidia-smi -L`"};
    }
    if (slices > 0) {
        out.find("mig", first_slice,
                 text::counted(slices, "MIG slice") + ", the last of kind " + in_quotes(slice_kind),
                 "slices cannot train together: switch MIG off, or plan for one slice with "
                 "--device-memory");
    }
    note_vgpus(out);
    return out;
}

} // namespace shardplan::plan::readers
