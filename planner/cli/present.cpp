#include "planner/cli/present.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "simulator/estimate/band.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/spec/parameters.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// What amounts of memory that stand side by side are told in.
struct MemoryUnit {
    const char* name = "GiB";
    double bytes = 0x1p30;

    std::string operator()(sim::Bytes amount) const {
        return fmt::format("{:.2f}", amount.value() / bytes);
    }
};

/// The one in which the fullest device's memory is more than nothing.
MemoryUnit memory_unit(const sim::Estimate& estimate) {
    sim::Bytes most;
    for (const sim::ClassMemory& c : estimate.classes) {
        most = std::max(most, c.process.value);
    }
    constexpr double least = 0.1;
    for (const MemoryUnit unit : {MemoryUnit{}, MemoryUnit{"MiB", 0x1p20}}) {
        if (most.value() >= least * unit.bytes) return unit;
    }
    return {"KiB", 0x1p10};
}

std::string words(std::string_view name) {
    std::string out(name);
    std::replace(out.begin(), out.end(), '_', ' ');
    return out;
}

/// Kinds by amount, largest first; equal ones keep their order.
template <class Kind, class Amounts>
std::vector<Kind> by_size(const Amounts& amounts) {
    std::vector<Kind> kinds;
    for (std::size_t i = 0; i < amounts.amounts.size(); ++i) {
        if (amounts.amounts[i].value() > 0.0) {
            kinds.push_back(static_cast<Kind>(i));
        }
    }
    std::stable_sort(kinds.begin(), kinds.end(),
                     [&](Kind a, Kind b) { return amounts[a] > amounts[b]; });
    return kinds;
}

/// Classes worth a column: all of them, or the first, the second, the deciding and the last.
std::vector<std::size_t> columns_of(const sim::Estimate& estimate) {
    constexpr std::size_t most = 6;
    const std::size_t count = estimate.classes.size();
    std::vector<std::size_t> out(count);
    std::iota(out.begin(), out.end(), std::size_t{0});
    if (count > most) {
        out = {0, 1, static_cast<std::size_t>(estimate.deciding_class), count - 2, count - 1};
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
    }
    return out;
}

std::string job_line(const sim::Evaluator& evaluator) {
    const sim::Resolved& r = evaluator.resolved();
    std::string line = fmt::format("sequence {}, global batch {} ({} tokens), {}, {}",
                                   sim::group_digits(r.sequence), sim::group_digits(r.global_batch),
                                   sim::group_digits(r.global_batch * r.sequence),
                                   name_of(r.compute), name_of(r.optimizer));
    if (r.method.kind != sim::MethodKind::full) {
        line += fmt::format(", {} of rank {}", name_of(r.method.kind), r.method.rank);
    }
    return line;
}

void add_given_lines(Table& table, const sim::Evaluator& evaluator) {
    const sim::Scenario& scenario = evaluator.scenario();
    const sim::ParameterCounts counts = sim::count_parameters(scenario.model);
    table.add({"model",
               {fmt::format("{}: {} parameters, {} active", scenario.model.name,
                            sim::group_digits(counts.total), sim::group_digits(counts.active)),
                Style::strong}});
    table.add(
        {"cluster", fmt::format("{}: {}", scenario.cluster.name, sim::summary(scenario.cluster))});
    table.add({"job", job_line(evaluator)});
    const std::string title =
        scenario.stack.title.empty() || scenario.stack.title == scenario.stack.name
            ? ""
            : fmt::format(" ({})", scenario.stack.title);
    table.add({"stack", scenario.stack.name + title});
    table.add({"constants", calibration_words(scenario)});
}

/// What the width of a band comes from: classes that alone move the step by half a percent.
std::string sigma_words(const sim::StepTime& time) {
    constexpr double least = 0.005;
    std::string out;
    for (std::size_t i = 0; i < sim::error_class_count; ++i) {
        if (time.sigmas[i] >= least) {
            out += fmt::format("{}{} ±{:.0f} %", out.empty() ? "; " : ", ",
                               name_of(static_cast<sim::ErrorClass>(i)), 100.0 * time.sigmas[i]);
        }
    }
    return out;
}

/// The peak that MFU is measured against, with the product it belongs to.
std::string peak_words(const sim::Scenario& scenario, const std::string& peak_name) {
    if (scenario.devices.empty()) {
        return peak_name;
    }
    // ranks keep the pace of the slowest device
    const sim::Device* slowest = nullptr;
    for (const sim::Device& device : scenario.devices) {
        const auto peak = device.peak_dense.find(peak_name);
        if (peak != device.peak_dense.end() &&
            (slowest == nullptr || peak->second < slowest->peak_dense.at(peak_name))) {
            slowest = &device;
        }
    }
    if (slowest == nullptr) {
        return peak_name;
    }
    return fmt::format("{} (dense {} of {})", sim::to_text(slowest->peak_dense.at(peak_name)),
                       peak_name, slowest->name);
}

const sim::ClassMemory* deciding_class(const sim::Estimate& estimate) {
    const auto index = static_cast<std::size_t>(estimate.deciding_class);
    return index < estimate.classes.size() ? &estimate.classes[index] : nullptr;
}

void add_memory_lines(Table& table, const sim::Estimate& estimate) {
    const sim::ClassMemory* c = deciding_class(estimate);
    if (c == nullptr) {
        return;
    }
    const MemoryUnit in = memory_unit(estimate);
    table.add(
        {"memory", fmt::format("allocated {0} {1}, reserved {2} {1} ({3} to {4}) of {5} usable, "
                               "process {6} {1}; stage {7}, peak in {8}",
                               in(c->allocated.value), in.name, in(c->reserved.value),
                               in(c->reserved.low), in(c->reserved.high), in(c->usable),
                               in(c->process.value), c->stage, name_of(c->peak_phase))});
    const auto kinds = by_size<sim::TensorKind>(c->at_peak);
    std::string largest;
    for (std::size_t i = 0; i < std::min<std::size_t>(kinds.size(), 3); ++i) {
        largest += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", words(name_of(kinds[i])),
                               in(c->at_peak[kinds[i]]), in.name);
    }
    table.add({"", "largest: " + largest});
    if (c->host.value() > 0.0) {
        const auto host = [&](sim::Phase phase) {
            return in(c->host_phases[static_cast<std::size_t>(phase)]);
        };
        table.add(
            {"", fmt::format("host {} {} per rank; {} while loading, {} while saving", in(c->host),
                             in.name, host(sim::Phase::load), host(sim::Phase::save))});
    }
}

} // namespace

std::string calibration_words(const sim::Scenario& scenario) {
    constexpr std::size_t most = 3;
    const sim::Calibration& given = scenario.calibration;
    const std::vector<std::string> paths = sim::calibrated_constants(scenario);
    if (paths.empty()) {
        return given.entries.empty()
                   ? "uncalibrated: those of the data files"
                   : fmt::format("uncalibrated: nothing that {} measured takes part here",
                                 given.id);
    }
    std::string out = fmt::format("calibrated by {}", given.id);
    if (!given.date.empty() || !given.machine.empty()) {
        out += fmt::format(" ({}{}{})", given.date,
                           given.date.empty() || given.machine.empty() ? "" : ", ", given.machine);
    }
    for (std::size_t i = 0; i < std::min(most, paths.size()); ++i) {
        out += (i == 0 ? ": " : ", ") + paths[i];
    }
    if (paths.size() > most) {
        out += fmt::format(" and {} more", paths.size() - most);
    }
    return out + " measured here";
}

Style style_of(sim::Verdict verdict) {
    switch (verdict) {
        case sim::Verdict::fits:
            return Style::good;
        case sim::Verdict::borderline:
            return Style::doubtful;
        case sim::Verdict::does_not_fit:
            break;
    }
    return Style::bad;
}

void print_given(const Console& console, const sim::Evaluator& evaluator) {
    Table table({{"", Align::left}, {"", Align::left}});
    add_given_lines(table, evaluator);
    table.print(console.out, console.color);
}

void print_first_screen(const Console& console, const sim::Evaluator& evaluator,
                        const Shown& shown) {
    const sim::Scenario& scenario = evaluator.scenario();
    const sim::Estimate& estimate = shown.estimate;
    Table table({{"", Align::left}, {"", Align::left}});
    add_given_lines(table, evaluator);
    table.add({"layout", {shown.layout, Style::strong}});
    table.add({"verdict", {estimate.verdict_text, style_of(estimate.verdict)}});
    add_memory_lines(table, estimate);
    const auto& time = estimate.time.total;
    table.add(
        {"step time", fmt::format("{} ({} to {}{}), {} micro-batches", sim::to_text(time.value),
                                  sim::to_text(time.low), sim::to_text(time.high),
                                  sigma_words(estimate.time), estimate.micro_batches)});
    table.add({"speed", fmt::format("{} tokens/s, {} per device, {:.4g} samples/s",
                                    scaled_count(estimate.tokens_per_second),
                                    scaled_count(estimate.tokens_per_second_per_device),
                                    estimate.samples_per_second)});
    table.add({"MFU", fmt::format("{} of {}", percent(estimate.mfu),
                                  peak_words(scenario, estimate.peak_name))});
    if (estimate.money_per_million_tokens > 0.0) {
        table.add({"cost", fmt::format("{:.4g} {} per hour, {:.4g} per million tokens",
                                       estimate.money_per_hour, scenario.cluster.currency,
                                       estimate.money_per_million_tokens)});
    }
    table.print(console.out, console.color);
}

void print_memory(const Console& console, const sim::Estimate& estimate) {
    const MemoryUnit in = memory_unit(estimate);
    print_heading(console.out, fmt::format("Memory at the peak, {} per device", in.name),
                  console.color);
    const auto columns = columns_of(estimate);
    std::vector<Table::Column> heads = {{"", Align::left}};
    const bool several = sim::spans_groups(estimate.classes);
    for (const std::size_t i : columns) {
        const sim::ClassMemory& c = estimate.classes[i];
        const std::string group = several ? fmt::format(" of group {}", c.node_group) : "";
        heads.push_back({fmt::format("stage {}{} x {}", c.stage, group, c.ranks), Align::right});
    }
    Table table(heads);
    const auto add = [&](std::string title, auto&& figure, Style style = Style::plain) {
        std::vector<Cell> row = {std::move(title)};
        for (const std::size_t i : columns) {
            row.emplace_back(figure(estimate.classes[i]), style);
        }
        table.add(std::move(row));
    };
    for (std::size_t k = 0; k < sim::tensor_kind_count; ++k) {
        const auto kind = static_cast<sim::TensorKind>(k);
        const bool used = std::any_of(estimate.classes.begin(), estimate.classes.end(),
                                      [&](const auto& c) { return c.at_peak[kind].value() > 0.0; });
        if (used) {
            add(words(name_of(kind)),
                [&](const sim::ClassMemory& c) { return in(c.at_peak[kind]); });
        }
    }
    add(
        "allocated", [&](const auto& c) { return in(c.allocated.value); }, Style::strong);
    add(
        "reserved", [&](const auto& c) { return in(c.reserved.value); }, Style::strong);
    add(
        "process", [&](const auto& c) { return in(c.process.value); }, Style::strong);
    add(
        "usable", [&](const auto& c) { return in(c.usable); }, Style::faint);
    add("verdict", [](const auto& c) { return std::string(name_of(c.verdict)); });
    table.print(console.out, console.color, 2);
}

void print_time(const Console& console, const sim::Estimate& estimate) {
    print_heading(console.out, "Time of one step", console.color);
    const double total = estimate.time.total.value.value();
    Table table({{"", Align::left},
                 {"exposed", Align::right},
                 {"share", Align::right},
                 {"hidden", Align::right}});
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        const auto kind = static_cast<sim::TimeKind>(k);
        const sim::Seconds exposed = estimate.time.exposed[kind];
        const sim::Seconds hidden = estimate.time.hidden[kind];
        if (exposed.value() > 0.0 || hidden.value() > 0.0) {
            table.add({words(name_of(kind)), sim::to_text(exposed),
                       total > 0.0 ? percent(exposed.value() / total) : "",
                       hidden.value() > 0.0 ? sim::to_text(hidden) : ""});
        }
    }
    table.add({"step", {sim::to_text(estimate.time.total.value), Style::strong}});
    table.print(console.out, console.color, 2);
}

void print_links(const Console& console, const sim::Estimate& estimate) {
    if (estimate.links.empty()) {
        return;
    }
    print_heading(console.out, "Sent by one device in one step", console.color);
    const bool stages = std::any_of(estimate.links.begin(), estimate.links.end(),
                                    [](const sim::LinkLoad& link) { return link.first_stage > 0; });
    std::vector<Table::Column> columns = {{"dimension", Align::left}};
    if (stages) columns.push_back({"stages", Align::left});
    columns.insert(columns.end(), {{"ranks", Align::right},
                                   {"bytes", Align::right},
                                   {"time", Align::right},
                                   {"over", Align::left}});
    Table table(std::move(columns));
    for (const sim::LinkLoad& link : estimate.links) {
        std::vector<Cell> row = {link.dim};
        if (stages) {
            const std::int64_t last = link.first_stage + link.stages - 1;
            row.emplace_back(last == link.first_stage
                                 ? std::to_string(last)
                                 : fmt::format("{}-{}", link.first_stage, last));
        }
        row.insert(row.end(),
                   {std::to_string(link.ranks), sim::to_text(link.per_step),
                    sim::to_text(link.time), link.tier == "none" ? "host memory" : link.tier});
        table.add(std::move(row));
    }
    table.print(console.out, console.color, 2);
}

std::vector<sim::Assumption> all_assumptions(const sim::Evaluator& evaluator) {
    std::vector<sim::Assumption> out;
    for (const auto* list : {&evaluator.scenario().assumptions, &evaluator.assumptions()}) {
        for (const sim::Assumption& assumption : *list) {
            if (std::find(out.begin(), out.end(), assumption) == out.end()) {
                out.push_back(assumption);
            }
        }
    }
    return out;
}

std::vector<sim::Warning> all_warnings(const sim::Evaluator& evaluator, const sim::Layout& layout,
                                       const sim::Estimate& estimate) {
    std::vector<sim::Warning> out = estimate.warnings;
    for (sim::Warning& warning : sim::layout_warnings(evaluator.scenario(), evaluator.resolved(),
                                                      layout, evaluator.tables())) {
        const bool known =
            std::any_of(out.begin(), out.end(), [&](const auto& w) { return w.id == warning.id; });
        if (!known) {
            out.push_back(std::move(warning));
        }
    }
    return out;
}

} // namespace shardplan::plan::cli
