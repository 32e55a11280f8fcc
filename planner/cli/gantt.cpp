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

/// The stream of compute of one stage, and what stands before it.
struct Row {
    std::string name;
    const sim::Timeline* timeline = nullptr;
    std::size_t track = 0;
};

std::string drawn(const Row& row, const Window& window, bool color) {
    Cells cells(window.cells);
    for (const sim::Span& span : row.timeline->spans) {
        if (span.track == row.track) {
            spread(span, window, cells);
        }
    }
    std::string out;
    for (auto& cell : cells) {
        double busy = 0.0;
        for (std::size_t i = 0; i < waiting; ++i) {
            busy += cell[i];
        }
        cell[waiting] = 1.0 - busy;
        const auto most =
            static_cast<std::size_t>(std::max_element(cell.begin(), cell.end()) - cell.begin());
        out += styled(std::string(1, letters[most]), style_of(most), color);
    }
    return out;
}

void print_window(std::ostream& out, const std::vector<Row>& rows, const Window& window,
                  bool color) {
    for (const Row& row : rows) {
        out << fmt::format("{:>5}  {}\n", row.name, drawn(row, window, color));
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

/// Rows of compute, by stage: the name of each is asked for.
template <class Name>
void add_rows(std::vector<Row>& rows, const sim::Timeline& timeline, const Name& name) {
    for (std::size_t t = 0; t < timeline.tracks.size(); ++t) {
        const sim::TimelineTrack& track = timeline.tracks[t];
        if (track.stream == sim::StreamKind::compute) {
            rows.push_back({name(track), &timeline, t});
        }
    }
}

std::int64_t end_of(const sim::Timeline& timeline) {
    std::int64_t last = 0;
    for (const sim::Span& span : timeline.spans) {
        last = std::max(last, span.t1);
    }
    return last;
}

/// Rows over the whole of `end` nanoseconds, or where that leaves passes unreadable over its
/// beginning and its end.
void print_rows(std::ostream& out, const std::vector<Row>& rows, double end, double readable,
                std::size_t width, bool color) {
    if (2.0 * readable >= end) {
        print_window(out, rows, {0.0, end, width}, color);
    } else {
        print_window(out, rows, {0.0, readable, width}, color);
        out << fmt::format("{:>5}  ...\n", "");
        print_window(out, rows, {end - readable, end, width}, color);
    }
    out << fmt::format(
        "{:>5}  F B W passes, o optimizer, c communication that compute waits for, "
        ". waiting\n",
        "");
}

/// Nanoseconds in which single passes can be told apart.
double readable_length(const sim::Simulation& s, std::size_t width) {
    constexpr double cells_per_pass = 2.0;
    return static_cast<double>(width) * pass_length(s) / cells_per_pass;
}

} // namespace

void print_gantt(std::ostream& out, const sim::Simulation& s, std::size_t width, bool color) {
    const std::int64_t last = end_of(s.timeline);
    if (last == 0 || width == 0) {
        return;
    }
    std::vector<Row> rows;
    add_rows(rows, s.timeline, [](const auto& track) { return std::to_string(track.stage); });
    print_rows(out, rows, static_cast<double>(last), readable_length(s, width), width, color);
}

void print_gantt_over(std::ostream& out, const sim::Simulation& s, const sim::Timeline& measured,
                      std::size_t width, bool color) {
    const std::int64_t last = std::max(end_of(s.timeline), end_of(measured));
    if (last == 0 || width == 0) {
        return;
    }
    std::vector<Row> predicted;
    std::vector<Row> seen;
    add_rows(predicted, s.timeline,
             [](const auto& track) { return fmt::format("{} pre", track.stage); });
    add_rows(seen, measured, [](const auto& track) { return fmt::format("{} run", track.stage); });
    const auto stage = [](const Row& row) { return row.timeline->tracks[row.track].stage; };
    std::vector<Row> rows;
    for (const Row& row : predicted) {
        if (!rows.empty() && stage(rows.back()) == stage(row)) {
            continue; // another rank of the same stage
        }
        rows.push_back(row);
        const auto run = std::find_if(seen.begin(), seen.end(),
                                      [&](const Row& other) { return stage(other) == stage(row); });
        if (run != seen.end()) {
            rows.push_back(*run);
        }
    }
    print_rows(out, rows, static_cast<double>(last), readable_length(s, width), width, color);
    out << fmt::format("{:>5}  pre: predicted, run: measured, with the exchanges inside passes\n",
                       "");
}

} // namespace shardplan::plan::cli
