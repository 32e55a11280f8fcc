#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/io/run_record.hpp"
#include "simulator/spec/assumption.hpp"
#include "simulator/units/result.hpp"

/// Published runs predicted, and the predictions compared with what was measured. The rules stand
/// in simulator/io/schema/run_record.md.
namespace shardplan::plan {

/// One memory figure in GiB, on the rank class a measurement may be of.
struct MemoryPicks {
    double first = 0.0; ///< class of the first rank
    double last = 0.0;  ///< class of the last rank
    double max = 0.0;   ///< largest class
    double low = 1.0;   ///< ends of the band of the largest class, over its figure
    double high = 1.0;

    friend bool operator==(const MemoryPicks&, const MemoryPicks&) = default;
};

/// The prediction for one record.
struct RunPrediction {
    std::string id;
    std::string skipped; ///< why there is no prediction; empty: there is one
    double step_time_s = 0.0;
    double step_time_low_s = 0.0;
    double step_time_high_s = 0.0;
    MemoryPicks allocated, reserved, process;
    sim::Verdict verdict = sim::Verdict::fits;
    std::vector<sim::Assumption> notes; ///< what was taken where the record is silent

    friend bool operator==(const RunPrediction&, const RunPrediction&) = default;
};

/// How far predictions are off: error = prediction / measurement - 1.
struct ErrorFigures {
    std::int64_t rows = 0;
    double median = 0.0; ///< of the size of the error
    double p90 = 0.0;    ///< 90th percentile of its size, nearest rank
    double bias = 0.0;   ///< median of the error with its sign
    /// Share of the rows whose measurement lies in the band, and in one twice as wide. Bands are of
    /// one standard deviation, so about two thirds and 95 % are right.
    double within_one = 0.0;
    double within_two = 0.0;

    friend bool operator==(const ErrorFigures&, const ErrorFigures&) = default;
};

/// How often the verdict agrees with what happened.
struct FitFigures {
    std::int64_t right = 0;
    std::int64_t wrong = 0;
    std::int64_t borderline = 0; ///< the prediction does not commit itself

    [[nodiscard]] std::int64_t rows() const { return right + wrong + borderline; }
    friend bool operator==(const FitFigures&, const FitFigures&) = default;
};

/// The figures of the records that share a key.
struct GroupFigures {
    std::string name;
    std::int64_t records = 0;
    std::int64_t skipped = 0;
    ErrorFigures time, allocated, reserved, process;
    ErrorFigures shown; ///< analytic and uncertain memory entries: not scored, for the eye
    FitFigures fit;

    friend bool operator==(const GroupFigures&, const GroupFigures&) = default;
};

/// Median (mean of the middle two for even counts) and nearest-rank percentile of unsorted values;
/// 0 for none. `share` in (0, 1].
double median_of(std::vector<double> values);
double percentile_of(std::vector<double> values, double share);
ErrorFigures error_figures(const std::vector<double>& errors);
/// The same with coverage; `distances`: of each measurement from its prediction, in bands.
ErrorFigures error_figures(const std::vector<double>& errors, const std::vector<double>& distances);
/// How far `measured` is from `value`, where the end of the band on its side counts 1.
double distance_in_band(const sim::Band<double>& band, double measured);

/// True if the record has a step time that may be scored.
bool is_timed(const sim::RunRecord& record);
/// The predicted figure, in GiB, that a memory entry is compared with; analytic entries are
/// compared with what is allocated.
double predicted_gib(const RunPrediction& prediction, const sim::RunMemory& entry);
/// Error of a predicted figure (GiB) against an entry; with `unit_uncertain` none between 0.931 and
/// 1 of it, and outside counted from the nearer end.
double memory_error(double predicted, const sim::RunMemory& entry);
/// The entries that are scored: the first of each kind, less analytic and uncertain ones.
std::vector<sim::RunMemory> scored_entries(const sim::RunRecord& record);

/// What `--by` accepts.
std::vector<std::string> grouping_names();
/// Checks names against those that can be grouped by. Errors name the nearest.
sim::Status check_grouping(const std::vector<std::string>& by,
                           const std::vector<std::string>& names = grouping_names());
/// The key of a record under the groupings, joined by " / ".
std::string group_key(const sim::RunRecord& record, const std::vector<std::string>& by);

/// Figures by group in the order the groups first appear; `predictions[i]` belongs to `records[i]`.
std::vector<GroupFigures> score_predictions(const std::vector<sim::RunRecord>& records,
                                            const std::vector<RunPrediction>& predictions,
                                            const std::vector<std::string>& by);
/// The same over all records, under the name "all".
GroupFigures score_all(const std::vector<sim::RunRecord>& records,
                       const std::vector<RunPrediction>& predictions);

/// Predicts every record, in order; what cannot be predicted carries the reason.
/// Errors: data files that are missing or broken.
sim::Result<std::vector<RunPrediction>> predict_runs(const std::vector<sim::RunRecord>& records);

} // namespace shardplan::plan
