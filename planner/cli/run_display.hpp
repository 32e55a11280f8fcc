#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/cli/console.hpp"
#include "planner/cli/progress_bar.hpp"
#include "simulator/estimate/estimate.hpp"

namespace shardplan::plan::cli {

/// Shows the records that a training program writes, line by line, as they come.
class RunDisplay {
public:
    explicit RunDisplay(const Console& console);

    /// One line of the program. What is no record of its goes to standard error.
    void take(const std::string& line);
    /// Prints what is held back: the program has ended.
    void finish();

    [[nodiscard]] std::optional<double> median_step_seconds() const { return median_; }
    /// Where, what and hint of the first error that was told.
    [[nodiscard]] const std::optional<sim::Error>& error() const { return error_; }
    [[nodiscard]] bool stopped() const { return stopped_; }

private:
    void start(const class RecordFields& record);
    void step(const class RecordFields& record);
    void save(const class RecordFields& record);
    void end(const class RecordFields& record);

    const Console& console_;
    ProgressBar bar_;
    bool live_; ///< rows are printed as they come; else at the end, beneath the bar
    std::vector<std::string> rows_;
    std::int64_t steps_ = 0;
    std::int64_t every_ = 1; ///< steps from one row to the next
    bool awaits_first_ = true;
    std::optional<double> median_;
    std::optional<sim::Error> error_;
    bool stopped_ = false;
};

/// The measured median beside what the estimate says.
void print_against_estimate(const Console& console, double measured,
                            const sim::Band<sim::Seconds>& predicted);

} // namespace shardplan::plan::cli
