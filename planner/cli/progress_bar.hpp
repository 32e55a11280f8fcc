#pragma once

#include <chrono>
#include <ostream>

#include "planner/search/progress.hpp"

namespace shardplan::plan::cli {

/// A bar on one line of a terminal, drawn over itself and wiped at the end. Nothing is drawn for
/// work that is done before anyone would wonder, nor where `active` is false.
class ProgressBar final : public ProgressSink {
public:
    ProgressBar(std::ostream& out, bool active);
    ~ProgressBar() override;
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void report(const Progress& progress) override;

private:
    std::ostream& out_;
    bool active_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point next_;
};

/// Is `out` the terminal behind standard error?
bool is_error_terminal(const std::ostream& out);

} // namespace shardplan::plan::cli
