#include "planner/analysis/diff.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "simulator/units/text.hpp"

namespace shardplan::plan {

std::string kind_in_words(std::string_view name) {
    std::string out(name);
    std::replace(out.begin(), out.end(), '_', ' ');
    return out;
}

void largest_first(std::vector<DiffTerm>& terms) {
    std::stable_sort(terms.begin(), terms.end(), [](const DiffTerm& x, const DiffTerm& y) {
        return std::abs(x.change()) > std::abs(y.change());
    });
}

namespace {

/// The kinds that either side has, largest change first.
template <class Kind, class Amounts>
std::vector<DiffTerm> by_kind(const Amounts& a, const Amounts& b) {
    std::vector<DiffTerm> out;
    for (std::size_t i = 0; i < a.amounts.size(); ++i) {
        if (a.amounts[i].value() != 0.0 || b.amounts[i].value() != 0.0) {
            out.push_back({kind_in_words(name_of(static_cast<Kind>(i))), a.amounts[i].value(),
                           b.amounts[i].value()});
        }
    }
    largest_first(out);
    return out;
}

const sim::ClassMemory& deciding(const sim::Estimate& estimate) {
    static const sim::ClassMemory none;
    const auto index = static_cast<std::size_t>(estimate.deciding_class);
    return index < estimate.classes.size() ? estimate.classes[index] : none;
}

/// The terms of a text form by the letters they begin with: "tp" -> "8", "off" -> "opt:1.0:host".
std::vector<std::pair<std::string, std::string>> terms_of(const std::string& layout) {
    std::vector<std::pair<std::string, std::string>> out;
    std::size_t begin = 0;
    while (begin < layout.size()) {
        const std::size_t end = std::min(layout.find(',', begin), layout.size());
        const std::string term = layout.substr(begin, end - begin);
        std::size_t name = term.find('=');
        std::size_t value = name + 1;
        if (name == std::string::npos) {
            name = 0;
            while (name < term.size() &&
                   std::isalpha(static_cast<unsigned char>(term[name])) != 0) {
                ++name;
            }
            value = name;
        }
        out.emplace_back(term.substr(0, name), value < term.size() ? term.substr(value) : "on");
        begin = end + 1;
    }
    return out;
}

void say_if_stale(const DiffSide& side, std::vector<std::string>& out) {
    if (!side.has_promise || !side.priced.legal()) {
        return;
    }
    const double promised = side.promised.step_time.value();
    const double now = side.priced.estimate.time.total.value.value();
    constexpr double noticeable = 1e-6; // figures of a file are exact, so this is only rounding
    if (promised > 0.0 && std::abs(now / promised - 1.0) > noticeable) {
        out.push_back(fmt::format("{} promised a step of {}, and this program says {}", side.name,
                                  sim::to_text(side.promised.step_time),
                                  sim::to_text(side.priced.estimate.time.total.value)));
    }
    if (side.promised.verdict != side.priced.estimate.verdict) {
        out.push_back(fmt::format("{} was written as \"{}\", and this program says \"{}\"",
                                  side.name, name_of(side.promised.verdict),
                                  name_of(side.priced.estimate.verdict)));
    }
}

} // namespace

std::vector<DiffField> diff_layouts(const std::string& a, const std::string& b) {
    const auto left = terms_of(a);
    const auto right = terms_of(b);
    const auto value = [](const auto& terms, const std::string& name) {
        for (const auto& [key, text] : terms) {
            if (key == name) {
                return text;
            }
        }
        return std::string();
    };
    std::vector<DiffField> out;
    for (const auto& [name, text] : left) {
        if (value(right, name) != text) {
            out.push_back({name, text, value(right, name)});
        }
    }
    for (const auto& [name, text] : right) {
        if (value(left, name).empty()) {
            out.push_back({name, "", text});
        }
    }
    return out;
}

sim::Result<DiffSide> diff_side(const sim::Document& document, std::string_view name,
                                std::int64_t plan) {
    const auto count = static_cast<std::int64_t>(document.plans.size());
    if (plan < 1 || plan > count) {
        return sim::Error{
            sim::ErrorCode::bad_input, std::string(name),
            fmt::format("the file holds {} {}, there is no plan {}", count,
                        count == 1 ? "plan" : "plans", plan),
            count == 1 ? "write 1" : fmt::format("write a number from 1 to {}", count)};
    }
    const sim::PlanEntry& entry = document.plans[static_cast<std::size_t>(plan - 1)];
    auto priced = price_layout(document.scenario, entry.layout, name);
    if (!priced) {
        return priced.error();
    }
    DiffSide out;
    out.name = name;
    out.scenario = document.scenario;
    out.priced = std::move(*priced);
    out.promised = entry.headline;
    out.has_promise = true;
    return out;
}

std::vector<DiffField> diff_inputs(const sim::Scenario& a, const sim::Scenario& b) {
    const std::vector<Leaf> left = leaves_of(a);
    const std::vector<Leaf> right = leaves_of(b);
    std::map<std::string_view, const Leaf*> in_b;
    for (const Leaf& leaf : right) {
        in_b.emplace(leaf.path, &leaf);
    }
    const auto text_of = [](const Leaf& leaf) {
        const bool amount = leaf.kind == LeafKind::number || leaf.kind == LeafKind::integer;
        return amount ? shown_text(leaf, leaf.value) : leaf.text;
    };
    std::vector<DiffField> out;
    std::map<std::string_view, bool> in_a;
    for (const Leaf& leaf : left) {
        in_a.emplace(leaf.path, true);
        const auto other = in_b.find(leaf.path);
        if (other != in_b.end() && other->second->text == leaf.text) {
            continue;
        }
        std::string mine = text_of(leaf);
        std::string theirs = other == in_b.end() ? "" : text_of(*other->second);
        if (mine == theirs) { // equal to three digits
            mine = leaf.text;
            theirs = other->second->text;
        }
        out.push_back({leaf.path, std::move(mine), std::move(theirs)});
    }
    for (const Leaf& leaf : right) {
        if (in_a.find(leaf.path) == in_a.end()) {
            out.push_back({leaf.path, "", text_of(leaf)});
        }
    }
    return out;
}

PlanDiff diff_plans(const DiffSide& a, const DiffSide& b) {
    const sim::Estimate& left = a.priced.estimate;
    const sim::Estimate& right = b.priced.estimate;
    PlanDiff out;
    out.inputs = diff_inputs(a.scenario, b.scenario);
    out.layout = diff_layouts(a.priced.layout, b.priced.layout);
    const sim::ClassMemory& mine = deciding(left);
    const sim::ClassMemory& theirs = deciding(right);
    out.memory = by_kind<sim::TensorKind>(mine.at_peak, theirs.at_peak);
    for (const sim::Phase phase : {sim::Phase::load, sim::Phase::step, sim::Phase::save}) {
        const auto i = static_cast<std::size_t>(phase);
        out.host.push_back({std::string(name_of(phase)), mine.host_phases[i].value(),
                            theirs.host_phases[i].value()});
    }
    out.time = by_kind<sim::TimeKind>(left.time.exposed, right.time.exposed);
    out.hidden = by_kind<sim::TimeKind>(left.time.hidden, right.time.hidden);
    for (const char* dim : {"tp", "cp", "ep", "pp", "dp"}) {
        const double before = most_sent(left.links, dim).value();
        const double after = most_sent(right.links, dim).value();
        if (before > 0.0 || after > 0.0) out.links.push_back({dim, before, after});
    }
    largest_first(out.links);
    say_if_stale(a, out.stale);
    say_if_stale(b, out.stale);
    return out;
}

} // namespace shardplan::plan
