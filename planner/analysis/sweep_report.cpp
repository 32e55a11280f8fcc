#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "planner/analysis/plot.hpp"
#include "planner/analysis/sweep.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

constexpr const char* style = R"(
:root{color-scheme:light dark;--page:#fcfcfb;--ink:#1d1d1b;--soft:#5f5e5a;--rule:#dddcd6;
--good:#e3f1e4;--doubt:#faeecb;--bad:#f9dfda;
--s0:#2a6fbb;--s1:#c8501e;--s2:#12866a;--s3:#a8498c;--s4:#b07d00;--s5:#4f9ec4;--s6:#7357b8;--s7:#6b6a66}
@media (prefers-color-scheme:dark){:root{--page:#1a1a19;--ink:#ecebe6;--soft:#a9a8a2;--rule:#3b3a37;
--good:#1f3a26;--doubt:#453a16;--bad:#4a2620;
--s0:#6ea8e6;--s1:#ec8a5c;--s2:#4fc3a1;--s3:#d68cc0;--s4:#d9b04a;--s5:#8cc9e6;--s6:#ab94e6;--s7:#a9a8a2}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;
max-width:70rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:0 0 .3rem}p{color:var(--soft);margin:.3rem 0 1rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1.6rem}
figure{margin:0}svg{width:100%;height:auto}
.grid{stroke:var(--rule);stroke-width:1}.tick,.label{fill:var(--soft);font-size:12px}
.line{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4;stroke:var(--soft)!important}
.point{stroke-width:2}.hollow{fill:var(--page)!important}
.s0{stroke:var(--s0);fill:var(--s0)}.s1{stroke:var(--s1);fill:var(--s1)}
.s2{stroke:var(--s2);fill:var(--s2)}.s3{stroke:var(--s3);fill:var(--s3)}
.s4{stroke:var(--s4);fill:var(--s4)}.s5{stroke:var(--s5);fill:var(--s5)}
.s6{stroke:var(--s6);fill:var(--s6)}.s7{stroke:var(--s7);fill:var(--s7)}
path.line{fill:none}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;margin:.6rem 0 1.2rem}
.legend svg{width:1.1rem;height:.8rem;vertical-align:middle}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600}td.text,th.text{text-align:left}
.good{background:var(--good)}.doubt{background:var(--doubt)}.bad{background:var(--bad)}
summary{cursor:pointer;margin:1.6rem 0 .6rem}
)";

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / 0x1p30); }
std::string seconds(double s) { return sim::format_quantity(s, sim::Dimension::seconds); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }
std::string count(double n) {
    for (const auto& [least, suffix] : {std::pair{1e9, " G"}, {1e6, " M"}, {1e4, " k"}}) {
        if (n >= least) {
            return fmt::format("{:.3g}{}", least == 1e4 ? n / 1e3 : n / least, suffix);
        }
    }
    return fmt::format("{:.4g}", n);
}

const char* css_class(PointKind kind) {
    switch (kind) {
        case PointKind::fits:
            return "good";
        case PointKind::borderline:
            return "doubt";
        default:
            return "bad";
    }
}

std::string where_of(const Sweep& sweep, const SweepPoint& point) {
    std::string out;
    for (std::size_t k = 0; k < sweep.axes.size(); ++k) {
        out += (k == 0 ? "" : ", ") + sweep.axes[k].path + " " + sweep.axes[k].values[point.at[k]];
    }
    return out;
}

/// Second-axis values that get a line: all, or the most that colours tell apart, evenly spread.
std::vector<std::size_t> lines_of(const Sweep& sweep) {
    const std::size_t n = sweep.axes.size() < 2 ? 1 : sweep.axes[1].values.size();
    std::vector<std::size_t> out;
    const std::size_t lines = std::min(n, plot_series_most);
    for (std::size_t i = 0; i < lines; ++i) {
        out.push_back(lines == 1 ? 0 : i * (n - 1) / (lines - 1));
    }
    return out;
}

const SweepPoint& point_at(const Sweep& sweep, std::size_t first, std::size_t second) {
    const std::size_t columns = sweep.axes.size() < 2 ? 1 : sweep.axes[1].values.size();
    return sweep.points[first * columns + second];
}

std::string line_name(const Sweep& sweep, std::size_t second) {
    return sweep.axes.size() < 2 ? "" : sweep.axes[1].path + " " + sweep.axes[1].values[second];
}

struct Figure {
    const char* title;
    const char* about;
    double SweepPoint::*figure;
    std::string (*text)(double);
    bool memory = false;
};

Plot plot_of(const Sweep& sweep, const Figure& figure) {
    const SweepAxis& axis = sweep.axes.front();
    Plot plot;
    plot.title = figure.title;
    plot.x_label = axis.path;
    plot.x_texts = axis.values;
    plot.x = axis.numbers;
    plot.y_text = figure.text;
    plot.y_unit = figure.memory ? 0x1p30 : 1.0;
    PlotSeries limit;
    limit.dashed = true;
    for (const std::size_t second : lines_of(sweep)) {
        PlotSeries series;
        series.name = line_name(sweep, second);
        for (std::size_t i = 0; i < axis.values.size(); ++i) {
            const SweepPoint& p = point_at(sweep, i, second);
            series.y.push_back(p.priced ? std::optional(p.*figure.figure) : std::nullopt);
            series.hollow.push_back(p.kind != PointKind::fits);
            series.tips.push_back(fmt::format("{}: {}, {}, {}", where_of(sweep, p),
                                              figure.text(p.*figure.figure), name_of(p.kind),
                                              p.layout));
            if (figure.memory && limit.y.size() <= i) {
                limit.y.push_back(p.priced ? std::optional(p.usable_bytes) : std::nullopt);
            } else if (figure.memory && p.priced && !limit.y[i]) {
                limit.y[i] = p.usable_bytes;
            }
        }
        plot.series.push_back(std::move(series));
    }
    if (figure.memory) {
        plot.series.push_back(std::move(limit));
    }
    return plot;
}

void add_legend(std::string& out, const Sweep& sweep) {
    if (sweep.axes.size() < 2) {
        return;
    }
    out += "<ul class=\"legend\">";
    std::size_t color = 0;
    for (const std::size_t second : lines_of(sweep)) {
        out += fmt::format(
            "<li><svg viewBox=\"0 0 22 16\" aria-hidden=\"true\"><circle class=\"s{}\" "
            "cx=\"11\" cy=\"8\" r=\"6\"/></svg> {}</li>",
            color++, html_text(line_name(sweep, second)));
    }
    out += "</ul>\n";
    if (lines_of(sweep).size() < sweep.axes[1].values.size()) {
        out += fmt::format("<p>{} of {} values of {} are drawn; the tables hold all.</p>\n",
                           lines_of(sweep).size(), sweep.axes[1].values.size(),
                           html_text(sweep.axes[1].path));
    }
}

/// Verdict and speed over both axes.
void add_map(std::string& out, const Sweep& sweep) {
    if (sweep.axes.size() < 2) {
        return;
    }
    const SweepAxis& rows = sweep.axes[0];
    const SweepAxis& columns = sweep.axes[1];
    out += fmt::format(
        "<h2>What fits</h2>\n<p>Tokens per second and device; rows: {}, columns: "
        "{}.</p>\n<div class=\"wide\"><table><tr><th></th>",
        html_text(rows.path), html_text(columns.path));
    for (const std::string& value : columns.values) {
        out += "<th>" + html_text(value) + "</th>";
    }
    out += "</tr>\n";
    for (std::size_t r = 0; r < rows.values.size(); ++r) {
        out += "<tr><th>" + html_text(rows.values[r]) + "</th>";
        for (std::size_t c = 0; c < columns.values.size(); ++c) {
            const SweepPoint& p = point_at(sweep, r, c);
            const bool shown = p.priced && p.kind != PointKind::does_not_fit;
            out += fmt::format("<td class=\"{}\" title=\"{}\">{}</td>", css_class(p.kind),
                               html_text(p.layout + (p.layout.empty() ? "" : ": ") + p.why),
                               shown ? count(p.tokens_per_s_per_device) : name_of(p.kind));
        }
        out += "</tr>\n";
    }
    out += "</table></div>\n";
}

void add_points(std::string& out, const Sweep& sweep) {
    out += "<details><summary>Every point</summary><div class=\"wide\"><table><tr>";
    for (const SweepAxis& axis : sweep.axes) {
        out += "<th>" + html_text(axis.path) + "</th>";
    }
    out +=
        "<th class=\"text\">verdict</th><th "
        "class=\"text\">layout</th><th>step</th><th>tokens/s</th>"
        "<th>per device</th><th>MFU</th><th>waiting for communication</th><th>to spare</th>"
        "<th class=\"text\">why</th></tr>\n";
    for (const SweepPoint& p : sweep.points) {
        out += "<tr>";
        for (std::size_t k = 0; k < sweep.axes.size(); ++k) {
            out += "<td>" + html_text(sweep.axes[k].values[p.at[k]]) + "</td>";
        }
        out += fmt::format("<td class=\"text {}\">{}</td><td class=\"text\">{}</td>",
                           css_class(p.kind), name_of(p.kind), html_text(p.layout));
        if (p.priced) {
            out += fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                               seconds(p.step_s), count(p.tokens_per_s),
                               count(p.tokens_per_s_per_device), percent(p.mfu),
                               percent(p.communication), gib(p.margin_bytes));
        } else {
            out += "<td></td><td></td><td></td><td></td><td></td><td></td>";
        }
        out += "<td class=\"text\">" + html_text(p.why) + "</td></tr>\n";
    }
    out += "</table></div></details>\n";
}

} // namespace

std::string sweep_html(const Sweep& sweep) {
    std::string out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
        html_text(sweep.title) + "</title>\n<style>" + style + "</style></head><body>\n";
    out += "<h1>" + html_text(sweep.title) + "</h1>\n";
    std::string over;
    for (const SweepAxis& axis : sweep.axes) {
        over += (over.empty() ? "" : " and ") + axis.path;
    }
    out += fmt::format(
        "<p>Swept over {}; {}. Rings mark points that do not fit or only nearly do."
        "</p>\n",
        html_text(over),
        sweep.layout.empty() ? "the best layout at each point"
                             : "layout " + html_text(sweep.layout));
    add_legend(out, sweep);
    out += "<div class=\"plots\">\n";
    const Figure figures[] = {
        {"Tokens per second", "All devices together.", &SweepPoint::tokens_per_s, count},
        {"Tokens per second and device", "Flat is perfect scaling.",
         &SweepPoint::tokens_per_s_per_device, count},
        {"Step time", "One optimizer step.", &SweepPoint::step_s, seconds},
        {"Model flops utilization", "Of the dense peak.", &SweepPoint::mfu, percent},
        {"Waiting for communication", "Share of the step that nothing hides.",
         &SweepPoint::communication, percent},
        {"Memory", "Reserved on the fullest device; dashed: usable.", &SweepPoint::reserved_bytes,
         gib, true},
        {"Money per million tokens", "In the currency of the cluster.",
         &SweepPoint::money_per_million_tokens, count},
    };
    for (const Figure& figure : figures) {
        const bool any = std::any_of(sweep.points.begin(), sweep.points.end(),
                                     [&](const SweepPoint& p) { return p.*figure.figure > 0.0; });
        const std::string svg = any ? plot_svg(plot_of(sweep, figure)) : "";
        if (!svg.empty()) {
            out += fmt::format("<figure><h2>{}</h2><p>{}</p>{}</figure>\n", figure.title,
                               figure.about, svg);
        }
    }
    out += "</div>\n";
    add_map(out, sweep);
    add_points(out, sweep);
    return out + "</body></html>\n";
}

} // namespace shardplan::plan
