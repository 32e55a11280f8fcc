#include "planner/analysis/sweep.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/search/plan.hpp"

namespace shardplan::plan {
namespace {

PointKind kind_of(sim::Verdict verdict) {
    switch (verdict) {
        case sim::Verdict::fits:
            return PointKind::fits;
        case sim::Verdict::borderline:
            return PointKind::borderline;
        case sim::Verdict::does_not_fit:
            break;
    }
    return PointKind::does_not_fit;
}

void fill(SweepPoint& point, const sim::Estimate& e) {
    point.kind = kind_of(e.verdict);
    point.why = e.verdict_text;
    point.priced = true;
    point.step_s = e.time.total.value.value();
    point.step_low_s = e.time.total.low.value();
    point.step_high_s = e.time.total.high.value();
    point.tokens_per_s = e.tokens_per_second;
    point.tokens_per_s_per_device = e.tokens_per_second_per_device;
    point.mfu = e.mfu;
    point.communication = communication_share(e.time);
    point.bubble =
        point.step_s > 0.0 ? e.time.exposed[sim::TimeKind::bubble].value() / point.step_s : 0.0;
    const auto deciding = static_cast<std::size_t>(e.deciding_class);
    if (deciding < e.classes.size()) {
        point.reserved_bytes = e.classes[deciding].reserved.value.value();
        point.usable_bytes = e.classes[deciding].usable.value();
    }
    point.margin_bytes = e.margin.value();
    point.money_per_million_tokens = e.money_per_million_tokens;
    point.kilowatt_hours_per_million_tokens = e.kilowatt_hours_per_million_tokens;
}

void fixed_layout(SweepPoint& point, sim::Scenario scenario, const std::string& layout) {
    auto priced = price_layout(std::move(scenario), layout, "layout");
    if (!priced) {
        point.kind = PointKind::not_legal;
        point.why = priced.error().what;
        return;
    }
    point.layout = priced->layout;
    if (!priced->legal()) {
        point.kind = PointKind::not_legal;
        point.why = priced->refusals.front().rule;
        return;
    }
    fill(point, priced->estimate);
}

void best_layout(SweepPoint& point, sim::Scenario scenario, sim::Objective objective) {
    const auto evaluator = sim::Evaluator::make(std::move(scenario));
    if (!evaluator) {
        point.kind = PointKind::no_input;
        point.why = evaluator.error().what;
        return;
    }
    SearchOptions search;
    search.top = 1;
    search.objective = objective;
    const PlanSet set = plan(*evaluator, search);
    if (set.plans.empty()) {
        point.kind = PointKind::no_plan;
        point.why =
            set.counts.legal == 0
                ? "no layout is legal"
                : fmt::format(
                      "none of {} legal layouts fits{}", sim::group_digits(set.counts.legal),
                      set.closest.empty()
                          ? ""
                          : "; the closest lacks " + sim::to_text(set.closest.front().shortfall));
        return;
    }
    point.layout = set.plans.front().text;
    sim::Workspace workspace;
    fill(point, evaluator->estimate(set.plans.front().layout, workspace));
}

void price_point(SweepPoint& point, const sim::Scenario& base, const std::vector<SweepAxis>& axes,
                 const VaryRules& rules, const SweepRequest& options) {
    std::vector<FieldSetting> settings;
    for (std::size_t k = 0; k < axes.size(); ++k) {
        settings.push_back({axes[k].path, axes[k].values[point.at[k]]});
    }
    auto scenario = vary(base, settings, rules, "--over");
    if (!scenario) {
        point.kind = PointKind::no_input;
        point.why = scenario.error().what;
        return;
    }
    point.devices = sim::device_count(scenario->cluster);
    if (const auto resolved = sim::resolve(*scenario)) {
        point.sequence = resolved->values.sequence;
        point.global_batch = resolved->values.global_batch;
    }
    if (options.layout.empty()) {
        best_layout(point, std::move(*scenario), options.objective);
    } else {
        fixed_layout(point, std::move(*scenario), options.layout);
    }
}

std::string csv_field(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
        return std::string(text);
    }
    std::string out = "\"";
    for (const char c : text) {
        out += c;
        if (c == '"') {
            out += '"';
        }
    }
    return out + "\"";
}

} // namespace

std::string_view name_of(PointKind kind) {
    constexpr std::array<std::string_view, 6> names = {"fits",      "borderline", "does not fit",
                                                       "not legal", "no plan",    "no input"};
    return names[static_cast<std::size_t>(kind)];
}

Sweep sweep(const sim::Scenario& base, std::vector<SweepAxis> axes, const VaryRules& rules,
            const SweepRequest& options) {
    Sweep out;
    out.axes = std::move(axes);
    out.layout = options.layout;
    out.title = fmt::format("{} on {}, {}", base.model.name, base.cluster.name, base.stack.name);
    std::size_t count = 1;
    for (const SweepAxis& axis : out.axes) {
        count *= axis.values.size();
    }
    for (std::size_t i = 0; i < count; ++i) {
        SweepPoint point;
        std::size_t rest = i;
        point.at.resize(out.axes.size());
        for (std::size_t k = out.axes.size(); k-- > 0;) {
            point.at[k] = rest % out.axes[k].values.size();
            rest /= out.axes[k].values.size();
        }
        price_point(point, base, out.axes, rules, options);
        out.points.push_back(std::move(point));
        if (options.progress != nullptr) {
            const std::string message = fmt::format("{} of {} points", i + 1, count);
            options.progress->report(
                {static_cast<double>(i + 1) / static_cast<double>(count), "sweep", message});
        }
    }
    return out;
}

std::string sweep_csv(const Sweep& sweep) {
    std::string out;
    for (const SweepAxis& axis : sweep.axes) {
        out += csv_field(axis.path) + ",";
    }
    out +=
        "verdict,layout,devices,sequence,global_batch,step_s,step_low_s,step_high_s,tokens_per_s,"
        "tokens_per_s_per_device,mfu,communication_share,bubble_share,reserved_bytes,usable_bytes,"
        "margin_bytes,money_per_million_tokens,kilowatt_hours_per_million_tokens,note\r\n";
    for (const SweepPoint& p : sweep.points) {
        for (std::size_t k = 0; k < sweep.axes.size(); ++k) {
            out += csv_field(sweep.axes[k].values[p.at[k]]) + ",";
        }
        out += fmt::format("{},{},{},{},{}", name_of(p.kind), csv_field(p.layout), p.devices,
                           p.sequence, p.global_batch);
        const std::array<double, 13> figures = {p.step_s,
                                                p.step_low_s,
                                                p.step_high_s,
                                                p.tokens_per_s,
                                                p.tokens_per_s_per_device,
                                                p.mfu,
                                                p.communication,
                                                p.bubble,
                                                p.reserved_bytes,
                                                p.usable_bytes,
                                                p.margin_bytes,
                                                p.money_per_million_tokens,
                                                p.kilowatt_hours_per_million_tokens};
        for (const double figure : figures) {
            out += p.priced ? fmt::format(",{}", figure) : ",";
        }
        out += "," + csv_field(p.why) + "\r\n";
    }
    return out;
}

} // namespace shardplan::plan
