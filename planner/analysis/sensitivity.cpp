#include "planner/analysis/sensitivity.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace shardplan::plan {
namespace {

bool begins(std::string_view text, std::string_view with) { return text.rfind(with, 0) == 0; }
bool ends(std::string_view text, std::string_view with) {
    return text.size() >= with.size() && text.substr(text.size() - with.size()) == with;
}

/// Inputs that say how the machine is cut up: a fixed layout cannot follow them.
bool is_structure(const std::string& path) {
    return ends(path, "].count") || ends(path, ".node.devices") || ends(path, ".domain_devices") ||
           ends(path, ".nodes_per_group") || begins(path, "job.constraints") ||
           begins(path, "cluster.devices") || begins(path, "stack.capabilities") ||
           ends(path, ".sigma");
}

double reserved_of(const sim::Estimate& estimate) {
    const auto deciding = static_cast<std::size_t>(estimate.deciding_class);
    return deciding < estimate.classes.size() ? estimate.classes[deciding].reserved.value.value()
                                              : 0.0;
}

void fill(SwingPoint& point, const sim::Estimate& e) {
    point.priced = true;
    point.step_s = e.time.total.value.value();
    point.tokens_per_s = e.tokens_per_second;
    point.reserved_bytes = reserved_of(e);
    point.margin_bytes = e.margin.value();
    point.money_per_million_tokens = e.money_per_million_tokens;
    point.kilowatt_hours_per_million_tokens = e.kilowatt_hours_per_million_tokens;
    point.verdict = e.verdict;
}

class Swinger {
public:
    Swinger(const sim::Scenario& scenario, const VaryRules& rules, std::string layout)
        : scenario_(scenario), rules_(rules), layout_(std::move(layout)) {}

    [[nodiscard]] SwingPoint at(const Leaf& leaf, double value) const {
        SwingPoint out;
        out.input = value;
        const std::array<FieldSetting, 1> settings = {{{leaf.path, setting_text(leaf, value)}}};
        auto varied = vary(scenario_, settings, rules_, leaf.path);
        if (!varied) {
            out.why = varied.error().what;
            return out;
        }
        const auto priced = price_layout(std::move(*varied), layout_, "layout");
        if (!priced || !priced->legal()) {
            out.why = priced ? priced->refusals.front().rule : priced.error().what;
            return out;
        }
        fill(out, priced->estimate);
        return out;
    }

    /// The value moved by a relative amount. Whole numbers move to one that the layout can run.
    [[nodiscard]] SwingPoint moved(const Leaf& leaf, double by) const {
        if (leaf.kind != LeafKind::integer) {
            return at(leaf, leaf.value * (1.0 + by));
        }
        const double sign = by < 0.0 ? -1.0 : 1.0;
        SwingPoint out;
        for (const double share : {std::abs(by), 1.0 / 16, 1.0 / 8, 0.25, 0.5, 1.0}) {
            const double step = std::max(std::round(leaf.value * share), 1.0);
            if (leaf.value + sign * step < 1.0) {
                continue;
            }
            out = at(leaf, leaf.value + sign * step);
            if (out.priced) {
                break;
            }
        }
        return out;
    }

private:
    const sim::Scenario& scenario_;
    const VaryRules& rules_;
    std::string layout_;
};

/// Slope on logarithmic scales between two points, or between one and the base.
double elasticity(double x0, double y0, double x1, double y1) {
    if (!(x0 > 0.0) || !(y0 > 0.0) || !(x1 > 0.0) || !(y1 > 0.0) || x0 == x1) {
        return 0.0;
    }
    return (std::log(y1) - std::log(y0)) / (std::log(x1) - std::log(x0));
}

void fill_elasticities(Swing& swing, SwingPoint now) {
    now.input = swing.input.value;
    const SwingPoint& a = swing.low.priced ? swing.low : now;
    const SwingPoint& b = swing.high.priced ? swing.high : now;
    swing.time_elasticity = elasticity(a.input, a.step_s, b.input, b.step_s);
    swing.speed_elasticity = elasticity(a.input, a.tokens_per_s, b.input, b.tokens_per_s);
    swing.memory_elasticity = elasticity(a.input, a.reserved_bytes, b.input, b.reserved_bytes);
}

} // namespace

bool SwingPoint::same_figures(const SwingPoint& other) const {
    return step_s == other.step_s && tokens_per_s == other.tokens_per_s &&
           reserved_bytes == other.reserved_bytes && margin_bytes == other.margin_bytes &&
           money_per_million_tokens == other.money_per_million_tokens &&
           kilowatt_hours_per_million_tokens == other.kilowatt_hours_per_million_tokens &&
           verdict == other.verdict;
}

std::vector<Leaf> swing_inputs(const sim::Scenario& scenario) {
    std::vector<Leaf> out;
    const auto resolved = sim::resolve(scenario);
    for (Leaf& leaf : leaves_of(scenario)) {
        const bool is_number = leaf.kind == LeafKind::integer || leaf.kind == LeafKind::number;
        const bool root = begins(leaf.path, "cluster.") || begins(leaf.path, "devices[") ||
                          begins(leaf.path, "fabrics[") || begins(leaf.path, "stack.") ||
                          begins(leaf.path, "job.");
        if (!is_number || !root || is_structure(leaf.path)) {
            continue;
        }
        if (leaf.path == "job.sequence.max" && leaf.value == 0.0 && resolved) {
            leaf.value = static_cast<double>(resolved->values.sequence);
        }
        if (leaf.value > 0.0) {
            out.push_back(std::move(leaf));
        }
    }
    return out;
}

sim::Result<Sensitivity> sensitivity(const sim::Scenario& scenario, const VaryRules& rules,
                                     const SensitivityRequest& request) {
    Sensitivity out;
    auto base = price_legal_layout(scenario, request.layout, "layout");
    if (!base) {
        return base.error();
    }
    out.base = std::move(*base);
    fill(out.now, out.base.estimate);
    const Swinger swinger(scenario, rules, request.layout);
    for (Leaf& leaf : swing_inputs(scenario)) {
        Swing swing;
        swing.low = swinger.moved(leaf, -request.by);
        swing.high = swinger.moved(leaf, request.by);
        if (leaf.range) {
            swing.range_low = swinger.at(leaf, leaf.range->lo);
            swing.range_high = swinger.at(leaf, leaf.range->hi);
        }
        swing.input = std::move(leaf);
        if (!swing.low.priced && !swing.high.priced) {
            out.not_varied.push_back(swing.input.path + ": " + swing.high.why);
            continue;
        }
        const auto moves = [&](const SwingPoint& point) {
            return point.priced && !point.same_figures(out.now);
        };
        if (!moves(swing.low) && !moves(swing.high)) {
            out.without_effect.push_back(swing.input.path);
            continue;
        }
        fill_elasticities(swing, out.now);
        out.swings.push_back(std::move(swing));
    }
    std::stable_sort(out.swings.begin(), out.swings.end(), [&](const Swing& a, const Swing& b) {
        const double x = std::abs(a.time_elasticity);
        const double y = std::abs(b.time_elasticity);
        return x != y ? x > y : std::abs(a.memory_elasticity) > std::abs(b.memory_elasticity);
    });
    return out;
}

} // namespace shardplan::plan
