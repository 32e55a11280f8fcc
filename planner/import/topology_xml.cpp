#include <algorithm>
#include <map>
#include <set>

#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "planner/import/pcie.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/xml.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// The tree system > cpu > pci (> pci ...) > gpu | nic > net. Files that clouds ship stop at `pci`:
// their devices and cards are told by the class of the PCI device, and nothing is known of links.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

constexpr std::size_t most_parts = 256;
constexpr int deepest = 32;
/// Mbit/s above which a `speed` was written in another unit.
constexpr double most_mbits = 1e7;
constexpr std::int64_t most_links = 64;

/// Bus ids as short as they get: "00000000:53:00.0" and "0000:53:00.0" are one device.
std::string bus_id(std::string_view text) {
    std::string out = sim::lower_case(text);
    const std::size_t colon = out.find(':');
    if (colon != std::string::npos && colon > 4 &&
        out.substr(0, colon - 4).find_first_not_of('0') == std::string::npos) {
        out.erase(0, colon - 4);
    }
    return out;
}

/// A part with its way up to the root: numbers of the PCI bridges, nearest first.
struct Placed {
    NodePart part;
    std::vector<int> bridges;
    int cpu = 0;
    std::map<std::string, std::int64_t> links; ///< by bus id of the target
    std::int64_t switch_links = 0;
};

class Reader {
public:
    explicit Reader(std::string_view source) { out_.source = source; }

    sim::Result<ForeignCluster> read(std::string_view text) {
        const Xml xml = read_xml(text, "system");
        if (!xml.problem.empty()) {
            out_.lose(xml.problem_line, "what follows: " + xml.problem);
        }
        for (const XmlElement& child : xml.root.children) {
            if (child.name == "cpu") {
                read_cpu(child);
            } else {
                pass_over(child);
            }
        }
        if (gpus_.empty()) {
            return Error{ErrorCode::bad_input, out_.source,
                         "the topology names no device: neither a <gpu> nor a PCI device of class "
                         "0x03 or 0x12",
                         "dump it with NCCL_TOPO_DUMP_FILE on a node with devices"};
        }
        build();
        return std::move(out_);
    }

private:
    void pass_over(const XmlElement& node) {
        if (passed_.insert(node.name).second && passed_.size() < 32) {
            out_.lose(node.line,
                      "element <" + std::string(node.name) + "> is not known and passed over");
        }
    }

    void read_cpu(const XmlElement& node) {
        const std::string host(node.attribute("host_hash"));
        if (hosts_.empty()) {
            first_host_ = host;
        } else if (hosts_.count(host) == 0) {
            out_.lose(node.line, "the insides of a further host; the first one stands for all");
        }
        hosts_.insert(host);
        if (host != first_host_) {
            return;
        }
        ++cpus_;
        const std::string_view vendor = node.attribute("vendor");
        if (vendor.empty() && !vendor_noted_) {
            vendor_noted_ = true;
            out_.facts.push_back({"processor", "not in the file"});
        } else if (!vendor.empty() && !vendor_noted_) {
            vendor_noted_ = true;
            out_.facts.push_back(
                {"processor", std::string(vendor) + " " + std::string(node.attribute("arch"))});
        }
        numa_ = text::whole(node.attribute("numaid")).value_or(cpus_ - 1);
        std::vector<int> way;
        for (const XmlElement& child : node.children) {
            read_child(child, way, 0);
        }
    }

    void read_child(const XmlElement& node, std::vector<int>& way, int depth) {
        const std::string_view name = node.name;
        if (name == "pci" && depth < deepest) {
            read_pci(node, way, depth);
        } else if (name == "nic") {
            read_nic(node, &node, way);
        } else {
            pass_over(node);
        }
    }

    void read_pci(const XmlElement& node, std::vector<int>& way, int depth) {
        const std::string_view pci_class = node.attribute("class");
        const XmlElement* gpu = node.child("gpu");
        const XmlElement* nic = node.child("nic");
        if (gpu != nullptr ||
            (nic == nullptr && (pci_class.starts_with("0x03") || pci_class.starts_with("0x12")))) {
            static const XmlElement none;
            read_gpu(node, gpu != nullptr ? *gpu : none, way);
            return;
        }
        if (nic != nullptr || pci_class.starts_with("0x02")) {
            read_nic(node, nic, way);
            return;
        }
        way.insert(way.begin(), ++bridges_);
        for (const XmlElement& child : node.children) {
            if (child.name != "pcilink") {
                read_child(child, way, depth + 1);
            }
        }
        way.erase(way.begin());
    }

    Placed place(const XmlElement& pci, const std::vector<int>& way) {
        Placed placed;
        placed.bridges = way;
        placed.cpu = cpus_;
        placed.part.numa = numa_;
        placed.part.line = pci.line;
        placed.part.bus_id = bus_id(pci.attribute("busid"));
        placed.part.pcie = pcie_bandwidth(pci.attribute("link_speed"), pci.attribute("link_width"));
        return placed;
    }

    bool full(std::int64_t line) {
        if (gpus_.size() + nics_.size() < most_parts) {
            return false;
        }
        if (!full_noted_) {
            full_noted_ = true;
            out_.lose(line, "parts beyond the first " + std::to_string(most_parts));
        }
        return true;
    }

    void read_gpu(const XmlElement& pci, const XmlElement& gpu, const std::vector<int>& way) {
        Placed placed = place(pci, way);
        if (full(placed.part.line)) {
            return;
        }
        const std::string vendor = sim::lower_case(pci.attribute("vendor"));
        const std::string device = sim::lower_case(pci.attribute("device"));
        if (vendor.size() == 6 && device.size() == 6 && vendor != "0x0000") {
            placed.part.product = vendor.substr(2) + ":" + device.substr(2);
        }
        const auto dev = text::whole(gpu.attribute("dev"));
        const auto number = static_cast<std::int64_t>(gpus_.size());
        placed.part.name = "GPU" + std::to_string(dev && *dev >= 0 ? *dev : number);
        if (!names_.insert(placed.part.name).second) {
            placed.part.name += "-" + std::to_string(number);
            names_.insert(placed.part.name);
        }
        with_element_ = with_element_ || !gpu.name.empty();
        if (const auto sm = text::whole(gpu.attribute("sm")); sm && *sm >= 10 && !gpu.has("gcn")) {
            capability_ = std::to_string(*sm / 10) + "." + std::to_string(*sm % 10);
        }
        if (const std::string_view mig = gpu.attribute("mig"); mig == "1") {
            out_.find("mig", placed.part.line, placed.part.name + " is cut into MIG slices",
                      "slices cannot train together: switch MIG off, or plan for one slice");
        }
        for (const XmlElement& child : gpu.children) {
            read_link(child, placed);
        }
        gpus_.push_back(std::move(placed));
    }

    void read_link(const XmlElement& link, Placed& placed) {
        const std::string_view name = link.name;
        if (name != "nvlink" && name != "xgmi") {
            pass_over(link);
            return;
        }
        const auto count = text::whole(link.attribute("count"));
        if (!count || *count < 1 || *count > most_links) {
            out_.lose(link.line, "a link of " + placed.part.name + " with a count of " +
                                     in_quotes(link.attribute("count")));
            return;
        }
        xgmi_ = xgmi_ || name == "xgmi";
        const std::string_view target_class = link.attribute("tclass");
        if (target_class.starts_with("0x0680")) {
            placed.switch_links = std::min(placed.switch_links + *count, most_links);
        } else {
            std::int64_t& links = placed.links[bus_id(link.attribute("target"))];
            links = std::min(links + *count, most_links);
        }
    }

    /// `nic`: nullptr where the file stops at the PCI device.
    void read_nic(const XmlElement& pci, const XmlElement* nic, const std::vector<int>& way) {
        int found = 0;
        const std::vector<XmlElement> none;
        for (const XmlElement& net : nic != nullptr ? nic->children : none) {
            const std::string_view name = net.name;
            if (name == "net") {
                add_nic(pci, net, way);
                ++found;
            } else if (name != "gin" && name != "rma") { // further uses of the same card
                pass_over(net);
            }
        }
        if (found == 0) {
            add_nic(pci, {}, way);
        }
    }

    void add_nic(const XmlElement& pci, const XmlElement& net, const std::vector<int>& way) {
        Placed placed = place(pci, way);
        if (full(placed.part.line)) {
            return;
        }
        placed.part.name = "NIC" + std::to_string(nics_.size());
        placed.part.product = net.attribute("name");
        if (const auto speed = text::decimal(net.attribute("speed")); speed && *speed > 0.0) {
            double mbits = *speed;
            if (mbits >= most_mbits) {
                out_.lose(net.line, "the unit of speed \"" + std::string(net.attribute("speed")) +
                                        "\" of " + placed.part.product + ": read as kbit/s");
                mbits /= 1000.0;
            }
            if (mbits < most_mbits) {
                placed.part.speed = sim::Bandwidth(mbits * 1e6 / 8.0);
            }
        }
        if (const std::string_view gdr = net.attribute("gdr"); !gdr.empty()) {
            placed.part.gpudirect = gdr != "0";
        }
        infiniband_ = infiniband_ || pci.attribute("class").starts_with("0x0207");
        nics_.push_back(std::move(placed));
    }

    static Path path_between(const Placed& a, const Placed& b) {
        if (a.cpu != b.cpu) {
            return {PathKind::sys};
        }
        for (std::size_t i = 0; i < a.bridges.size(); ++i) {
            const auto same = std::find(b.bridges.begin(), b.bridges.end(), a.bridges[i]);
            if (same != b.bridges.end()) {
                const bool one = i == 0 && same == b.bridges.begin();
                return {one ? PathKind::pix : PathKind::pxb};
            }
        }
        // Ports of one card are the same PCI device.
        return {a.part.bus_id == b.part.bus_id && !a.part.bus_id.empty() ? PathKind::pix
                                                                         : PathKind::phb};
    }

    static Path link_between(const Placed& a, const Placed& b) {
        std::int64_t links = std::min(a.switch_links, b.switch_links);
        if (const auto direct = a.links.find(b.part.bus_id); direct != a.links.end()) {
            links += direct->second;
        } else if (const auto back = b.links.find(a.part.bus_id); back != b.links.end()) {
            links += back->second;
        }
        return links > 0 ? Path{PathKind::nvlink, links} : path_between(a, b);
    }

    void build() {
        NodeView view;
        std::vector<const Placed*> all;
        for (const Placed& gpu : gpus_) {
            view.gpus.push_back(gpu.part);
            all.push_back(&gpu);
            view.switched = view.switched || gpu.switch_links > 0;
        }
        for (const Placed& nic : nics_) {
            view.nics.push_back(nic.part);
            all.push_back(&nic);
        }
        view.paths.resize(all.size() * all.size());
        for (std::size_t a = 0; a < all.size(); ++a) {
            for (std::size_t b = 0; b < all.size(); ++b) {
                Path& path = view.paths[a * all.size() + b];
                path = a == b                                 ? Path{PathKind::self}
                       : a < gpus_.size() && b < gpus_.size() ? link_between(*all[a], *all[b])
                                                              : path_between(*all[a], *all[b]);
            }
        }
        view.xgmi = xgmi_;
        view.links_stated = with_element_;
        view.compute_capability = capability_;
        view.hosts = static_cast<std::int64_t>(hosts_.size());
        view.infiniband = infiniband_;
        set_cards_aside(view);
        if (!with_element_) {
            out_.facts.push_back({"links between devices",
                                  "not in the file (it stops at PCI devices, as those that "
                                  "clouds ship do)"});
        }
        out_.node = std::move(view);
    }

    ForeignCluster out_;
    std::vector<Placed> gpus_;
    std::vector<Placed> nics_;
    std::set<std::string> names_;
    std::set<std::string> passed_;
    std::set<std::string> hosts_;
    std::string first_host_;
    std::string capability_;
    std::int64_t numa_ = 0;
    int cpus_ = 0;
    int bridges_ = 0;
    bool with_element_ = false;
    bool xgmi_ = false;
    bool infiniband_ = false;
    bool vendor_noted_ = false;
    bool full_noted_ = false;
};

} // namespace

sim::Result<ForeignCluster> topology_xml(std::string_view text, std::string_view source) {
    return Reader(source).read(text);
}

} // namespace shardplan::plan::readers
