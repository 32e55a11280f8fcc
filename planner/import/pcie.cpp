#include "planner/import/pcie.hpp"

#include <utility>

#include "planner/import/import_text.hpp"

namespace shardplan::plan {

sim::Bandwidth pcie_bandwidth(std::string_view link_speed, std::string_view link_width) {
    const auto found = text::words(link_speed);
    const double rate = found.empty() ? 0.0 : text::decimal(found.front()).value_or(0.0);
    const std::int64_t lanes = text::whole(text::trim(link_width)).value_or(0);
    constexpr double fastest = 1024.0; // GT/s; beyond any generation
    if (rate <= 0.0 || rate > fastest || lanes < 1 || lanes > 32) {
        return {};
    }
    // Line codes: 8b/10b up to generation 2, 128b/130b up to 5, then flits of 242 in 256 bytes.
    const double code = rate <= 5.0 ? 8.0 / 10.0 : rate < 64.0 ? 128.0 / 130.0 : 242.0 / 256.0;
    return sim::Bandwidth(rate * 1e9 * code * static_cast<double>(lanes) / 8.0);
}

std::string_view device_of_pci_id(std::string_view id) {
    constexpr std::pair<std::string_view, std::string_view> table[] = {
        {"10de:1db1", "V100-SXM2-16GB"}, {"10de:1df5", "V100-SXM2-16GB"},
        {"10de:1db5", "V100-SXM2-32GB"}, {"10de:1db8", "V100-SXM3-32GB"},
        {"10de:1db4", "V100-PCIe-16GB"}, {"10de:1df6", "V100S-PCIe-32GB"},
        {"10de:20b0", "A100-SXM-40GB"},  {"10de:20b2", "A100-SXM-80GB"},
        {"10de:20f1", "A100-PCIe-40GB"}, {"10de:20b5", "A100-PCIe-80GB"},
        {"10de:20f3", "A800-SXM-80GB"},  {"10de:2324", "H800-SXM-80GB"},
        {"10de:2330", "H100-SXM-80GB"},  {"10de:2331", "H100-PCIe-80GB"},
        {"10de:2321", "H100-NVL-94GB"},  {"10de:2335", "H200-SXM-141GB"},
        {"10de:2329", "H20-SXM-96GB"},   {"10de:2342", "GH200-96GB"},
        {"10de:2901", "B200-SXM-180GB"}, {"10de:2941", "GB200"},
        {"10de:26b9", "L40S"},           {"10de:27b8", "L4"},
        {"10de:2684", "RTX4090"},        {"10de:2b85", "RTX5090"},
        {"10de:2230", "RTXA6000"},       {"10de:1e04", "RTX2080Ti"},
        {"10de:1e07", "RTX2080Ti"},      {"1002:7408", "MI250X"},
        {"1002:740c", "MI250X"},         {"1002:74a1", "MI300X"},
        {"1002:74b5", "MI300X"},         {"1002:74a5", "MI325X"},
        {"1002:75a3", "MI355X"},
    };
    for (const auto& [known, name] : table) {
        if (known == id) {
            return name;
        }
    }
    return {};
}

} // namespace shardplan::plan
