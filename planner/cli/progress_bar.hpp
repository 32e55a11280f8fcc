#pragma once

#include <chrono>
#include <ostream>

#include "planner/cli/console.hpp"
#include "planner/search/progress.hpp"

namespace shardplan::plan::cli {

/// A bar on one line of a terminal, drawn over itself and wiped at the end. Nothing is drawn for
/// work that is done before anyone would wonder, nor where standard error is no terminal.
class ProgressBar final : public ProgressSink {
public:
    explicit ProgressBar(const Console& console);
    ~ProgressBar() override;
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void report(const Progress& progress) override;
    /// Takes the bar away before something is printed.
    void wipe();

private:
    std::ostream& out_;
    bool active_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point next_;
};

} // namespace shardplan::plan::cli
