#include <algorithm>
#include <set>

#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/xml.hpp"
#include "simulator/units/text.hpp"

// What NCCL's search found: per family of algorithms the channels, the speed of one channel and the
// devices in their order. It says how fast the devices reach one another, not over which parts.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;

/// GB/s and channels beyond any machine.
constexpr double most_speed = 1e5;
constexpr std::int64_t most_channels = 1024;

std::string pattern_name(std::string_view number) {
    constexpr std::pair<std::string_view, std::string_view> names[] = {
        {"1", "balanced tree"}, {"2", "split tree"}, {"3", "tree"},
        {"4", "ring"},          {"5", "NVLS"},       {"6", "CollNet direct"}};
    for (const auto& [key, name] : names) {
        if (key == number) {
            return std::string(name);
        }
    }
    return "pattern " + std::string(number);
}

struct Parts {
    std::set<std::int64_t> gpus;
    std::set<std::int64_t> nics;
};

void read_channels(const XmlElement& graph, Parts& parts) {
    for (const XmlElement& channel : graph.children) {
        for (const XmlElement& child : channel.children) {
            const auto dev = text::whole(child.attribute("dev"));
            if (!dev || *dev < 0) {
                continue;
            }
            // In a domain of several hosts the top bits name the host.
            constexpr std::int64_t host_bit = std::int64_t{1} << 56;
            if (child.name == "gpu" && parts.gpus.size() < 256) {
                parts.gpus.insert(*dev % host_bit);
            } else if (child.name == "net" && parts.nics.size() < 256) {
                parts.nics.insert(*dev % host_bit);
            }
        }
    }
}

/// The bandwidth of all channels of a graph inside the node, GB/s; 0 if it says none.
double read_graph(const XmlElement& graph, ForeignCluster& out) {
    const auto channels = text::whole(graph.attribute("nchannels"));
    const auto intra = text::decimal(graph.attribute("speedintra"));
    const auto inter = text::decimal(graph.attribute("speedinter"));
    const std::string name = pattern_name(graph.attribute("pattern"));
    if (!channels || !intra || *channels < 0 || *channels > most_channels || *intra < 0.0 ||
        *intra > most_speed) {
        out.lose(graph.line, "the channels or the speed of the graph for " + name);
        return 0.0;
    }
    if (*channels == 0) {
        return 0.0;
    }
    const double total = static_cast<double>(*channels) * *intra;
    std::string value = text::counted(*channels, "channel") + " of " +
                        sim::to_text(sim::Bandwidth(*intra * 1e9)) + " in the node (" +
                        std::string(graph.attribute("typeintra")) + ")";
    if (inter && *inter > 0.0 && *inter < most_speed) {
        value += ", " + sim::to_text(sim::Bandwidth(*inter * 1e9)) + " between nodes (" +
                 std::string(graph.attribute("typeinter")) + ")";
    }
    out.facts.push_back({name, value});
    return graph.attribute("pattern") == "4" ? total : 0.0;
}

} // namespace

sim::Result<ForeignCluster> graph_xml(std::string_view text, std::string_view source) {
    ForeignCluster out;
    out.source = source;
    const Xml xml = read_xml(text, "graphs");
    if (!xml.problem.empty()) {
        out.lose(xml.problem_line, "what follows: " + xml.problem);
    }
    Parts parts;
    double ring = 0.0;
    for (const XmlElement& graph : xml.root.children) {
        read_channels(graph, parts);
        ring = std::max(ring, read_graph(graph, out));
    }
    if (parts.gpus.empty()) {
        return Error{ErrorCode::bad_input, std::string(source),
                     "no channel of the graphs names a device",
                     "dump them with NCCL_GRAPH_DUMP_FILE on a node with devices"};
    }
    NodeView view;
    for (const std::int64_t dev : parts.gpus) {
        view.gpus.emplace_back();
        view.gpus.back().name = "GPU" + std::to_string(dev);
    }
    for (const std::int64_t dev : parts.nics) {
        view.nics.emplace_back();
        view.nics.back().name = "NIC" + std::to_string(dev);
    }
    view.links_stated = false;
    view.collective_bandwidth = sim::Bandwidth(ring * 1e9);
    out.node = std::move(view);
    return out;
}

} // namespace shardplan::plan::readers
