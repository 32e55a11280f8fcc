#include <algorithm>

#include <fmt/format.h>

#include "planner/cli/inputs.hpp"
#include "planner/cli/present_foreign.hpp"
#include "planner/cli/present_route.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "planner/import/catalogue_once.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/json.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// A node group with its device, where anybody knows it.
struct KnownGroup {
    const sim::NodeGroup* group = nullptr;
    std::optional<sim::Device> device;
    std::vector<sim::Assumption> assumptions;
    std::string hint; ///< nearest names of an unknown device
};

std::vector<KnownGroup> known_groups(const sim::Cluster& cluster,
                                     const std::vector<sim::Device>& catalogue) {
    std::vector<KnownGroup> out;
    for (const sim::NodeGroup& group : cluster.node_groups) {
        KnownGroup known;
        known.group = &group;
        auto found = sim::find_device(cluster.devices, group.node.device, "cluster");
        if (!found) {
            found = sim::find_device(catalogue, group.node.device, "cluster");
        }
        if (found) {
            known.device = std::move(found->value);
            known.assumptions = std::move(found->assumptions);
        } else {
            known.hint = found.error().hint;
        }
        out.push_back(std::move(known));
    }
    return out;
}

std::int64_t nic_count(const sim::Cluster& cluster) {
    std::int64_t nics = 0;
    for (const sim::NodeGroup& group : cluster.node_groups) {
        nics += group.count * group.node.nics.count;
    }
    return nics;
}

/// Cards with a leaf of their own: NIC i of every node hangs on leaf i.
std::int64_t rail_count(const sim::Cluster& cluster) {
    if (!cluster.fabric.rails) {
        return 0;
    }
    std::int64_t rails = 0;
    for (const sim::NodeGroup& group : cluster.node_groups) {
        rails = std::max(rails, group.node.nics.count);
    }
    return rails;
}

std::int64_t switch_count(const sim::Cluster& cluster) {
    std::int64_t switches = 0;
    for (const sim::NodeGroup& group : cluster.node_groups) {
        for (const sim::Vertex& vertex : group.node.vertices) {
            const bool is_switch = vertex.kind == sim::VertexKind::pcie_switch ||
                                   vertex.kind == sim::VertexKind::scaleup_switch;
            switches += is_switch ? group.count : 0;
        }
    }
    return switches;
}

/// What the cluster is made of, as members of the object that is open.
void write_parts(sim::JsonWriter& json, const sim::Cluster& cluster,
                 const std::vector<KnownGroup>& groups,
                 const std::vector<sim::Assumption>& assumptions) {
    json.begin_array("devices");
    for (const KnownGroup& group : groups) {
        json.begin_object()
            .member("name", group.device ? group.device->name : group.group->node.device)
            .member("known", group.device.has_value())
            .member("gpus", group.group->count * group.group->node.devices);
        if (group.device) {
            json.member("device", *group.device);
        }
        json.end_object();
    }
    json.end_array();
    json.begin_array("assumptions");
    for (const sim::Assumption& assumption : assumptions) {
        json.value(assumption);
    }
    json.end_array().member("cluster", cluster);
}

/// The way between two devices of a cluster, where it was asked for.
struct AskedRoute {
    TwoDevices ends;
    sim::Route route;
};
sim::Result<std::optional<AskedRoute>> asked_route(const ClusterOptions& options,
                                                   const sim::Cluster& cluster) {
    using Found = std::optional<AskedRoute>;
    if (options.between.empty()) {
        return Found{};
    }
    const auto ends = two_devices(options.between, "--between");
    if (!ends) {
        return ends.error();
    }
    auto route = sim::route_between(cluster, ends->from, ends->to, "--between");
    if (!route) {
        return route.error();
    }
    return Found{AskedRoute{*ends, std::move(*route)}};
}

void write_json(const Console& console, const sim::Cluster& cluster,
                const std::vector<KnownGroup>& groups,
                const std::vector<sim::Assumption>& assumptions,
                const std::optional<AskedRoute>& way) {
    sim::JsonWriter json;
    json.begin_object()
        .member("name", cluster.name)
        .member("summary", sim::summary(cluster))
        .member("gpus", sim::device_count(cluster))
        .member("nodes", node_count(cluster))
        .member("nics", nic_count(cluster))
        .member("rails", rail_count(cluster))
        .member("switches", switch_count(cluster));
    if (way) {
        write_route(json, way->ends, way->route);
    }
    write_parts(json, cluster, groups, assumptions);
    json.end_object();
    console.out << json.str();
}

std::string peak_words(const sim::Device& device) {
    const auto peak = device.peak_dense.find("bf16");
    const auto half = device.peak_dense.find("fp16");
    if (peak != device.peak_dense.end()) {
        return sim::to_text(peak->second) + " dense bf16";
    }
    if (half != device.peak_dense.end()) {
        return sim::to_text(half->second) + " dense fp16";
    }
    return "peak unknown";
}

/// Which cards go through the host, and how fast.
std::string staged_in_words(const sim::Nics& nics) {
    std::string text;
    if (nics.gpudirect && !nics.staged.empty()) {
        text = nics.staged.size() == 1 ? "without GPUDirect: card " : "without GPUDirect: cards ";
        for (std::size_t i = 0; i < nics.staged.size(); ++i) {
            text += (i == 0 ? "" : ", ") + std::to_string(nics.staged[i]);
        }
    }
    if (nics.staged_rate && sim::staged_cards(nics) > 0) {
        text += fmt::format("{}{} each through the host, measured", text.empty() ? "" : "; ",
                            sim::to_text(*nics.staged_rate));
    }
    return text;
}

void print_group(const Console& console, const KnownGroup& known) {
    const sim::NodeGroup& group = *known.group;
    const sim::NodeTemplate& node = group.node;
    print_heading(console.out,
                  fmt::format("{}: {} x {} {}", group.name.empty() ? "nodes" : group.name,
                              group.count, node.devices, node.device),
                  console.color);
    Table table({{"", Align::left}, {"", Align::left}});
    if (known.device) {
        table.add({"device", fmt::format("{}, {} visible at {}, {}", known.device->name,
                                         sim::to_text(known.device->memory_visible),
                                         sim::to_text(usable(known.device->memory_bandwidth)),
                                         peak_words(*known.device))});
    } else {
        table.add({"device",
                   {fmt::format("{}: not in the catalogue, peak unknown; {}, or give its figures "
                                "to plan with --device-peak, --device-memory, --device-bandwidth",
                                node.device, known.hint),
                    Style::doubtful}});
    }
    if (node.scaleup.kind != sim::ScaleupKind::none) {
        table.add({"in the node",
                   fmt::format("{}, {} per device and direction{}", name_of(node.scaleup.kind),
                               sim::to_text(usable(node.scaleup.per_device)),
                               node.scaleup.peer_access ? ""
                                                        : ", no peer access: staged through "
                                                          "the host")});
    }
    if (node.scaleup.domain_devices > 0) {
        table.add({"", fmt::format("one domain of {} devices", node.scaleup.domain_devices)});
    }
    if (node.nics.count > 0) {
        table.add(
            {"out of the node", fmt::format("{} {} of {} each direction{}", node.nics.count,
                                            node.nics.count == 1 ? "NIC" : "NICs",
                                            sim::to_text(usable(node.nics.per_nic)),
                                            node.nics.gpudirect ? "" : ", without GPUDirect")});
        if (const std::string staged = staged_in_words(node.nics); !staged.empty()) {
            table.add({"", staged});
        }
    }
    if (node.host.memory.value() > 0.0) {
        table.add({"host", fmt::format("{} memory, {} cores", sim::to_text(node.host.memory),
                                       node.host.cores)});
    }
    if (node.processors > 0) {
        table.add({"processors", fmt::format("{}, on which the devices compute{}", node.processors,
                                             node.processors < node.devices ? " in turns" : "")});
    }
    if (group.price_per_device_hour > 0.0) {
        table.add(
            {"price", fmt::format("{:.4g} per device and hour", group.price_per_device_hour)});
    }
    table.print(console.out, console.color, 2);
}

void print_torus(const Console& console, const sim::Fabric& fabric) {
    if (fabric.torus.empty()) {
        return;
    }
    Table table({{"torus", Align::left},
                 {"nodes", Align::right},
                 {"per link", Align::right},
                 {"latency", Align::right},
                 {"", Align::left}});
    for (std::size_t i = 0; i < fabric.torus.size(); ++i) {
        const sim::TorusDimension& dimension = fabric.torus[i];
        table.add({fmt::format("dimension {}", i + 1), std::to_string(dimension.nodes),
                   sim::to_text(usable(dimension.per_link)),
                   dimension.latency.value() > 0.0 ? sim::to_text(dimension.latency) : "",
                   dimension.wraps ? "closed" : "open"});
    }
    table.print(console.out, console.color, 2);
}

void print_levels(const Console& console, const std::vector<sim::FabricLevel>& levels) {
    const bool counted = std::any_of(levels.begin(), levels.end(),
                                     [](const auto& level) { return level.switches > 0; });
    std::vector<Table::Column> columns = {{"level", Align::left},
                                          {"nodes", Align::right},
                                          {"oversubscription", Align::right},
                                          {"latency", Align::right}};
    if (counted) {
        columns.push_back({"switches", Align::right});
    }
    Table table(std::move(columns));
    for (const sim::FabricLevel& level : levels) {
        table.add({level.name,
                   level.nodes_per_group > 0 ? std::to_string(level.nodes_per_group) : "all",
                   fmt::format("{:.3g} : 1", level.oversubscription),
                   level.latency.value() > 0.0 ? sim::to_text(level.latency) : "",
                   level.switches > 0 ? std::to_string(level.switches) : ""});
    }
    if (!table.empty()) {
        table.print(console.out, console.color, 2);
    }
}

void print_fabric(const Console& console, const sim::Fabric& fabric) {
    if (fabric.kind == sim::FabricKind::none) {
        return;
    }
    print_heading(
        console.out,
        fmt::format("Fabric: {}{}{}", name_of(fabric.kind), fabric.rails ? ", by rails" : "",
                    fabric.in_network_reduction ? ", its switches reduce" : ""),
        console.color);
    print_levels(console, fabric.levels);
    print_torus(console, fabric);
}

void print_text(const Console& console, const sim::Cluster& cluster,
                const std::vector<KnownGroup>& groups,
                const std::vector<sim::Assumption>& assumptions) {
    console.out << styled(cluster.name, Style::strong, console.color) << ": "
                << sim::summary(cluster) << '\n';
    if (!cluster.note.empty()) {
        console.out << cluster.note << '\n';
    }
    for (const KnownGroup& group : groups) {
        print_group(console, group);
    }
    print_fabric(console, cluster.fabric);
    print_assumptions(console.out, assumptions, console.color);
}

/// A foreign file says what it says, whether or not a plan can be made of it.
int show_foreign(const Console& console, const ClusterOptions& options, const ForeignInput& input) {
    const ForeignCluster& file = input.file;
    const auto built = import_cluster(input, options);
    const bool asked = options.gpus || !options.sets.empty() || !options.import.device.empty() ||
                       !options.import.node.empty() || !options.between.empty();
    if (!built && asked) { // the answer to what was asked for is that it cannot be had
        return fail(console, built.error());
    }
    const auto way = asked_route(options, built ? built->cluster : sim::Cluster{});
    if (!way) {
        return fail(console, way.error());
    }
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object();
        write_foreign(json, file);
        if (*way) {
            write_route(json, (*way)->ends, (*way)->route);
        }
        if (built) {
            json.member("summary", sim::summary(built->cluster));
            write_parts(json, built->cluster, known_groups(built->cluster, input.help.catalogue),
                        built->assumptions);
        } else {
            json.begin_object("to_plan_with_it")
                .member("what", built.error().what)
                .member("hint", built.error().hint)
                .end_object();
        }
        json.end_object();
        console.out << json.str();
        return exit_code::yes;
    }
    print_foreign(console, file);
    console.out << '\n';
    if (built) {
        print_text(console, built->cluster, known_groups(built->cluster, input.help.catalogue),
                   built->assumptions);
        if (*way) {
            print_route(console, (*way)->ends, (*way)->route);
        }
    } else {
        console.out << "To plan with it: " << built.error().what << "; " << built.error().hint
                    << '\n';
    }
    return exit_code::yes;
}

} // namespace

int run_cluster(const ClusterOptions& options, const Console& console) {
    if (const auto status = check_sets(options.sets, {"cluster"}); !status) {
        return fail(console, status.error());
    }
    const auto foreign = foreign_from(options);
    if (!foreign) {
        return fail(console, foreign.error());
    }
    if (*foreign) {
        return show_foreign(console, options, **foreign);
    }
    std::vector<sim::Assumption> assumptions;
    const auto cluster = cluster_from(options, assumptions);
    if (!cluster) {
        return fail(console, cluster.error());
    }
    const auto way = asked_route(options, *cluster);
    if (!way) {
        return fail(console, way.error());
    }
    const auto& catalogue = catalogue_once();
    if (!catalogue) {
        return fail(console, catalogue.error());
    }
    const auto groups = known_groups(*cluster, catalogue->devices);
    for (const KnownGroup& group : groups) {
        assumptions.insert(assumptions.end(), group.assumptions.begin(), group.assumptions.end());
    }
    if (console.json) {
        write_json(console, *cluster, groups, assumptions, *way);
    } else {
        print_text(console, *cluster, groups, assumptions);
        if (*way) {
            print_route(console, (*way)->ends, (*way)->route);
        }
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
