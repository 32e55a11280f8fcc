#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Line plots as inline SVG for a page of ours. Colours are the page's: series i has the class
/// "si", 0 to plot_series_most - 1, so that one style sheet serves light and dark.
namespace shardplan::plan {

inline constexpr std::size_t plot_series_most = 8;

/// One line. Elements are those of Plot::x_texts.
struct PlotSeries {
    std::string name;
    std::vector<std::optional<double>> y; ///< empty: a gap
    std::vector<bool> hollow;             ///< drawn as a ring: not to be relied on
    std::vector<std::string> tips;        ///< shown when the mouse rests on the point
    bool dashed = false;                  ///< a limit: no points
};

struct Plot {
    std::string title;
    std::string x_label;
    std::vector<std::string> x_texts;
    /// Positions of the values; empty: side by side. A logarithmic scale is taken where they are
    /// positive and span a factor of 8 or more.
    std::vector<double> x;
    std::vector<PlotSeries> series; ///< at most plot_series_most
    std::function<std::string(double)> y_text;
    double y_unit = 1.0; ///< ticks are round numbers of it
};

/// The figure, without anything around it. Nothing where no series has a value.
std::string plot_svg(const Plot& plot);

/// Text as it may stand in HTML.
std::string html_text(std::string_view text);

/// Ticks from 0 or below to `highest` or above, at steps of 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double highest);

} // namespace shardplan::plan
