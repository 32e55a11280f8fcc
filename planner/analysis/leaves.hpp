#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"
#include "simulator/units/text.hpp"

/// The plain values of a scenario where they stand: what a diff compares, a sweep changes and a
/// sensitivity swings. The list follows `describe`, so a new field needs no line here.
namespace shardplan::plan {

enum class LeafKind : std::uint8_t { integer, number, flag, text, choice };

/// The plausible range that a Constant states.
struct PlausibleRange {
    double lo = 0.0;
    double hi = 0.0;

    friend bool operator==(const PlausibleRange&, const PlausibleRange&) = default;
};

/// One plain value. A Constant is one leaf, "....value", with its unit and range; its `sigma` is a
/// leaf of its own; its other fields are none.
struct Leaf {
    std::string path;  ///< "cluster.node_groups[0].node.nics.per_nic.physical"
    std::string label; ///< a few words
    std::string doc;
    LeafKind kind = LeafKind::text;
    sim::Dimension dimension = sim::Dimension::scalar; ///< how it is written in a setting
    sim::Dimension shown = sim::Dimension::scalar;     ///< how it is shown: a Constant has a unit
    double value = 0.0;                                ///< base units; of integer and number
    std::string text;                                  ///< as a setting would write it
    double lo = -std::numeric_limits<double>::infinity(); ///< smallest legal number
    double hi = std::numeric_limits<double>::infinity();  ///< largest legal number
    std::optional<PlausibleRange> range;

    friend bool operator==(const Leaf&, const Leaf&) = default;
};

/// All leaves in the order of `describe`, without notes, sources and assumptions. Roots: model,
/// cluster, job, stack, calibration, devices[i], fabrics[i].
std::vector<Leaf> leaves_of(const sim::Scenario& scenario);

/// Text of a value as a person reads it: "400 Gbit/s" style amounts, plain numbers, names.
std::string shown_text(const Leaf& leaf, double value);
/// Text of a value as `apply_setting` reads it.
std::string setting_text(const Leaf& leaf, double value);

/// The full path that a short one stands for: "job.sequence" is "job.sequence.max",
/// "device.memory_bandwidth" is that of every device, "fabric.infiniband.step_latency" is the
/// Constant of that profile, "stack.time.launch" its value, "....nics.per_nic" the physical
/// bandwidth. Errors: no such field, with the
/// nearest path; `where` begins the Error.
sim::Result<std::vector<std::string>> full_paths(const std::vector<Leaf>& leaves,
                                                 std::string_view path, std::string_view where);

/// The leaf of a full path; nullptr if there is none.
const Leaf* find_leaf(const std::vector<Leaf>& leaves, std::string_view path);

} // namespace shardplan::plan
