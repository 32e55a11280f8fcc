#include "simulator/estimate/band.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "simulator/spec/calibration_subject.hpp"

namespace shardplan::sim {

namespace {

constexpr std::array<TimeKind, 5> communication = {
    TimeKind::tp_comm, TimeKind::cp_comm, TimeKind::ep_comm, TimeKind::pp_comm, TimeKind::dp_comm};

double in_quadrature(std::initializer_list<double> spreads) {
    double sum = 0.0;
    for (const double spread : spreads)
        sum += spread * spread;
    return std::sqrt(sum);
}

/// Attention follows the kernel's efficiency in the pass that takes longer by a factor of two and
/// more, the backward one; scores written out are matrix products.
double attention_spread(const ComputeProfile& compute, const Resolved& resolved, double products) {
    const bool writes_scores = resolved.attention == AttentionImpl::unfused ||
                               resolved.attention == AttentionImpl::fused_softmax;
    return writes_scores ? products
                         : rate_of(compute, resolved.attention).backward_efficiency.sigma;
}

double matrix_spread(const ComputeProfile& compute, const StackTime& time,
                     const Resolved& resolved) {
    const bool narrow = bytes_per_element(resolved.compute) < bytes_per_element(Dtype::bf16);
    const bool by_row = narrow && resolved.recipe == Fp8Recipe::rowwise;
    const Constant& reached = narrow ? compute.narrow_matrix_efficiency : compute.matrix_efficiency;
    return in_quadrature(
        {reached.sigma, time.gemm_efficiency.sigma, by_row ? time.rowwise_efficiency.sigma : 0.0});
}

} // namespace

ErrorClass class_of(TimeKind kind) {
    switch (kind) {
        case TimeKind::gemm:
        case TimeKind::attention:
        case TimeKind::elementwise:
        case TimeKind::recompute:
        case TimeKind::optimizer:
        case TimeKind::bubble:
            break;
        case TimeKind::launch:
        case TimeKind::overhead:
            return ErrorClass::launch;
        case TimeKind::tp_comm:
        case TimeKind::cp_comm:
        case TimeKind::ep_comm:
        case TimeKind::pp_comm:
        case TimeKind::dp_comm:
        case TimeKind::offload:
            return ErrorClass::communication;
    }
    return ErrorClass::compute;
}

TimeSpread time_spread(const Scenario& scenario, const Resolved& resolved, const Device& device) {
    const StackTime& time = scenario.stack.time;
    TimeSpread out;
    const auto exposed = [&](TimeKind kind) -> double& {
        return out.exposed[static_cast<std::size_t>(kind)];
    };
    const auto hidden = [&](TimeKind kind) -> double& {
        return out.hidden[static_cast<std::size_t>(kind)];
    };
    out.software = time.sigma.value;
    const double products = matrix_spread(device.compute, time, resolved);
    exposed(TimeKind::gemm) = products;
    exposed(TimeKind::attention) = in_quadrature(
        {attention_spread(device.compute, resolved, products), time.attention_efficiency.sigma});
    const double memory = in_quadrature(
        {device.memory_bandwidth.measured ? 0.0 : device.compute.memory_efficiency.sigma,
         time.memory_efficiency.sigma});
    const bool compiled = has_feature(scenario.stack, Feature::compile);
    exposed(TimeKind::elementwise) =
        in_quadrature({memory, compiled ? 0.0 : time.elementwise_passes.sigma});
    exposed(TimeKind::optimizer) = memory;
    exposed(TimeKind::launch) = in_quadrature({time.launch.sigma, time.kernels_per_block.sigma});
    exposed(TimeKind::overhead) = time.step_overhead.sigma;
    // links to the host have no profile: as uncertain as the least known links of the cluster
    for (const FabricProfile& fabric : scenario.fabrics) {
        exposed(TimeKind::offload) = std::max(exposed(TimeKind::offload), spread_of(fabric, false));
    }
    // updates on the host are told apart from copies nowhere: the wider of the two
    exposed(TimeKind::offload) =
        std::max(exposed(TimeKind::offload), time.host_update_efficiency.sigma);
    // exposed = all x (1 - f + f x slowdown), so an error of f moves hidden seconds
    const double kept = 1.0 - time.overlap_slowdown.value;
    const double slowed = time.overlap_slowdown.value * time.overlap_slowdown.sigma;
    const auto hides = [&](TimeKind kind, const Constant& fraction) {
        hidden(kind) = in_quadrature({kept * fraction.sigma, slowed});
    };
    hides(TimeKind::tp_comm, time.tp_overlap);
    hides(TimeKind::cp_comm, time.cp_overlap);
    hides(TimeKind::pp_comm, time.pp_overlap);
    hides(TimeKind::dp_comm, time.dp_overlap);
    return out;
}

LinkSpread link_spread(const GroupPaths& paths) {
    constexpr std::array<Group, 5> groups = {Group::tp, Group::cp, Group::ep, Group::pp,
                                             Group::dp_cp};
    LinkSpread out{};
    for (std::size_t i = 0; i < groups.size(); ++i) {
        for (const PathLevel& level : path_in(paths, groups[i]).levels) {
            out[i] = std::max(out[i], level.spread);
        }
    }
    return out;
}

TimeErrors time_errors(const TimeSpread& spread, const LinkSpread& links,
                       const SecondsByKind& exposed, const SecondsByKind& hidden, Seconds total) {
    const auto seconds = [&](TimeKind kind) { return exposed[kind].value(); };
    const auto error = [&](TimeKind kind) {
        return seconds(kind) * spread.exposed[static_cast<std::size_t>(kind)];
    };
    const double base = total.value() - seconds(TimeKind::bubble);
    TimeErrors out;
    if (base <= 0.0) return out;
    const double passes =
        seconds(TimeKind::gemm) + seconds(TimeKind::attention) + seconds(TimeKind::elementwise);
    double constants =
        error(TimeKind::gemm) + error(TimeKind::attention) + error(TimeKind::elementwise);
    const double again = seconds(TimeKind::recompute);
    // what is recomputed is a part of the passes
    if (passes > 0.0) constants *= 1.0 + again / passes;
    constants += error(TimeKind::optimizer);
    const double unseen = spread.software * (passes + again + seconds(TimeKind::optimizer));
    double wire = error(TimeKind::offload);
    double overlap = 0.0;
    for (std::size_t i = 0; i < communication.size(); ++i) {
        const TimeKind kind = communication[i];
        wire += seconds(kind) * links[i];
        overlap += hidden[kind].value() * spread.hidden[static_cast<std::size_t>(kind)];
    }
    const double launch = error(TimeKind::launch) + error(TimeKind::overhead);
    const double scale = total.value() / base;
    const double compute2 = constants * constants + unseen * unseen;
    const double communication2 = wire * wire + overlap * overlap;
    out.compute = scale * std::sqrt(compute2);
    out.communication = scale * std::sqrt(communication2);
    out.launch = scale * launch;
    out.step = scale * std::sqrt(compute2 + communication2 + launch * launch);
    return out;
}

std::vector<std::string> calibrated_constants(const Scenario& scenario) {
    std::vector<std::string> out;
    for (const CalibrationEntry& entry : scenario.calibration.entries) {
        // what was fitted to published runs is not a measurement of this machine
        if (entry.origin == Origin::own_measurement && holds_for(entry, scenario)) {
            out.push_back(entry.path);
        }
    }
    return out;
}

} // namespace shardplan::sim
