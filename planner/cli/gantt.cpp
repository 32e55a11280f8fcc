#include "planner/cli/gantt.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/cli/console.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr std::array<char, 6> letters = {'F', 'B', 'W', 'o', 'c', '.'};
constexpr std::size_t waiting = letters.size() - 1;

std::size_t letter_of(sim::TaskKind kind) {
    switch (kind) {
        case sim::TaskKind::forward:
        case sim::TaskKind::loss:
            return 0;
        case sim::TaskKind::backward:
            return 1;
        case sim::TaskKind::weight:
            return 2;
        case sim::TaskKind::optimizer:
            return 3;
        default:
            return 4;
    }
}

Style style_of(std::size_t letter) {
    constexpr std::array<Style, letters.size()> styles = {
        Style::strong, Style::good, Style::plain, Style::strong, Style::doubtful, Style::faint};
    return styles[letter];
}

/// A stretch of the step, cut into cells of equal time.
struct Window {
    double begin = 0.0; ///< ns
    double end = 0.0;
    std::size_t cells = 1;

    [[nodiscard]] double per_cell() const { return (end - begin) / static_cast<double>(cells); }
};

using Cells = std::vector<std::array<double, letters.size()>>;

/// Adds the time of a span to the cells it crosses.
void spread(const sim::Span& span, const Window& window, Cells& cells) {
    const auto place = [&](std::int64_t t) {
        return std::clamp((static_cast<double>(t) - window.begin) / window.per_cell(), 0.0,
                          static_cast<double>(window.cells));
    };
    const double begin = place(span.t0);
    const double end = place(span.t1);
    for (auto i = static_cast<std::size_t>(begin); i < cells.size(); ++i) {
        const auto at = static_cast<double>(i);
        if (at >= end) {
            break;
        }
        cells[i][letter_of(span.op)] += std::min(end, at + 1.0) - std::max(begin, at);
    }
}

void print_window(std::ostream& out, const sim::Simulation& s, const Window& window, bool color) {
    std::size_t next = 0;
    for (std::size_t t = 0; t < s.timeline.tracks.size(); ++t) {
        const sim::TimelineTrack& track = s.timeline.tracks[t];
        Cells cells(window.cells);
        const bool shown = track.stream == sim::StreamKind::compute;
        for (; next < s.timeline.spans.size() && s.timeline.spans[next].track == t; ++next) {
            if (shown) {
                spread(s.timeline.spans[next], window, cells);
            }
        }
        if (!shown) {
            continue;
        }
        std::string row;
        for (auto& cell : cells) {
            double busy = 0.0;
            for (std::size_t i = 0; i < waiting; ++i) {
                busy += cell[i];
            }
            cell[waiting] = 1.0 - busy;
            const auto most =
                static_cast<std::size_t>(std::max_element(cell.begin(), cell.end()) - cell.begin());
            row += styled(std::string(1, letters[most]), style_of(most), color);
        }
        out << fmt::format("{:>5}  {}\n", track.stage, row);
    }
    const auto text = [](double ns) { return sim::to_text(sim::Seconds(ns * 1e-9)); };
    out << fmt::format("{:>5}  {} to {}\n", "", text(window.begin), text(window.end));
}

/// How long a pass of one micro-batch through one chunk is on average, in ns.
double pass_length(const sim::Simulation& s) {
    double busy = 0.0;
    for (const sim::StageActivity& stage : s.stages) {
        busy += stage.busy.value();
    }
    const sim::PipelineShape& shape = s.schedule.shape;
    const double passes = 2.0 * shape.stages * shape.micro_batches *
                          static_cast<double>(sim::way_length(shape)) / shape.stages;
    return 1e9 * busy / passes;
}

} // namespace

void print_gantt(std::ostream& out, const sim::Simulation& s, std::size_t width, bool color) {
    std::int64_t last = 0;
    for (const sim::Span& span : s.timeline.spans) {
        last = std::max(last, span.t1);
    }
    if (last == 0 || width == 0) {
        return;
    }
    constexpr double cells_per_pass = 2.0;
    const auto end = static_cast<double>(last);
    const double readable = static_cast<double>(width) * pass_length(s) / cells_per_pass;
    if (2.0 * readable >= end) {
        print_window(out, s, {0.0, end, width}, color);
    } else {
        print_window(out, s, {0.0, readable, width}, color);
        out << fmt::format("{:>5}  ...\n", "");
        print_window(out, s, {end - readable, end, width}, color);
    }
    out << fmt::format(
        "{:>5}  F B W passes, o optimizer, c communication that compute waits for, "
        ". waiting\n",
        "");
}

} // namespace shardplan::plan::cli
