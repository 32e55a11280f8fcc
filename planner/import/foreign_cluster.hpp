#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/collective_record.hpp"
#include "simulator/units/quantity.hpp"

/// What a file of a foreign format says about a machine, before anything is added to it. A reader
/// of such a format keeps what it understood; noise loses a cell or a line, never the file.
namespace shardplan::plan {

/// How two parts of a node reach one another, closest first; the words of `nvidia-smi topo -m`.
enum class PathKind {
    self,
    nvlink,  ///< NVLink or xGMI, directly or through a switch of that network
    pix,     ///< one PCIe bridge at most
    pxb,     ///< several PCIe bridges
    phb,     ///< a host bridge
    node,    ///< several host bridges of one NUMA node
    sys,     ///< across sockets
    unknown, ///< not in the file, or not readable
};
std::string_view name_of(PathKind kind);

struct Path {
    PathKind kind = PathKind::unknown;
    std::int64_t links = 0; ///< of nvlink

    friend bool operator==(const Path&, const Path&) = default;
};

/// A device or a network card.
struct NodePart {
    std::string name;       ///< "GPU0", "NIC0"
    std::string product;    ///< "NVIDIA H100 80GB HBM3", "10de:2330", "mlx5_0"; empty: not known
    std::string bus_id;     ///< empty: not known
    std::int64_t numa = -1; ///< -1: not known
    std::string cores;      ///< processors near it, as printed; empty: not known
    sim::Bytes memory;      ///< of a device; 0: not known
    sim::Bandwidth speed;   ///< of a card, one direction; 0: not known
    sim::Bandwidth pcie;    ///< of its slot, one direction; 0: not known
    std::optional<bool> gpudirect;
    std::string aside; ///< why a card carries no training traffic; empty: it does
    std::int64_t line = 0;
};

/// One node from the inside.
struct NodeView {
    std::vector<NodePart> gpus;
    std::vector<NodePart> nics;
    /// Square, row by row, devices before cards; empty: the file says nothing about links.
    std::vector<Path> paths;
    bool switched = false;          ///< the file names switches of the scale-up network
    bool xgmi = false;              ///< links are AMD's
    bool links_stated = true;       ///< false: nothing about NVLink, as in files made for clouds
    std::string compute_capability; ///< "9.0"; empty: not known
    sim::Bandwidth collective_bandwidth; ///< per device, as the library found it; 0: not known
    std::int64_t expected_gpus = 0;      ///< more than there are: some are missing; 0: not known
    std::int64_t hosts = 1;              ///< hosts like this one, in one domain of the links
    bool infiniband = false;             ///< the file calls its cards InfiniBand

    [[nodiscard]] std::size_t size() const { return gpus.size() + nics.size(); }
    [[nodiscard]] const NodePart& part(std::size_t i) const {
        return i < gpus.size() ? gpus[i] : nics[i - gpus.size()];
    }
    /// Between parts by their place in `paths`; unknown where the file is silent.
    [[nodiscard]] Path path(std::size_t a, std::size_t b) const {
        return paths.empty() ? Path{a == b ? PathKind::self : PathKind::unknown}
                             : paths[a * size() + b];
    }
    /// Cards that carry training traffic.
    [[nodiscard]] std::vector<std::size_t> rails() const;
};

/// A switch, block, rack or whatever groups nodes.
struct FabricSwitch {
    std::string name;
    std::int64_t line = 0;
    std::vector<std::size_t> children; ///< switches below
    std::vector<std::size_t> nodes;    ///< nodes directly below
    bool has_parent = false;
    bool placeless = false; ///< stands for nodes whose place nobody knows
};

struct FabricNode {
    std::string name;
    std::int64_t line = 0;
    std::int64_t gpus = -1;          ///< that can be used; -1: not known
    std::int64_t nics = -1;          ///< -1: not known
    std::int64_t cores = 0;          ///< 0: not known
    sim::Bytes memory;               ///< of the host; 0: not known
    std::string product;             ///< of the devices; empty: not known
    std::string trouble;             ///< why it cannot be planned with; empty: it can
    std::optional<std::size_t> leaf; ///< its switch; none: no fabric is known for it
};

/// The network between nodes.
struct FabricView {
    std::string level_word = "switch"; ///< "switch", "block", "leaf"
    std::vector<FabricSwitch> switches;
    std::vector<FabricNode> nodes;
    std::vector<std::string> level_names; ///< from the leaf up, where the file names levels

    /// Switches without one above.
    [[nodiscard]] std::vector<std::size_t> roots() const;
    /// Nodes below a switch, in the order of the file.
    [[nodiscard]] std::vector<std::size_t> nodes_below(std::size_t root) const;
    /// Switches that hold nodes directly.
    [[nodiscard]] std::vector<std::size_t> leaves() const;
};

/// Something that was not understood, and what was lost by it.
struct LostPiece {
    std::int64_t line = 0; ///< 0: not known
    std::string what;
};

/// Something wrong with the machine, or with the file as a description of it.
struct Diagnosis {
    std::string kind; ///< "no-peer-access", "far-nic", "missing-gpu", ...
    std::int64_t line = 0;
    std::string what;
    std::string advice;
};

/// A figure for display.
struct Fact {
    std::string name;
    std::string value;
};

/// Timings of collectives in a log.
struct CollectiveLog {
    std::vector<sim::CollectiveRecord> records; ///< out of place and in place count apart
    std::int64_t rows = 0;                      ///< lines of the table
    std::int64_t warnings = 0;                  ///< NCCL WARN lines
    std::int64_t wrong = 0;                     ///< wrong elements, over all rows
    std::optional<std::int64_t> cliff_at;       ///< first size at which the bandwidth falls
    std::vector<std::string> hosts;             ///< of the last table that names any, by name
};

struct ForeignCluster {
    std::string format; ///< "an NCCL topology (XML)", as in a sentence
    std::string source; ///< file name, for messages
    std::optional<NodeView> node;
    std::optional<FabricView> fabric;
    std::optional<CollectiveLog> log;
    std::vector<Fact> facts;
    std::vector<LostPiece> lost;
    std::vector<Diagnosis> diagnoses;

    /// Most pieces that are listed; a file with more is hardly the format it looks like.
    static constexpr std::size_t most_lost = 200;
    void lose(std::int64_t line, std::string what) {
        if (lost.size() < most_lost) {
            lost.push_back({line, std::move(what)});
        } else if (lost.size() == most_lost) {
            lost.push_back({line, "and more from here on"});
        }
    }
    void find(std::string kind, std::int64_t line, std::string what, std::string advice = "") {
        if (diagnoses.size() < most_lost) {
            diagnoses.push_back({std::move(kind), line, std::move(what), std::move(advice)});
        }
    }
};

} // namespace shardplan::plan
