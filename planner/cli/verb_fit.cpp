#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/fit.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/study.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

struct MethodRow {
    const char* name;
    const char* method;
    const char* optimizer; ///< empty: the job's
};
constexpr std::array<MethodRow, 4> method_rows = {{
    {"full", "full", ""},
    {"full, 8-bit optimizer", "full", "adamw_8bit"},
    {"lora", "lora", ""},
    {"qlora", "qlora", ""},
}};

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / 0x1p30); }

std::string gpus(std::int64_t devices) {
    return sim::group_digits(devices) + (devices == 1 ? " GPU" : " GPUs");
}

bool has_field(const ScenarioOptions& options, std::string_view path) {
    const std::string set = "job." + std::string(path) + "=";
    return std::any_of(options.job_fields.begin(), options.job_fields.end(),
                       [&](const FieldValue& f) { return f.path == path; }) ||
           std::any_of(options.sets.begin(), options.sets.end(),
                       [&](const std::string& s) { return s.rfind(set, 0) == 0; });
}

/// The methods to look at, each with its flags; one without changes where the user names one.
std::vector<std::pair<std::string, ScenarioOptions>> methods_of(const ScenarioOptions& options) {
    std::vector<std::pair<std::string, ScenarioOptions>> out;
    if (!options.job.empty() || has_field(options, "method.kind")) {
        out.emplace_back("", options);
        return out;
    }
    for (const MethodRow& row : method_rows) {
        ScenarioOptions with = options;
        with.job_fields.push_back({"--method", "method.kind", row.method});
        if (*row.optimizer != '\0') {
            if (has_field(options, "optimizer.kind")) {
                continue;
            }
            with.job_fields.push_back({"--optimizer", "optimizer.kind", row.optimizer});
        }
        out.emplace_back(row.name, std::move(with));
    }
    return out;
}

/// One method, ready to be tried on any number of devices.
struct Candidate {
    std::string name;
    Study study;
    MethodFit fit;
};

sim::Result<std::vector<Candidate>> candidates_from(const FitOptions& options,
                                                    const FitRequest& request) {
    std::vector<Candidate> out;
    for (auto& [name, flags] : methods_of(options.scenario)) {
        flags.gpus.reset(); // the whole cluster, to be cut to size
        auto study = study_from("", 1, flags, "");
        if (!study) {
            return study.error();
        }
        Candidate candidate{name, std::move(*study), {}};
        if (candidate.name.empty()) {
            candidate.name = name_of(candidate.study.scenario.job.method.kind);
        }
        FitRequest planned = request;
        planned.layout.clear();
        auto fit = smallest_machine(candidate.name, candidate.study.scenario,
                                    candidate.study.rules(), planned);
        if (!fit) {
            return fit.error();
        }
        candidate.fit = std::move(*fit);
        out.push_back(std::move(candidate));
    }
    return out;
}

/// The machine whose verdict is looked into: the one named, or one step below the smallest.
std::int64_t devices_of_interest(const FitOptions& options, const MethodFit& fit) {
    if (options.scenario.gpus) {
        return *options.scenario.gpus;
    }
    if (!fit.smallest) {
        return fit.tried.empty() ? 1 : fit.tried.back().devices;
    }
    for (std::size_t i = *fit.smallest; i-- > 0;) {
        if (fit.tried[i].has_layout) {
            return fit.tried[i].devices;
        }
    }
    return fit.tried[*fit.smallest].devices;
}

void print_machines(const Console& console, const std::vector<Candidate>& all) {
    print_heading(console.out, "Smallest machine that fits", console.color);
    Table table({{"method", Align::left},
                 {"GPUs", Align::right},
                 {"to spare", Align::right},
                 {"step", Align::right},
                 {"tokens/s/GPU", Align::right},
                 {"layout", Align::left},
                 {"one step below", Align::left},
                 {"stack", Align::left}});
    for (const Candidate& c : all) {
        const MethodFit& fit = c.fit;
        const std::string stack = c.study.scenario.stack.name;
        const std::size_t below = fit.smallest.value_or(fit.tried.size());
        std::string lacks;
        if (below > 0) {
            const Machine& m = fit.tried[below - 1];
            lacks = m.has_layout ? fmt::format("{}: {}, {} {}", gpus(m.devices), name_of(m.verdict),
                                               gib(std::abs(m.margin_bytes)),
                                               m.margin_bytes < 0.0 ? "too much" : "to spare")
                                 : fmt::format("{}: {}", gpus(m.devices), m.why);
        }
        if (!fit.smallest) {
            table.add({c.name,
                       {fmt::format("none up to {}", fit.most_devices), Style::bad},
                       "",
                       "",
                       "",
                       "",
                       lacks,
                       {stack, Style::faint}});
            continue;
        }
        const Machine& m = fit.tried[*fit.smallest];
        table.add({c.name,
                   {sim::group_digits(m.devices), Style::good},
                   gib(m.margin_bytes),
                   sim::to_text(sim::Seconds(m.step_s)),
                   scaled_count(m.tokens_per_s_per_device),
                   {m.layout, Style::strong},
                   lacks,
                   {stack, Style::faint}});
    }
    table.print(console.out, console.color, 2);
}

void print_flips(const Console& console, const Candidate& candidate, const Flips& flips) {
    const Machine& base = flips.base;
    print_heading(
        console.out,
        fmt::format("{} on {} GPUs: what turns the verdict", candidate.name, base.devices),
        console.color);
    if (!base.has_layout) {
        console.out << "  " << base.why << '\n';
        return;
    }
    console.out << fmt::format("  {}  step {}\n  ",
                               styled(base.layout, Style::strong, console.color),
                               sim::to_text(sim::Seconds(base.step_s)))
                << styled(base.why, style_of(base.verdict), console.color) << "\n\n";
    Table table({{"change", Align::left},
                 {"by", Align::left},
                 {"verdict", Align::left},
                 {"to spare", Align::right},
                 {"step", Align::right},
                 {"GPU time per token", Align::right},
                 {"layout", Align::left}});
    for (const Flip& flip : flips.flips) {
        table.add({{flip.change, flip.turns ? Style::strong : Style::plain},
                   flip.how,
                   {std::string(name_of(flip.verdict)), style_of(flip.verdict)},
                   gib(flip.margin_bytes),
                   fmt::format("{:+.1f} %", 100.0 * flip.step_change),
                   fmt::format("{:+.1f} %", 100.0 * flip.device_time_change),
                   {flip.layout, Style::faint}});
    }
    table.print(console.out, console.color, 2);
}

void write_machine(sim::JsonWriter& json, const Machine& m) {
    json.begin_object().member("gpus", m.devices).member("why", m.why);
    if (m.has_layout) {
        json.member("layout", m.layout)
            .member("verdict", name_of(m.verdict))
            .member("deciding_term", name_of(m.deciding))
            .member("margin_bytes", m.margin_bytes)
            .member("step_s", m.step_s)
            .member("tokens_per_s_per_device", m.tokens_per_s_per_device)
            .member("mfu", m.mfu);
    }
    json.end_object();
}

void write_json(const Console& console, const std::vector<Candidate>& all, const Flips& flips) {
    sim::JsonWriter json;
    json.begin_object().begin_array("methods");
    for (const Candidate& c : all) {
        json.begin_object()
            .member("method", c.name)
            .member("stack", c.study.scenario.stack.name)
            .member("most_gpus", c.fit.most_devices)
            .key("smallest");
        if (c.fit.smallest) {
            write_machine(json, c.fit.tried[*c.fit.smallest]);
        } else {
            json.value(nullptr);
        }
        json.begin_array("tried");
        for (const Machine& m : c.fit.tried) {
            write_machine(json, m);
        }
        json.end_array().end_object();
    }
    json.end_array().begin_object("verdict").member("method", all.front().name).key("base");
    write_machine(json, flips.base);
    json.begin_array("changes");
    for (const Flip& flip : flips.flips) {
        json.begin_object()
            .member("change", flip.change)
            .member("how", flip.how)
            .member("turns_verdict", flip.turns)
            .member("planned_anew", flip.planned_anew)
            .member("layout", flip.layout)
            .member("verdict", name_of(flip.verdict))
            .member("margin_bytes", flip.margin_bytes)
            .member("step_s", flip.step_s)
            .member("step_change", flip.step_change)
            .member("device_time_change", flip.device_time_change)
            .end_object();
    }
    json.end_array().end_object().end_object();
    console.out << json.str();
}

void print_text(const Console& console, const std::vector<Candidate>& all, const Flips& flips) {
    const auto evaluator = sim::Evaluator::make(all.front().study.scenario);
    if (evaluator) {
        print_given(console, *evaluator);
    }
    print_machines(console, all);
    print_flips(console, all.front(), flips);
    console.out << "\nprices compare with the step above, at the same tokens per step; where a "
                   "change is one\nof the job or the machine, the layout is planned anew unless "
                   "--layout names one\n";
    print_assumptions(console.out, all.front().study.scenario.assumptions, console.color);
}

} // namespace

int run_fit(const FitOptions& options, const Console& console) {
    if (options.max_gpus < 1) {
        return fail(console, {sim::ErrorCode::bad_input, "--max-gpus", "no machine is that small",
                              "write 1 or more"});
    }
    FitRequest request;
    request.layout = options.layout;
    request.most_devices = options.max_gpus;
    const auto all = candidates_from(options, request);
    if (!all) {
        return fail(console, all.error());
    }
    const Candidate& first = all->front();
    request.objective = first.study.scenario.job.objective;
    const std::vector<FieldSetting> size = {
        {"gpus", std::to_string(devices_of_interest(options, first.fit))}};
    const auto scenario = vary(first.study.scenario, size, first.study.rules(), "--gpus");
    if (!scenario) {
        return fail(console, scenario.error());
    }
    const auto turned = flips(*scenario, first.study.rules(), request);
    if (!turned) {
        return fail(console, turned.error());
    }
    if (console.json) {
        write_json(console, *all, *turned);
    } else {
        print_text(console, *all, *turned);
    }
    const bool named = options.scenario.gpus.has_value() || !options.layout.empty();
    const bool here = turned->base.has_layout && turned->base.verdict != sim::Verdict::does_not_fit;
    const bool any = std::any_of(all->begin(), all->end(),
                                 [](const Candidate& c) { return c.fit.smallest.has_value(); });
    return (named ? here : any) ? exit_code::yes : console.no();
}

} // namespace shardplan::plan::cli
