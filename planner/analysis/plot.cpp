#include "planner/analysis/plot.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace shardplan::plan {
namespace {

constexpr double width = 640.0;
constexpr double height = 320.0;
constexpr double left = 78.0;
constexpr double right = 14.0;
constexpr double top = 12.0;
constexpr double bottom = 46.0;
constexpr std::size_t x_ticks_most = 9;

/// From values to places in the figure.
class Scales {
public:
    explicit Scales(const Plot& plot) {
        place_x(plot);
        double highest = 0.0;
        for (const PlotSeries& series : plot.series) {
            for (const auto& y : series.y) {
                highest = std::max(highest, y.value_or(0.0));
            }
        }
        ticks_ = axis_ticks(highest / plot.y_unit);
        for (double& tick : ticks_) {
            tick *= plot.y_unit;
        }
    }

    [[nodiscard]] double x(std::size_t i) const { return x_[i]; }
    [[nodiscard]] double y(double value) const {
        return height - bottom - value / ticks_.back() * (height - top - bottom);
    }
    [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

private:
    void place_x(const Plot& plot) {
        const std::size_t n = plot.x_texts.size();
        std::vector<double> at(n);
        for (std::size_t i = 0; i < n; ++i) {
            at[i] = i < plot.x.size() ? plot.x[i] : static_cast<double>(i);
        }
        const auto [least, most] = std::minmax_element(at.begin(), at.end());
        constexpr double wide = 8.0;
        const bool is_log = plot.x.size() == n && *least > 0.0 && *most >= wide * *least;
        const auto scaled = [&](double v) { return is_log ? std::log(v) : v; };
        const double first = scaled(*least);
        const double span = scaled(*most) - first;
        constexpr double inset = 14.0; // points at the ends keep clear of the axis
        for (const double v : at) {
            const double share = span > 0.0 ? (scaled(v) - first) / span : 0.5;
            x_.push_back(left + inset + share * (width - left - right - 2.0 * inset));
        }
    }

    std::vector<double> x_;
    std::vector<double> ticks_;
};

void draw_frame(std::string& out, const Plot& plot, const Scales& scales) {
    for (const double tick : scales.ticks()) {
        const double y = scales.y(tick);
        out += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", left,
                           width - right, y, y);
        out += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                           left - 8.0, y + 4.0, html_text(plot.y_text(tick)));
    }
    const std::size_t n = plot.x_texts.size();
    const std::size_t every = (n + x_ticks_most - 1) / x_ticks_most;
    for (std::size_t i = 0; i < n; i += every) {
        out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)",
                           scales.x(i), height - bottom + 18.0, html_text(plot.x_texts[i]));
    }
    out += fmt::format(R"(<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>)",
                       (left + width - right) / 2.0, height - 6.0, html_text(plot.x_label));
}

void draw_line(std::string& out, const PlotSeries& series, const Scales& scales,
               std::size_t color) {
    std::string path;
    bool drawing = false;
    for (std::size_t i = 0; i < series.y.size(); ++i) {
        if (!series.y[i]) {
            drawing = false;
            continue;
        }
        path += fmt::format("{}{:.1f} {:.1f}", drawing ? " L" : " M", scales.x(i),
                            scales.y(*series.y[i]));
        drawing = true;
    }
    out += fmt::format(R"(<path class="line s{}{}" d="{}"/>)", color,
                       series.dashed ? " dashed" : "", path);
}

void draw_points(std::string& out, const PlotSeries& series, const Scales& scales,
                 std::size_t color) {
    for (std::size_t i = 0; i < series.y.size(); ++i) {
        if (!series.y[i]) {
            continue;
        }
        const bool hollow = i < series.hollow.size() && series.hollow[i];
        out += fmt::format(R"(<circle class="point s{}{}" cx="{:.1f}" cy="{:.1f}" r="4.5">)", color,
                           hollow ? " hollow" : "", scales.x(i), scales.y(*series.y[i]));
        const std::string tip = i < series.tips.size() ? series.tips[i] : "";
        out += "<title>" + html_text(tip) + "</title></circle>";
    }
}

} // namespace

std::vector<double> axis_ticks(double highest) {
    if (!(highest > 0.0) || !std::isfinite(highest)) {
        return {0.0, 1.0};
    }
    constexpr double wanted = 5.0;
    const double rough = highest / wanted;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    double step = power * 10.0;
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= rough) {
            step = factor * power;
            break;
        }
    }
    std::vector<double> out = {0.0};
    while (out.back() < highest * (1.0 - 1e-12)) {
        out.push_back(static_cast<double>(out.size()) * step);
    }
    return out;
}

std::string html_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string plot_svg(const Plot& plot) {
    const bool has_value =
        std::any_of(plot.series.begin(), plot.series.end(), [](const PlotSeries& series) {
            return !series.dashed && std::any_of(series.y.begin(), series.y.end(),
                                                 [](const auto& y) { return y.has_value(); });
        });
    if (!has_value || plot.x_texts.empty()) {
        return "";
    }
    const Scales scales(plot);
    std::string out = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", width,
                                  height, html_text(plot.title));
    draw_frame(out, plot, scales);
    std::size_t color = 0;
    for (const PlotSeries& series : plot.series) {
        draw_line(out, series, scales, color);
        if (!series.dashed) {
            draw_points(out, series, scales, color++);
        }
    }
    return out + "</svg>\n";
}

} // namespace shardplan::plan
