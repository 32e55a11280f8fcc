#include "planner/cli/present_foreign.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

using text::counted;
using text::listed;

/// More columns do not fit a terminal.
constexpr std::size_t most_columns = 24;
constexpr int most_tree_lines = 60;
constexpr std::size_t most_rows = 60;

std::string cell_text(const Path& path) {
    return path.kind == PathKind::nvlink ? "NV" + std::to_string(path.links)
                                         : std::string(name_of(path.kind));
}

Style cell_style(const Path& path) {
    switch (path.kind) {
        case PathKind::nvlink:
            return Style::good;
        case PathKind::sys:
        case PathKind::unknown:
            return Style::doubtful;
        case PathKind::self:
            return Style::faint;
        default:
            return Style::plain;
    }
}

void print_matrix(const Console& console, const NodeView& view) {
    if (view.paths.empty() || view.size() < 2) {
        return;
    }
    print_heading(console.out, "Links", console.color);
    const std::size_t shown = std::min(view.size(), most_columns);
    std::vector<Table::Column> columns = {{"", Align::left}};
    for (std::size_t i = 0; i < shown; ++i) {
        columns.push_back({view.part(i).name, Align::right});
    }
    Table table(std::move(columns));
    for (std::size_t a = 0; a < shown; ++a) {
        std::vector<Cell> row = {view.part(a).name};
        for (std::size_t b = 0; b < shown; ++b) {
            row.push_back({cell_text(view.path(a, b)), cell_style(view.path(a, b))});
        }
        table.add(std::move(row));
    }
    table.print(console.out, console.color, 2);
    if (shown < view.size()) {
        console.out << fmt::format("  and {} more; --json has all\n", view.size() - shown);
    }
}

/// Sockets, PCIe switches, and what hangs on them.
void print_parts(const Console& console, const NodeView& view) {
    if (view.paths.empty()) {
        return;
    }
    print_heading(console.out, "Inside the node", console.color);
    const PcieTree tree = pcie_tree(view);
    for (std::size_t socket = 0; socket < tree.sockets; ++socket) {
        console.out << "  socket " << socket << '\n';
        for (const PcieGroup& group : tree.groups) {
            if (group.socket != socket) {
                continue;
            }
            std::vector<std::string> names;
            for (const std::size_t part : group.parts) {
                names.push_back(view.part(part).name);
            }
            console.out << (names.size() > 1 ? "    PCIe switch: " : "    alone: ")
                        << listed(names, 16) << '\n';
        }
    }
    for (const NodePart& nic : view.nics) {
        if (!nic.aside.empty()) {
            console.out << "  not counted: " << nic.name
                        << (nic.product.empty() ? "" : " (" + nic.product + ")") << ", "
                        << nic.aside << '\n';
        }
    }
}

void print_tree(const Console& console, const FabricView& view, std::size_t at, int depth,
                int& lines) {
    const FabricSwitch& here = view.switches[at];
    if (++lines > most_tree_lines || depth > 16) {
        return;
    }
    std::vector<std::string> names;
    for (const std::size_t node : here.nodes) {
        const FabricNode& one = view.nodes[node];
        names.push_back(one.name + (one.trouble.empty() ? "" : " (" + one.trouble + ")"));
    }
    const auto below = static_cast<std::int64_t>(view.nodes_below(at).size());
    console.out << std::string(2 + 2 * static_cast<std::size_t>(depth), ' ') << here.name << ": "
                << counted(below, "node") << (names.empty() ? "" : "  " + listed(names, 6)) << '\n';
    for (const std::size_t child : here.children) {
        print_tree(console, view, child, depth + 1, lines);
    }
}

void print_fabric(const Console& console, const FabricView& view) {
    if (view.switches.empty()) {
        return;
    }
    print_heading(console.out, "Fabric", console.color);
    int lines = 0;
    for (const std::size_t root : view.roots()) {
        print_tree(console, view, root, 0, lines);
    }
    if (lines > most_tree_lines) {
        console.out << fmt::format("  and {} more; --json has all\n", lines - most_tree_lines);
    }
    if (view.leaves().size() < 2) {
        return;
    }
    print_heading(console.out, "Gangs inside one leaf", console.color);
    Table table({{"nodes of a gang", Align::right}, {"gangs", Align::right}});
    const auto sizes = leaf_sizes(view, true);
    for (std::int64_t nodes = 1; nodes <= sizes.back(); nodes *= 2) {
        table.add({std::to_string(nodes), std::to_string(gangs_in_leaves(view, nodes))});
    }
    table.print(console.out, console.color, 2);
}

void print_log(const Console& console, const CollectiveLog& log) {
    print_heading(console.out, "Timings", console.color);
    Table table({{"bytes", Align::right},
                 {"collective", Align::left},
                 {"place", Align::left},
                 {"us", Align::right},
                 {"algbw GB/s", Align::right},
                 {"busbw GB/s", Align::right},
                 {"", Align::left}});
    for (std::size_t i = 0; i < std::min(log.records.size(), most_rows); ++i) {
        const sim::CollectiveRecord& record = log.records[i];
        table.add({std::to_string(record.size_bytes.value_or(0)),
                   record.collective.empty() ? "?" : record.collective,
                   record.in_place.value_or(false) ? "in" : "out",
                   fmt::format("{:.1f}", record.time_us.value_or(0.0)),
                   fmt::format("{:.2f}", record.algbw_gbytes.value_or(0.0)),
                   fmt::format("{:.2f}", record.busbw_gbytes.value_or(0.0)),
                   {record.fault.value_or(""), Style::bad}});
    }
    table.print(console.out, console.color, 2);
    if (log.records.size() > most_rows) {
        console.out << fmt::format("  and {} more; --json has all\n",
                                   log.records.size() - most_rows);
    }
}

void print_figures(const Console& console, const ForeignCluster& file) {
    Table table({{"", Align::left}, {"", Align::left}});
    if (file.node) {
        const NodeView& view = *file.node;
        std::map<std::string, std::int64_t> products;
        for (const NodePart& gpu : view.gpus) {
            const std::string memory =
                gpu.memory.value() > 0.0 ? ", " + sim::to_text(gpu.memory) : "";
            ++products[(gpu.product.empty() ? "kind not in the file" : gpu.product) + memory];
        }
        for (const auto& [product, count] : products) {
            table.add({"devices", fmt::format("{} ({})", count, product)});
        }
        if (!view.nics.empty()) {
            const std::size_t rails = view.rails().size();
            table.add({"network cards", fmt::format("{}, {} of them for training traffic",
                                                    view.nics.size(), rails)});
        }
        if (view.hosts > 1) {
            table.add({"hosts", std::to_string(view.hosts)});
        }
    }
    if (file.fabric) {
        std::int64_t usable = 0;
        for (const FabricNode& node : file.fabric->nodes) {
            usable += node.trouble.empty() ? 1 : 0;
        }
        table.add(
            {"nodes", fmt::format("{}, {} of them usable", file.fabric->nodes.size(), usable)});
        if (!file.fabric->switches.empty()) {
            table.add({"groups",
                       fmt::format("{} in {} under {}", file.fabric->switches.size(), "the fabric",
                                   counted(static_cast<std::int64_t>(file.fabric->roots().size()),
                                           "root"))});
        }
    }
    if (file.log) {
        table.add({"rows", fmt::format("{}, {} of the library", file.log->rows,
                                       counted(file.log->warnings, "warning"))});
    }
    for (const Fact& fact : file.facts) {
        table.add({fact.name, fact.value});
    }
    if (!table.empty()) {
        table.print(console.out, console.color, 2);
    }
}

void write_node(sim::JsonWriter& json, const NodeView& view) {
    json.member("gpus", view.gpus.size())
        .member("nodes", view.hosts)
        .member("nics", view.nics.size())
        .member("rails", view.rails().size());
    json.begin_array("parts");
    for (std::size_t i = 0; i < view.size(); ++i) {
        const NodePart& part = view.part(i);
        json.begin_object()
            .member("name", part.name)
            .member("kind", i < view.gpus.size() ? "device" : "nic")
            .member("product", part.product)
            .member("numa", part.numa);
        if (part.memory.value() > 0.0) {
            json.member("memory", sim::format_exact(part.memory.value(), sim::Dimension::bytes));
        }
        if (part.speed.value() > 0.0) {
            json.member("speed", sim::format_exact(part.speed.value(), sim::Dimension::bandwidth));
        }
        if (!part.aside.empty()) {
            json.member("not_counted", part.aside);
        }
        json.end_object();
    }
    json.end_array();
    json.begin_array("nvlink_pairs");
    for (std::size_t a = 0; a < view.gpus.size(); ++a) {
        for (std::size_t b = a + 1; b < view.gpus.size(); ++b) {
            if (view.path(a, b).kind == PathKind::nvlink) {
                json.begin_array().value(a).value(b).value(view.path(a, b).links).end_array();
            }
        }
    }
    json.end_array();
    json.begin_array("links");
    for (std::size_t a = 0; !view.paths.empty() && a < view.size(); ++a) {
        json.begin_array();
        for (std::size_t b = 0; b < view.size(); ++b) {
            json.value(cell_text(view.path(a, b)));
        }
        json.end_array();
    }
    json.end_array();
}

void write_fabric(sim::JsonWriter& json, const FabricView& view) {
    std::int64_t gpus = 0;
    std::int64_t nics = 0;
    for (const FabricNode& node : view.nodes) {
        gpus += std::max<std::int64_t>(node.gpus, 0);
        nics += std::max<std::int64_t>(node.nics, 0);
    }
    json.member("nodes", view.nodes.size())
        .member("gpus", gpus)
        .member("nics", nics)
        .member("switches", view.switches.size())
        .member("roots", view.roots().size());
    json.begin_array("leaf_sizes");
    for (const std::int64_t size : leaf_sizes(view, false)) {
        json.value(size);
    }
    json.end_array();
    json.begin_array("gangs");
    const auto sizes = leaf_sizes(view, true);
    for (std::int64_t nodes = 1; !sizes.empty() && nodes <= sizes.back(); nodes *= 2) {
        json.begin_object()
            .member("nodes", nodes)
            .member("fit_in_one_leaf", gangs_in_leaves(view, nodes))
            .end_object();
    }
    json.end_array();
    json.begin_array("tree");
    for (const FabricSwitch& one : view.switches) {
        json.begin_object().member("name", one.name).begin_array("switches");
        for (const std::size_t child : one.children) {
            json.value(view.switches[child].name);
        }
        json.end_array().begin_array("nodes");
        for (const std::size_t node : one.nodes) {
            json.value(view.nodes[node].name);
        }
        json.end_array().end_object();
    }
    json.end_array();
}

void write_log(sim::JsonWriter& json, const CollectiveLog& log) {
    double most = 0.0;
    for (const sim::CollectiveRecord& record : log.records) {
        most = std::max(most, record.busbw_gbytes.value_or(0.0));
    }
    json.member("rows", log.rows)
        .member("warnings", log.warnings)
        .member("wrong", log.wrong)
        .member("max_busbw", most)
        .member("cliff_at", log.cliff_at);
    json.begin_array("collectives");
    for (const sim::CollectiveRecord& record : log.records) {
        json.begin_object()
            .member("line", record.line)
            .member("collective", record.collective)
            .member("gpus", record.gpus)
            .member("size_bytes", record.size_bytes)
            .member("time_us", record.time_us)
            .member("algbw_gbytes", record.algbw_gbytes)
            .member("busbw_gbytes", record.busbw_gbytes)
            .member("in_place", record.in_place)
            .member("fault", record.fault)
            .end_object();
    }
    json.end_array();
}

} // namespace

void print_foreign(const Console& console, const ForeignCluster& file) {
    console.out << styled(file.source, Style::strong, console.color) << ": " << file.format << '\n';
    print_figures(console, file);
    if (file.node) {
        print_matrix(console, *file.node);
        print_parts(console, *file.node);
    }
    if (file.fabric) {
        print_fabric(console, *file.fabric);
    }
    if (file.log) {
        print_log(console, *file.log);
    }
    if (!file.diagnoses.empty()) {
        print_heading(console.out, "Diagnosis", console.color);
        for (const Diagnosis& one : file.diagnoses) {
            console.out << "  " << styled(one.kind, Style::doubtful, console.color) << ": "
                        << (one.line > 0 ? fmt::format("line {}: ", one.line) : "") << one.what
                        << '\n';
            if (!one.advice.empty()) {
                console.out << "    " << one.advice << '\n';
            }
        }
    }
    if (!file.lost.empty()) {
        print_heading(console.out, "Lost in reading", console.color);
        for (const LostPiece& piece : file.lost) {
            console.out << "  " << (piece.line > 0 ? fmt::format("line {}: ", piece.line) : "")
                        << piece.what << '\n';
        }
    }
}

void write_foreign(sim::JsonWriter& json, const ForeignCluster& file) {
    json.member("format", file.format).member("source", file.source);
    if (file.node) {
        write_node(json, *file.node);
    }
    if (file.fabric) {
        write_fabric(json, *file.fabric);
    }
    if (file.log) {
        write_log(json, *file.log);
    }
    json.begin_array("facts");
    for (const Fact& fact : file.facts) {
        json.begin_object().member("name", fact.name).member("value", fact.value).end_object();
    }
    json.end_array().begin_array("diagnoses");
    for (const Diagnosis& one : file.diagnoses) {
        json.begin_object()
            .member("kind", one.kind)
            .member("line", one.line)
            .member("what", one.what)
            .member("advice", one.advice)
            .end_object();
    }
    json.end_array().begin_array("lost");
    for (const LostPiece& piece : file.lost) {
        json.begin_object().member("line", piece.line).member("what", piece.what).end_object();
    }
    json.end_array();
}

} // namespace shardplan::plan::cli
