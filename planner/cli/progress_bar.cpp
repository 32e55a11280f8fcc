#include "planner/cli/progress_bar.hpp"

#include <algorithm>
#include <iostream>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

namespace shardplan::plan::cli {

namespace {

using namespace std::chrono_literals;
constexpr auto before_first = 400ms;
constexpr auto between = 100ms;
constexpr std::size_t width = 30;
constexpr const char* to_line_begin = "\r\x1b[K";

} // namespace

ProgressBar::ProgressBar(const Console& console)
    : out_(console.err),
      active_(&console.err == &std::cerr && isatty(STDERR_FILENO) != 0),
      next_(std::chrono::steady_clock::now() + before_first) {}

ProgressBar::~ProgressBar() { wipe(); }

void ProgressBar::wipe() {
    if (drawn_) {
        out_ << to_line_begin << std::flush;
    }
    drawn_ = false;
}

void ProgressBar::report(const Progress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!active_ || now < next_) {
        return;
    }
    next_ = now + between;
    drawn_ = true;
    const double fraction = std::clamp(progress.fraction, 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(fraction * static_cast<double>(width));
    out_ << to_line_begin
         << fmt::format("{} [{}{}] {:3.0f} % {}", progress.phase, std::string(filled, '='),
                        std::string(width - filled, ' '), 100.0 * fraction, progress.message)
         << std::flush;
}

} // namespace shardplan::plan::cli
