#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "simulator/compute/op_time.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

std::string in_words(std::string_view name) {
    std::string text(name);
    std::replace(text.begin(), text.end(), '_', ' ');
    return text;
}

} // namespace

std::string describe_verdict(const Estimate& e) {
    if (e.classes.empty()) return std::string(name_of(e.verdict));
    const ClassMemory& c = e.classes[static_cast<std::size_t>(e.deciding_class)];
    const std::string margin = to_text(Bytes(std::abs(e.margin.value())));
    std::string head;
    switch (e.verdict) {
        case Verdict::fits:
            head = fmt::format("fits with {} to spare", margin);
            break;
        case Verdict::borderline:
            head = e.margin.value() >= 0.0
                       ? fmt::format("borderline: {} to spare is within the error", margin)
                       : fmt::format("borderline: {} too much is within the error", margin);
            break;
        case Verdict::does_not_fit:
            head = fmt::format("does not fit: {} too much", margin);
            break;
    }
    const std::string group =
        spans_groups(e.classes) ? fmt::format(" of node group {}", c.node_group) : "";
    return fmt::format("{}; {} of {} usable on stage {}{} in the {} phase, most of it {} ({})",
                       head, to_text(c.reserved.value), to_text(c.usable), c.stage, group,
                       name_of(c.peak_phase), in_words(name_of(e.deciding)),
                       to_text(c.at_peak[e.deciding]));
}

namespace {

/// Shares of the step above which a user should hear of it.
constexpr double much_communication = 0.15;
constexpr double much_launching = 0.15;
constexpr double doubtful_mfu = 0.75;

void add_time_warnings(const Estimate& e, std::vector<Warning>& out) {
    const double total = e.time.total.value.value();
    if (total <= 0.0) return;
    if (e.mfu > doubtful_mfu) {
        out.push_back({"mfu-high", fmt::format("{:.0f} % of the {} peak is more than real runs "
                                               "reach; check the device and the stack",
                                               100.0 * e.mfu, e.peak_name)});
    }
    double exposed = 0.0;
    TimeKind largest = TimeKind::tp_comm;
    for (const TimeKind kind : {TimeKind::tp_comm, TimeKind::cp_comm, TimeKind::ep_comm,
                                TimeKind::pp_comm, TimeKind::dp_comm}) {
        exposed += e.time.exposed[kind].value();
        if (e.time.exposed[kind] > e.time.exposed[largest]) largest = kind;
    }
    if (exposed > much_communication * total) {
        const std::string_view name = name_of(largest);
        out.push_back(
            {"exposed-communication",
             fmt::format("{:.0f} % of the step waits for communication, {:.0f} % for that "
                         "of {}",
                         100.0 * exposed / total, 100.0 * e.time.exposed[largest].value() / total,
                         name.substr(0, name.find('_')))});
    }
    const double launch = e.time.exposed[TimeKind::launch].value();
    if (launch > much_launching * total) {
        out.push_back(
            {"launch-bound", fmt::format("{:.0f} % of the step waits for kernel launches; a larger "
                                         "micro-batch or CUDA graphs would use it",
                                         100.0 * launch / total)});
    }
}

/// People compare MFU over formats; one of a narrow peak looks low beside one of a 16-bit peak.
void add_peak_warning(const Scenario& scenario, const Resolved& resolved, const Estimate& e,
                      std::vector<Warning>& out) {
    if (bytes_per_element(resolved.compute) >= bytes_per_element(Dtype::bf16)) return;
    const auto slowest = [&](Dtype format) {
        const Device* found = nullptr;
        for (const Device& device : scenario.devices) {
            if (found == nullptr || peak_of(device, format) < peak_of(*found, format)) {
                found = &device;
            }
        }
        return found;
    };
    const Device* device = slowest(resolved.compute);
    if (device == nullptr) return;
    const double own = peak_of(*device, resolved.compute);
    const double half = peak_of(*device, Dtype::bf16);
    if (half <= 0.0 || own <= half) return;
    out.push_back({"mfu-peak",
                   fmt::format("MFU is of the dense {} peak of {}, {}; of its 16-bit peak, {}, it "
                               "would be {:.1f} %",
                               e.peak_name, device->name, to_text(FlopRate(own)),
                               to_text(FlopRate(half)), 100.0 * e.mfu * own / half)});
}

/// Host memory of a node against what its ranks need together, phase by phase.
void add_host_warning(const Cluster& cluster, const Estimate& e, std::vector<Warning>& out) {
    double worst = 0.0;
    Warning warning;
    for (const ClassMemory& c : e.classes) {
        const NodeTemplate& node = cluster.node_groups[static_cast<std::size_t>(c.node_group)].node;
        const auto ranks = static_cast<double>(node.devices);
        const auto consider = [&](Bytes needed, Bytes has, std::string_view what) {
            if (has.value() > 0.0 && needed > has && needed / has > worst) {
                worst = needed / has;
                warning = {"host-memory",
                           fmt::format("the {} ranks of a node need {} of {} and it has {}",
                                       node.devices, to_text(needed), what, to_text(has))};
            }
        };
        for (const Phase phase : {Phase::load, Phase::step, Phase::save}) {
            consider(c.host_phases[static_cast<std::size_t>(phase)] * ranks, node.host.memory,
                     fmt::format("host memory in the {} phase", name_of(phase)));
        }
        consider(c.nvme * ranks, node.host.nvme, "local storage");
    }
    if (worst > 0.0) {
        out.push_back(std::move(warning));
    }
}

} // namespace

void Evaluator::annotate(const Layout& layout, Estimate& out) const {
    out.verdict_text = describe_verdict(out);
    out.warnings = layout_warnings(scenario(), resolved(), layout, tables_);
    add_time_warnings(out, out.warnings);
    add_peak_warning(scenario(), resolved(), out, out.warnings);
    add_host_warning(scenario().cluster, out, out.warnings);
    if (layout.offload_tier != OffloadTier::none) {
        const auto any_host = [&](const auto& lacks) {
            return std::any_of(scenario().cluster.node_groups.begin(),
                               scenario().cluster.node_groups.end(),
                               [&](const NodeGroup& group) { return lacks(group.node.host); });
        };
        if (any_host(
                [](const Host& host) { return usable(host.pcie_per_device).value() <= 0.0; })) {
            out.warnings.push_back({"offload-untimed",
                                    "the cluster does not state the bandwidth between device and "
                                    "host, so offloading costs no time here"});
        } else if (layout.offload_optimizer > 0 && any_host([](const Host& host) {
                       return host.memory_bandwidth.value() <= 0.0;
                   })) {
            out.warnings.push_back({"offload-untimed",
                                    "the cluster does not state the bandwidth of host memory, so "
                                    "the update on the host costs no time here"});
        }
    }
}

} // namespace shardplan::sim
