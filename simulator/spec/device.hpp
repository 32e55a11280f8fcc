#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulator/spec/compute_profile.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// Number formats of matrix products and of stored tensors.
enum class Dtype { fp32, tf32, fp16, bf16, fp8, int8, fp4, nf4 };
template <>
struct EnumNames<Dtype> {
    static constexpr std::array<std::string_view, 8> names = {"fp32", "tf32", "fp16", "bf16",
                                                              "fp8",  "int8", "fp4",  "nf4"};
};

/// Bytes of one stored element (0.5 for 4-bit formats; block scales are counted where stored).
double bytes_per_element(Dtype type);

/// A bandwidth of one direction of a link: what the sheet says, what software reaches at best, and
/// what was measured on this machine.
struct LinkBandwidth {
    Bandwidth physical;
    std::optional<Bandwidth> achievable;
    std::optional<Bandwidth> measured;

    friend bool operator==(const LinkBandwidth&, const LinkBandwidth&) = default;
};

/// The bandwidth to plan with: measured, else achievable, else physical.
Bandwidth usable(const LinkBandwidth& link);

/// How devices of one domain reach one another without the host's network.
enum class ScaleupKind { none, nvswitch, nvlink_mesh, xgmi_mesh, pcie };
template <>
struct EnumNames<ScaleupKind> {
    static constexpr std::array<std::string_view, 5> names = {"none", "nvswitch", "nvlink_mesh",
                                                              "xgmi_mesh", "pcie"};
};

/// A spelling that fits several products; using it must be reported with the reason.
struct AssumedAlias {
    std::string alias;
    std::string reason;

    friend bool operator==(const AssumedAlias&, const AssumedAlias&) = default;
};

/// One accelerator product (SKU), as its sheet describes it; dense peaks, never sparse.
struct Device {
    std::string name;
    std::string vendor;
    std::string arch;               ///< "hopper", "ampere", "cdna3", ...
    std::string compute_capability; ///< "9.0"; empty where there is none
    std::vector<std::string> aliases;
    std::vector<AssumedAlias> assumed_aliases;
    /// Dense peak by format name of Dtype; absent = no such unit, or not known.
    std::map<std::string, FlopRate> peak_dense;
    Bytes memory_label;   ///< as sold
    Bytes memory_visible; ///< what a process sees
    std::string memory_type;
    LinkBandwidth memory_bandwidth;
    ScaleupKind scaleup_kind = ScaleupKind::none; ///< what the board offers
    std::int64_t scaleup_links = 0;
    Bandwidth scaleup_per_direction; ///< all links of one device together
    Bandwidth scaleup_pair;          ///< between one pair; 0 = not known
    Bandwidth pcie_per_direction;
    bool pcie_peer_access = true; ///< false: consumer boards stage through the host
    double tdp_watts = 0.0;
    std::int64_t compute_units = 0; ///< SMs or CUs; 0 = not known
    ComputeProfile compute;         ///< of its architecture, with what the product changes
    std::vector<std::string> sources;
    std::string confidence; ///< high, medium, low
    std::string note;

    friend bool operator==(const Device&, const Device&) = default;
};

void describe(FieldVisitor& v, LinkBandwidth& x);
void describe(FieldVisitor& v, AssumedAlias& x);
void describe(FieldVisitor& v, Device& x);

} // namespace shardplan::sim
