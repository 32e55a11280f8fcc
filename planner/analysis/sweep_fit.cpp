#include "planner/analysis/sweep_fit.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "simulator/io/catalogue.hpp"

namespace shardplan::plan {
namespace {

using sim::Result;
using sim::Sweep;

std::string threads_of(const sim::SweepMachine& m) {
    return m.threads == 1 ? "one thread each" : fmt::format("{} threads each", m.threads);
}

/// "AMD EPYC, 2 cores, GCC 12.2.0 (SSE2), threads".
std::string fingerprint(const sim::SweepMachine& m) {
    return fmt::format("{}, {} cores, {} ({}), {}", m.cpu.empty() ? "unknown processor" : m.cpu,
                       m.cores, m.compiler, m.instructions, m.backend);
}

/// What was measured, and how steady the machine was.
std::string source_of(const sim::SweepMachine& m) {
    return fmt::format("sweep of {} with {} ranks, {}; spread of a repeated product {:.1f} %{}",
                       fingerprint(m), m.ranks, threads_of(m), 100.0 * m.probe_spread,
                       m.clock == "cpu" ? "; kernels by the time of their threads" : "");
}

/// The first built-in cluster of a device.
Result<std::optional<sim::Cluster>> cluster_of_device(const std::string& device) {
    const auto names = sim::list_clusters();
    if (!names) return names.error();
    for (const sim::CatalogueEntry& entry : *names) {
        auto cluster = sim::load_cluster(entry.name);
        if (!cluster) return cluster.error();
        for (const sim::NodeGroup& group : cluster->value.node_groups) {
            if (group.node.device == device) return std::optional(std::move(cluster->value));
        }
    }
    return std::optional<sim::Cluster>();
}

Result<sim::Device> device_of(const sim::SweepMachine& m,
                              const std::optional<sim::Cluster>& machine) {
    if (machine) {
        auto own = sim::find_device(machine->devices, m.device, "machine/device");
        if (own) return std::move(own->value);
    }
    const auto devices = sim::load_devices();
    if (!devices) return devices.error();
    auto found = sim::find_device(*devices, m.device, "machine/device");
    if (!found) return found.error();
    return std::move(found->value);
}

Result<SweepFit> fit_one(const Sweep& sweep, const std::optional<sim::Cluster>& machine) {
    SweepFit out;
    out.machine = sweep.machine;
    auto device = device_of(sweep.machine, machine);
    if (!device) return device.error();
    auto fit = fit_device(sweep, *device);
    if (!fit) return fit.error();
    out.device = std::move(*fit);
    if (sweep.collectives.empty()) return out;
    auto where =
        machine ? Result<std::optional<sim::Cluster>>(machine) : cluster_of_device(device->name);
    if (!where) return where.error();
    auto network = fit_fabrics(sweep.collectives, *where);
    if (!network) return network.error();
    out.network = std::move(*network);
    return out;
}

} // namespace

Result<std::vector<SweepFit>> fit_sweeps(const std::vector<Sweep>& sweeps,
                                         const std::optional<sim::Cluster>& machine) {
    std::vector<SweepFit> out;
    for (const Sweep& sweep : sweeps) {
        const sim::SweepMachine& m = sweep.machine;
        for (const SweepFit& other : out) {
            if (other.machine.ranks == m.ranks && other.machine.device == m.device) {
                return sim::Error{sim::ErrorCode::bad_input, fmt::format("{} ranks", m.ranks),
                                  "two sweeps were made with as many ranks", "give one of them"};
            }
        }
        auto fit = fit_one(sweep, machine);
        if (!fit) return fit.error();
        out.push_back(std::move(*fit));
    }
    return out;
}

sim::Calibration calibration_of(const std::vector<SweepFit>& fits, std::string tool,
                                std::string input) {
    sim::Calibration out;
    for (const SweepFit& fit : fits) {
        const std::string source = source_of(fit.machine);
        if (fit.machine.processors > 0) {
            sim::CalibrationEntry entry;
            entry.path = fit.machine.nodes > fit.machine.machines ? sim::cluster_processors_path
                                                                  : sim::node_processors_path;
            entry.subject = fit.device.device;
            entry.value = static_cast<double>(fit.machine.processors);
            entry.samples = 1;
            entry.source = source;
            entry.ranks = fit.machine.ranks;
            out.entries.push_back(std::move(entry));
        }
        for (const FittedRate& rate : fit.device.rates) {
            sim::CalibrationEntry entry;
            entry.path = rate.path;
            entry.subject = fit.device.device;
            entry.value = rate.after;
            entry.size_lo = rate.size_lo;
            entry.size_hi = rate.size_hi;
            entry.residual = rate.residual;
            entry.samples = rate.samples;
            entry.source = source;
            entry.ranks = fit.machine.ranks;
            out.entries.push_back(std::move(entry));
        }
        for (const FabricFit& network : fit.network.fits) {
            for (sim::CalibrationEntry entry : network.calibration.entries) {
                entry.source = source;
                entry.ranks = fit.machine.ranks;
                out.entries.push_back(std::move(entry));
            }
        }
    }
    if (!fits.empty()) {
        out.machine = fingerprint(fits.front().machine);
        out.date = fits.front().machine.date;
    }
    out.id = "sweep";
    out.tool = std::move(tool);
    out.input = std::move(input);
    return out;
}

} // namespace shardplan::plan
