#include "planner/analysis/what_if.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "simulator/spec/layout_terms.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

constexpr std::string_view whole_layout = "layout";

sim::Error bad(std::string_view where, std::string what, std::string hint) {
    return {sim::ErrorCode::bad_input, std::string(where), std::move(what), std::move(hint)};
}

/// Changes by what they are of.
struct Sorted {
    std::vector<FieldSetting> inputs;
    std::vector<std::string> terms;
    std::string layout; ///< in the place of the old one; empty: the old one
};

sim::Result<Sorted> sort(std::span<const std::string> changes, std::string_view where) {
    Sorted out;
    for (const std::string& text : changes) {
        const std::size_t equals = text.find('=');
        const std::string path = text.substr(0, equals);
        if (path != "stack" && sim::begins_a_term(text)) {
            out.terms.push_back(text);
            continue;
        }
        if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
            return bad(where,
                       sim::in_quotes(text) + " is no input with a value and no term of a layout",
                       "write for example \"job.sequence.max=8192\" or \"stages=11-12-12-11\"");
        }
        if (path == whole_layout) {
            if (!out.layout.empty()) {
                return bad(where, "the layout is changed twice", "name one layout");
            }
            out.layout = text.substr(equals + 1);
            continue;
        }
        for (const FieldSetting& earlier : out.inputs) {
            if (earlier.path == path) {
                return bad(where, path + " is changed twice", "name one value");
            }
        }
        out.inputs.push_back({path, text.substr(equals + 1)});
    }
    return out;
}

/// Puts terms in the place of those that set the same. `other_devices`: their number changed.
sim::Status change_terms(const Sorted& changes, bool other_devices, std::string_view where,
                         std::string& layout) {
    std::vector<std::string> slots;
    for (const std::string& term : changes.terms) {
        const auto slot = sim::slot_of_term(term, where);
        if (!slot) {
            return slot.error();
        }
        if (std::find(slots.begin(), slots.end(), *slot) != slots.end()) {
            return bad(where, *slot + " is changed twice", "name one value");
        }
        slots.push_back(*slot);
    }
    constexpr std::array<std::string_view, 3> sizes = {"tp", "cp", "pp"};
    const bool resized = std::any_of(sizes.begin(), sizes.end(), [&](std::string_view size) {
        return std::find(slots.begin(), slots.end(), size) != slots.end();
    });
    std::vector<std::string> gone = slots;
    if ((resized || other_devices) && changes.layout.empty()) {
        gone.emplace_back("dp");
    }
    for (const std::string& slot : gone) {
        auto rest = sim::without_slot(layout, slot, where);
        if (!rest) {
            return rest.error();
        }
        layout = std::move(*rest);
    }
    for (const std::string& term : changes.terms) {
        layout += layout.empty() ? "" : ",";
        layout += term;
    }
    return sim::Done{};
}

/// What an average stage does with a step. The rest of a stage that is done before the others and
/// has no step of its own to begin counts as bubble.
struct MeanStage {
    double alone = 0.0;
    double slowed = 0.0;
    double overhead = 0.0;
    sim::SecondsByKind waits;
};

MeanStage mean_stage(const sim::Simulation& s) {
    MeanStage out;
    out.overhead = s.overhead.value();
    if (s.stages.empty()) {
        return out;
    }
    const double share = 1.0 / static_cast<double>(s.stages.size());
    double all = out.overhead;
    for (const sim::StageActivity& stage : s.stages) {
        out.alone += share * (stage.busy - stage.slowed).value();
        out.slowed += share * stage.slowed.value();
        for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
            out.waits.amounts[k] += share * stage.exposed.amounts[k];
        }
    }
    all += out.alone + out.slowed + out.waits.total().value();
    const double rest = s.step.value() - all;
    constexpr double rounding = 1e-9;
    if (rest > rounding * s.step.value()) {
        out.waits[sim::TimeKind::bubble] += sim::Seconds(rest);
    }
    return out;
}

/// By name, in the order of `a`, then of what only `b` has.
std::vector<DiffTerm> side_by_side(const std::vector<PathShare>& a,
                                   const std::vector<PathShare>& b) {
    std::vector<DiffTerm> out;
    for (const PathShare& share : a) {
        out.push_back({share.name, share.seconds.value(), 0.0});
    }
    for (const PathShare& share : b) {
        const auto same = std::find_if(out.begin(), out.end(),
                                       [&](const DiffTerm& t) { return t.name == share.name; });
        if (same == out.end()) {
            out.push_back({share.name, 0.0, share.seconds.value()});
        } else {
            same->b = share.seconds.value();
        }
    }
    largest_first(out);
    return out;
}

double largest_peak(const sim::Simulation& s) {
    double most = 0.0;
    for (const sim::MemoryPeak& peak : s.peaks) {
        most = std::max(most, peak.allocated.value());
    }
    return most;
}

} // namespace

sim::Result<Variant> change(const Variant& base, std::span<const std::string> changes,
                            const VaryRules& rules, std::string_view where) {
    auto sorted = sort(changes, where);
    if (!sorted) {
        return sorted.error();
    }
    Variant out = base;
    if (!sorted->layout.empty()) {
        out.layout = sorted->layout;
    }
    if (!sorted->inputs.empty()) {
        auto scenario = vary(base.scenario, sorted->inputs, rules, where);
        if (!scenario) {
            return scenario.error();
        }
        out.scenario = std::move(*scenario);
    }
    const bool other_devices =
        sim::device_count(out.scenario.cluster) != sim::device_count(base.scenario.cluster);
    if (const auto status = change_terms(*sorted, other_devices, where, out.layout); !status) {
        return status.error();
    }
    return out;
}

std::vector<PathShare> path_shares(const sim::Simulation& simulation) {
    std::vector<PathShare> out;
    for (const sim::CriticalShare& share : simulation.critical) {
        std::string name = kind_in_words(name_of(share.task));
        // passes run on the stream of compute and nowhere else
        if (share.stream != sim::StreamKind::compute) {
            name += " on stream " + std::string(name_of(share.stream));
        }
        auto same = std::find_if(out.begin(), out.end(),
                                 [&](const PathShare& p) { return p.name == name; });
        if (same == out.end()) {
            same = out.insert(out.end(), {name, sim::Seconds{}, 0, sim::Seconds{}});
        }
        same->seconds += share.seconds;
        if (share.seconds > same->on_stage) {
            same->stage = share.stage;
            same->on_stage = share.seconds;
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const PathShare& x, const PathShare& y) { return x.seconds > y.seconds; });
    return out;
}

PlayDiff diff_plays(const sim::Simulation& a, const sim::Simulation& b) {
    PlayDiff out;
    const MeanStage left = mean_stage(a);
    const MeanStage right = mean_stage(b);
    // sums over stages run in another order where there are more of them
    constexpr double rounding = 1e-9;
    const auto add = [&](std::string name, double x, double y) {
        if (std::abs(y - x) <= rounding * x) {
            y = x;
        }
        if (x != 0.0 || y != 0.0) {
            out.step.push_back({std::move(name), x, y});
        }
        return std::abs(y - x);
    };
    double largest = 0.0;
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        const double x = left.waits.amounts[k].value();
        const double y = right.waits.amounts[k].value();
        const std::string name = "waits: " + kind_in_words(name_of(static_cast<sim::TimeKind>(k)));
        const double change = add(name, x, y);
        if (change > largest) {
            largest = change;
            out.moved = name;
        }
    }
    add("busy", left.alone, right.alone);
    add("slowed by communication", left.slowed, right.slowed);
    add("overhead", left.overhead, right.overhead);
    largest_first(out.step);
    out.path = side_by_side(path_shares(a), path_shares(b));
    for (std::size_t i = 0; a.stages.size() == b.stages.size() && i < a.stages.size(); ++i) {
        out.stages.push_back({"stage " + std::to_string(a.stages[i].stage),
                              a.stages[i].exposed.total().value(),
                              b.stages[i].exposed.total().value()});
    }
    out.memory = {"memory peak", largest_peak(a), largest_peak(b)};
    return out;
}

} // namespace shardplan::plan
