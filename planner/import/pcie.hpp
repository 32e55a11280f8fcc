#pragma once

#include <string>
#include <string_view>

#include "simulator/units/quantity.hpp"

/// Facts about PCI devices that the formats speak of by number.
namespace shardplan::plan {

/// One direction of a slot: "16.0 GT/s PCIe" and lanes, less the line code. 0 where either is not
/// readable.
sim::Bandwidth pcie_bandwidth(std::string_view link_speed, std::string_view link_width);

/// The name in the catalogue of a PCI device, "10de:2330"; empty: not known. Numbers: the PCI ID
/// repository (pci.ids).
std::string_view device_of_pci_id(std::string_view id);

} // namespace shardplan::plan
