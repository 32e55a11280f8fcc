#include <algorithm>

#include <fmt/format.h>

#include "planner/analysis/sweep.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/progress_bar.hpp"
#include "planner/cli/study.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/file.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

Style style_of_point(PointKind kind) {
    switch (kind) {
        case PointKind::fits:
            return Style::good;
        case PointKind::borderline:
            return Style::doubtful;
        default:
            return Style::bad;
    }
}

void print_table(const Console& console, const Sweep& sweep) {
    std::vector<Table::Column> columns;
    for (const SweepAxis& axis : sweep.axes) {
        columns.push_back({axis.path, Align::right});
    }
    for (const char* title : {"verdict", "layout"}) {
        columns.push_back({title, Align::left});
    }
    for (const char* title : {"step", "tokens/s", "tokens/s/GPU", "MFU", "waiting", "to spare"}) {
        columns.push_back({title, Align::right});
    }
    Table table(std::move(columns));
    for (const SweepPoint& p : sweep.points) {
        std::vector<Cell> row;
        for (std::size_t k = 0; k < sweep.axes.size(); ++k) {
            row.emplace_back(sweep.axes[k].values[p.at[k]]);
        }
        row.emplace_back(std::string(name_of(p.kind)), style_of_point(p.kind));
        if (!p.priced) {
            row.emplace_back(p.layout.empty() ? p.why : p.layout + ": " + p.why, Style::faint);
            table.add(std::move(row));
            continue;
        }
        row.emplace_back(p.layout, Style::strong);
        for (std::string& text : std::vector<std::string>{
                 sim::to_text(sim::Seconds(p.step_s)), scaled_count(p.tokens_per_s),
                 scaled_count(p.tokens_per_s_per_device), percent(p.mfu), percent(p.communication),
                 fmt::format("{:.1f} GiB", p.margin_bytes / 0x1p30)}) {
            row.emplace_back(std::move(text));
        }
        table.add(std::move(row));
    }
    console.out << sweep.title << '\n';
    table.print(console.out, console.color);
}

void write_point(sim::JsonWriter& json, const Sweep& sweep, const SweepPoint& p) {
    json.begin_object().begin_object("at");
    for (std::size_t k = 0; k < sweep.axes.size(); ++k) {
        json.member(sweep.axes[k].path, sweep.axes[k].values[p.at[k]]);
    }
    json.end_object().member("verdict", name_of(p.kind)).member("layout", p.layout);
    json.member("why", p.why).member("devices", p.devices).member("sequence", p.sequence);
    json.member("global_batch", p.global_batch);
    if (p.priced) {
        json.member("step_s", p.step_s)
            .member("step_low_s", p.step_low_s)
            .member("step_high_s", p.step_high_s)
            .member("tokens_per_s", p.tokens_per_s)
            .member("tokens_per_s_per_device", p.tokens_per_s_per_device)
            .member("mfu", p.mfu)
            .member("communication_share", p.communication)
            .member("bubble_share", p.bubble)
            .member("reserved_bytes", p.reserved_bytes)
            .member("usable_bytes", p.usable_bytes)
            .member("margin_bytes", p.margin_bytes)
            .member("money_per_million_tokens", p.money_per_million_tokens)
            .member("kilowatt_hours_per_million_tokens", p.kilowatt_hours_per_million_tokens);
    }
    json.end_object();
}

void write_json(const Console& console, const Sweep& sweep) {
    sim::JsonWriter json;
    json.begin_object().member("title", sweep.title).member("layout", sweep.layout);
    json.begin_array("points");
    for (const SweepPoint& p : sweep.points) {
        write_point(json, sweep, p);
    }
    json.end_array().end_object();
    console.out << json.str();
}

/// Nothing is different anywhere: the user should know that the input decides nothing here.
void say_if_flat(const Console& console, const Sweep& sweep) {
    const auto differs = [&](const SweepPoint& p) {
        const SweepPoint& first = sweep.points.front();
        return p.kind != first.kind || p.step_s != first.step_s ||
               p.reserved_bytes != first.reserved_bytes;
    };
    const bool priced = sweep.points.front().priced;
    if (priced && sweep.points.size() > 1 &&
        std::none_of(sweep.points.begin(), sweep.points.end(), differs)) {
        console.err << "note: " << sweep.axes.front().path
                    << " has no effect here: every point has the same step time and memory\n";
    }
}

/// Points that train on different amounts per step cannot be compared by their step time.
void say_if_batch_moves(const Console& console, const Sweep& sweep) {
    const bool asked = std::any_of(sweep.axes.begin(), sweep.axes.end(), [](const auto& axis) {
        return axis.path.find("global_batch") != std::string::npos;
    });
    std::int64_t least = 0;
    std::int64_t most = 0;
    for (const SweepPoint& p : sweep.points) {
        const std::int64_t tokens = p.global_batch * p.sequence;
        if (p.priced) {
            least = least == 0 ? tokens : std::min(least, tokens);
            most = std::max(most, tokens);
        }
    }
    if (!asked && least != most) {
        console.err << "warning: the global batch is not the same at every point: "
                    << sim::group_digits(least) << " to " << sim::group_digits(most)
                    << " tokens; compare tokens/s, or give --global-batch\n";
    }
}

/// The layout of a plan file says dp, which is left to follow the devices of each point.
std::string without_dp(const std::string& layout) {
    std::string out;
    for (std::size_t begin = 0; begin < layout.size();) {
        const std::size_t end = std::min(layout.find(',', begin), layout.size());
        const std::string term = layout.substr(begin, end - begin);
        const bool is_dp = term.rfind("dp", 0) == 0;
        out += is_dp ? "" : (out.empty() ? "" : ",") + term;
        begin = end + 1;
    }
    return out;
}

/// The scenario before the sweep. Its devices are those of the first point where they are swept.
ScenarioOptions base_options(const SweepOptions& options) {
    ScenarioOptions out = options.scenario;
    if (options.over.find("gpus=") != std::string::npos) {
        out.gpus.reset(); // the whole machine: a part of a node could not grow again
    }
    return out;
}

} // namespace

int run_sweep(const SweepOptions& options, const Console& console) {
    const auto study = study_from(options.document, options.plan, base_options(options), "");
    if (!study) {
        return fail(console, study.error());
    }
    auto axes = parse_axes(options.over, study->scenario, "--over " + options.over);
    if (!axes) {
        return fail(console, axes.error());
    }
    ProgressBar bar(console);
    SweepRequest request;
    request.layout = options.layout == "plan" ? without_dp(study->layout) : options.layout;
    request.objective = study->scenario.job.objective;
    request.progress = &bar;
    const Sweep result = sweep(study->scenario, std::move(*axes), study->rules(), request);
    if (!options.report.empty()) {
        if (const auto status = sim::write_file(options.report, sweep_html(result)); !status) {
            return fail(console, status.error());
        }
        console.err << "wrote " << options.report << '\n';
    }
    say_if_flat(console, result);
    say_if_batch_moves(console, result);
    if (console.json) {
        write_json(console, result);
    } else if (options.csv) {
        console.out << sweep_csv(result);
    } else {
        print_table(console, result);
    }
    const bool any = std::any_of(result.points.begin(), result.points.end(), [](const auto& p) {
        return p.kind == PointKind::fits || p.kind == PointKind::borderline;
    });
    return any ? exit_code::yes : console.no();
}

} // namespace shardplan::plan::cli
