#include "simulator/spec/device.hpp"

namespace shardplan::sim {

double bytes_per_element(Dtype type) {
    switch (type) {
        case Dtype::fp32:
        case Dtype::tf32: // stored as fp32, only multiplied with fewer bits
            return 4.0;
        case Dtype::fp16:
        case Dtype::bf16:
            return 2.0;
        case Dtype::fp8:
        case Dtype::int8:
            return 1.0;
        case Dtype::fp4:
        case Dtype::nf4:
            return 0.5;
    }
    return 4.0;
}

Bandwidth usable(const LinkBandwidth& link) {
    if (link.measured) {
        return *link.measured;
    }
    return link.achievable ? *link.achievable : link.physical;
}

void describe(FieldVisitor& v, LinkBandwidth& x) {
    field(
        v,
        {"physical", "sheet bandwidth", "Bandwidth of one direction as the sheet says.", true, 0.0},
        x.physical);
    field(v,
          {"achievable", "achievable bandwidth",
           "Bandwidth of one direction that software reaches at best; absent: not known.", false,
           0.0},
          x.achievable);
    field(
        v,
        {"measured", "measured bandwidth",
         "Bandwidth of one direction measured on this machine; absent: not measured.", false, 0.0},
        x.measured);
}

void describe(FieldVisitor& v, AssumedAlias& x) {
    field(v, {"alias", "spelling", "A spelling that fits several products.", true}, x.alias);
    field(v, {"reason", "reason", "Why it is taken for this product.", true}, x.reason);
}

namespace {

void describe_identity(FieldVisitor& v, Device& x) {
    field(v, {"name", "name", "Name of the product, unique in the catalogue.", true}, x.name);
    field(v, {"vendor", "vendor", "Who makes it."}, x.vendor);
    field(v, {"arch", "architecture", "Architecture, in lower case: hopper, ampere, cdna3."},
          x.arch);
    field(v,
          {"compute_capability", "compute capability",
           "CUDA compute capability or GPU target; empty where there is none."},
          x.compute_capability);
    field(v, {"aliases", "aliases", "Other spellings of exactly this product."}, x.aliases);
    field(v,
          {"assumed_aliases", "assumed aliases",
           "Spellings that fit several products; using one is reported with its reason."},
          x.assumed_aliases);
}

} // namespace

void describe(FieldVisitor& v, Device& x) {
    describe_identity(v, x);
    field(
        v,
        {"peak_dense", "dense peaks",
         "Dense peak of matrix products by format (fp32, tf32, fp16, bf16, fp8, int8, fp4; "
         "fp32_matrix where matrix units multiply fp32), never the sparse figure; absent: no such "
         "unit, or not known.",
         false, 0.0},
        x.peak_dense);
    field(v, {"memory_label", "memory as sold", "Device memory as the label says.", true, 0.0},
          x.memory_label);
    field(v, {"memory_visible", "visible memory", "Device memory that a process sees.", true, 0.0},
          x.memory_visible);
    field(v, {"memory_type", "memory type", "HBM3, GDDR6X, ..."}, x.memory_type);
    field(v, {"memory_bandwidth", "memory bandwidth", "Bandwidth of the device memory.", true},
          x.memory_bandwidth);
    field(v,
          {"scaleup_kind", "scale-up link",
           "How boards of this product reach one another: none, nvswitch, nvlink_mesh, xgmi_mesh, "
           "pcie."},
          x.scaleup_kind);
    field(v,
          {"scaleup_links", "scale-up links",
           "Number of scale-up links of one device; 0: not known.", false, 0.0},
          x.scaleup_links);
    field(v,
          {"scaleup_per_direction", "scale-up bandwidth",
           "All scale-up links of one device together, one direction; 0: none.", false, 0.0},
          x.scaleup_per_direction);
    field(v,
          {"scaleup_pair", "scale-up bandwidth of a pair",
           "Between one pair of devices, one direction; 0: not known.", false, 0.0},
          x.scaleup_pair);
    field(v,
          {"pcie_per_direction", "PCIe bandwidth", "The PCIe slot, one direction; 0: none.", false,
           0.0},
          x.pcie_per_direction);
    field(v,
          {"pcie_peer_access", "PCIe peer access",
           "Devices read one another over PCIe; false: messages are staged through host memory."},
          x.pcie_peer_access);
    v.quantity({"tdp", "power limit", "Thermal design power; 0: not known.", false, 0.0},
               Dimension::watts, x.tdp_watts);
    field(v,
          {"compute_units", "compute units",
           "Streaming multiprocessors, compute units or cores; 0: not known.", false, 0.0},
          x.compute_units);
    field(v,
          {"compute", "compute",
           "What libraries reach on it; what is not stated is that of its architecture."},
          x.compute);
    field(v, {"sources", "sources", "Where the figures are from."}, x.sources);
    field(v, {"confidence", "confidence", "high, medium or low."}, x.confidence);
    field(v, {"note", "note", "What else one should know."}, x.note);
}

} // namespace shardplan::sim
