#include "planner/analysis/measured.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "simulator/spec/placement.hpp"

namespace shardplan::plan {
namespace {

using sim::TensorKind;
using sim::TimeKind;

/// Kinds of time that a run can tell apart, each with what an estimate calls it.
struct TimeRow {
    const char* name;
    std::vector<TimeKind> kinds;
};
const std::vector<TimeRow>& time_rows() {
    static const std::vector<TimeRow> rows = {
        {"passes",
         {TimeKind::gemm, TimeKind::attention, TimeKind::elementwise, TimeKind::launch,
          TimeKind::recompute}},
        {"optimizer", {TimeKind::optimizer}},
        {"tp comm", {TimeKind::tp_comm}},
        {"cp comm", {TimeKind::cp_comm}},
        {"ep comm", {TimeKind::ep_comm}},
        {"dp comm", {TimeKind::dp_comm}},
        {"bubble and pp comm", {TimeKind::bubble, TimeKind::pp_comm}},
        {"offload", {TimeKind::offload}},
        {"overhead", {TimeKind::overhead}},
    };
    return rows;
}

double sum_of(const sim::SecondsByKind& seconds, const std::vector<TimeKind>& kinds) {
    double sum = 0.0;
    for (const TimeKind kind : kinds) {
        sum += seconds[kind].value();
    }
    return sum;
}

/// The rank that is busy longest, as the estimate's is.
std::size_t busiest(const sim::Measurement& m) {
    const auto busy = [](const sim::MeasuredRank& r) {
        return sum_of(r.seconds, {TimeKind::gemm, TimeKind::optimizer});
    };
    return static_cast<std::size_t>(
        std::max_element(m.per_rank.begin(), m.per_rank.end(),
                         [&](const auto& a, const auto& b) { return busy(a) < busy(b); }) -
        m.per_rank.begin());
}

std::vector<MeasuredTerm> time_terms(const sim::SecondsByKind& predicted,
                                     const sim::SecondsByKind& measured) {
    std::vector<MeasuredTerm> out;
    for (const TimeRow& row : time_rows()) {
        MeasuredTerm term{row.name, sum_of(predicted, row.kinds), sum_of(measured, row.kinds)};
        if (term.predicted > 0.0 || *term.measured > 0.0) out.push_back(std::move(term));
    }
    return out;
}

/// Kinds beside the tensors of a run, which its allocator does not see.
bool is_outside(TensorKind kind) {
    return kind == TensorKind::workspace || kind == TensorKind::allocator_slack ||
           kind == TensorKind::communicators || kind == TensorKind::context;
}

std::vector<MeasuredTerm> memory_terms(const sim::BytesByKind& predicted,
                                       const sim::BytesByKind& measured) {
    std::vector<MeasuredTerm> out;
    for (std::size_t k = 0; k < sim::tensor_kind_count; ++k) {
        const auto kind = static_cast<TensorKind>(k);
        MeasuredTerm term{std::string(name_of(kind)), predicted[kind].value(),
                          measured[kind].value()};
        std::replace(term.name.begin(), term.name.end(), '_', ' ');
        if (term.predicted == 0.0 && *term.measured == 0.0) continue;
        if (is_outside(kind) && *term.measured == 0.0) term.measured.reset();
        out.push_back(std::move(term));
    }
    return out;
}

/// Ranks of a class: those of its stage, less those that lie on other node groups.
std::vector<std::size_t> ranks_of(const sim::Scenario& scenario, const sim::Layout& layout,
                                  const sim::ClassMemory& c, std::size_t ranks) {
    std::vector<std::size_t> out;
    std::int64_t first = 0; // device of the node group
    for (std::int64_t g = 0; g < c.node_group; ++g) {
        const sim::NodeGroup& group = scenario.cluster.node_groups[static_cast<std::size_t>(g)];
        first += group.count * group.node.devices;
    }
    const sim::NodeGroup& own =
        scenario.cluster.node_groups[static_cast<std::size_t>(c.node_group)];
    const std::int64_t end = first + own.count * own.node.devices;
    for (std::size_t r = 0; r < ranks; ++r) {
        const auto rank = static_cast<std::int64_t>(r);
        if (rank < first || rank >= end) continue;
        if (sim::coordinates_of(layout, rank).pp == c.stage) out.push_back(r);
    }
    return out;
}

/// Phases of a step that were measured.
std::vector<MeasuredTerm> phase_terms(const sim::ClassMemory& c, const sim::MeasuredRank& rank) {
    std::vector<MeasuredTerm> out;
    for (const sim::Phase phase :
         {sim::Phase::forward, sim::Phase::loss, sim::Phase::backward, sim::Phase::step}) {
        const auto measured = rank.phases.find(std::string(name_of(phase)));
        if (measured == rank.phases.end()) continue;
        out.push_back({std::string(name_of(phase)),
                       c.phase_peaks[static_cast<std::size_t>(phase)].value(),
                       measured->second.total().value()});
    }
    return out;
}

std::vector<MeasuredMemory> memory_of(const sim::Scenario& scenario, const sim::Layout& layout,
                                      const sim::Estimate& estimate, const sim::Measurement& m) {
    std::vector<MeasuredMemory> out;
    for (const sim::ClassMemory& c : estimate.classes) {
        const auto ranks = ranks_of(scenario, layout, c, m.per_rank.size());
        if (ranks.empty()) continue;
        const auto fullest =
            *std::max_element(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
                return m.per_rank[a].at_peak.total() < m.per_rank[b].at_peak.total();
            });
        const sim::MeasuredRank& rank = m.per_rank[fullest];
        MeasuredMemory row;
        row.stage = c.stage;
        row.rank = rank.rank;
        row.held = memory_terms(c.persistent, rank.held);
        row.at_peak = memory_terms(c.at_peak, rank.at_peak);
        row.allocated = {"allocated", c.allocated.value.value(), rank.at_peak.total().value()};
        row.phases = phase_terms(c, rank);
        row.predicted_phase = c.peak_phase;
        row.measured_phase = rank.peak_phase;
        out.push_back(std::move(row));
    }
    return out;
}

/// The dimension that a group's bytes are counted for.
std::string dimension_of(const std::string& group) {
    if (group == "ep" || group == "etp") return "ep";
    return group == "tp" || group == "cp" || group == "pp" ? group : "dp";
}

std::vector<MeasuredTerm> sent_terms(const sim::Estimate& estimate, const sim::Measurement& m) {
    std::vector<MeasuredTerm> out;
    for (const std::string dim : {"tp", "cp", "ep", "pp", "dp"}) {
        MeasuredTerm term{dim, most_sent(estimate.links, dim).value(), 0.0};
        for (const sim::MeasuredRank& rank : m.per_rank) {
            double bytes = 0.0;
            for (const auto& [group, sent] : rank.sent) {
                bytes += dimension_of(group) == dim ? sent.value() : 0.0;
            }
            term.measured = std::max(*term.measured, bytes);
        }
        if (term.predicted > 0.0 || *term.measured > 0.0) out.push_back(std::move(term));
    }
    return out;
}

std::optional<FurthestTerm> furthest(const std::vector<MeasuredTerm>& terms, double whole) {
    const MeasuredTerm* worst = nullptr;
    for (const MeasuredTerm& term : terms) {
        if (!term.known()) continue;
        if (worst == nullptr || std::abs(term.off()) > std::abs(worst->off())) worst = &term;
    }
    if (worst == nullptr || worst->off() == 0.0 || whole <= 0.0) return std::nullopt;
    return FurthestTerm{worst->name, worst->predicted, *worst->measured, worst->off() / whole};
}

std::optional<FurthestTerm> furthest_memory(const std::vector<MeasuredMemory>& classes) {
    std::optional<FurthestTerm> out;
    for (const MeasuredMemory& c : classes) {
        auto one = furthest(c.at_peak, c.allocated.measured.value_or(0.0));
        if (!one || (out && std::abs(one->share) <= std::abs(out->share))) continue;
        if (classes.size() > 1) one->name += fmt::format(" of stage {}", c.stage);
        out = std::move(one);
    }
    return out;
}

double sum_of_measured(const std::vector<MeasuredTerm>& terms) {
    double sum = 0.0;
    for (const MeasuredTerm& term : terms) {
        sum += term.measured.value_or(0.0);
    }
    return sum;
}

/// 90th less 10th percentile of the steps that count, over their median.
double spread_of(const sim::Measurement& m, double median) {
    std::vector<double> times;
    for (auto i = static_cast<std::size_t>(m.settling); i < m.steps.size(); ++i) {
        times.push_back(m.steps[i].seconds.value());
    }
    std::sort(times.begin(), times.end());
    const auto at = [&](std::size_t tenths) { return times[(times.size() - 1) * tenths / 10]; };
    return median > 0.0 ? (at(9) - at(1)) / median : 0.0;
}

} // namespace

sim::Result<MeasuredComparison> compare_measurement(const sim::Evaluator& evaluator,
                                                    const sim::Layout& layout,
                                                    const sim::Measurement& m) {
    if (const std::int64_t ranks = sim::rank_count(layout); ranks != m.ranks) {
        return sim::Error{sim::ErrorCode::bad_input, "measurement",
                          fmt::format("{} ranks took part, and the layout has {}", m.ranks, ranks),
                          "name the plan that was run"};
    }
    const auto median = sim::median_step(m);
    if (!median) {
        return sim::Error{sim::ErrorCode::bad_input, "measurement", "it holds no step that counts",
                          "run two steps or more"};
    }
    sim::Workspace workspace;
    sim::Estimate estimate;
    evaluator.evaluate(layout, workspace, estimate);
    MeasuredComparison out;
    out.predicted = estimate.time.total;
    out.measured = m.steps[*median].seconds;
    out.spread = spread_of(m, out.measured.value());
    out.steps = static_cast<std::int64_t>(m.steps.size()) - m.settling;
    const std::size_t rank = busiest(m);
    out.time_rank = m.per_rank[rank].rank;
    out.time = time_terms(estimate.time.exposed, m.per_rank[rank].seconds);
    out.memory = memory_of(evaluator.scenario(), layout, estimate, m);
    out.sent = sent_terms(estimate, m);
    out.furthest_time = furthest(out.time, out.measured.value());
    out.furthest_memory = furthest_memory(out.memory);
    out.furthest_sent = furthest(out.sent, sum_of_measured(out.sent));
    return out;
}

} // namespace shardplan::plan
