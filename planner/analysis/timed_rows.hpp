#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/analysis/fitted_constants.hpp"
#include "planner/analysis/reproduce.hpp"

/// Step times of measured runs as a function of the Constants that are fitted to them.
namespace shardplan::plan {

/// A choice of values: for each Constant a step on the grid over its plausible range, or `as_is`.
using GridPoint = std::vector<std::int16_t>;
inline constexpr std::int16_t as_is = -1;      ///< what the files say
inline constexpr std::int16_t grid_steps = 40; ///< finer than anything runs can tell
inline constexpr std::int16_t grid_middle = grid_steps / 2;

/// The value of a step, 0 to grid_steps, evenly from lo to hi; to four digits, so that what a file
/// says is what was priced.
double grid_value(const sim::Constant& constant, std::int16_t step);

/// Runs that are predicted again and again under other values. A row is priced once per choice of
/// the values that move it.
class TimedRows {
public:
    /// `constants` must outlive this. Rows that cannot be predicted are left out.
    /// Errors: data files that are missing or broken.
    static sim::Result<TimedRows> make(const std::vector<sim::RunRecord>& records,
                                       const std::vector<FittedConstant>& constants,
                                       std::size_t threads);
    ~TimedRows();
    TimedRows(TimedRows&&) noexcept;
    TimedRows& operator=(TimedRows&&) noexcept;

    [[nodiscard]] std::size_t size() const;
    /// Index of a row's record.
    [[nodiscard]] std::size_t record(std::size_t row) const;
    /// Whether a Constant moves the prediction of a row at all.
    [[nodiscard]] bool moves(std::size_t constant, std::size_t row) const;
    /// Prices `rows` at every point, on threads; what is known is not priced again.
    void price(const std::vector<std::size_t>& rows, const std::vector<GridPoint>& points);
    /// ln(predicted / measured) of a row that was priced at this point.
    [[nodiscard]] double error(std::size_t row, const GridPoint& point) const;

private:
    struct Row;
    TimedRows();
    void find_what_moves();

    const std::vector<FittedConstant>* constants_ = nullptr;
    std::size_t threads_ = 1;
    std::vector<std::unique_ptr<Row>> rows_;
};

} // namespace shardplan::plan
