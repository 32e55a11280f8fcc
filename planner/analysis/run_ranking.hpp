#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/validate.hpp"

/// Whether predictions put layouts in the order in which they were measured. A planner lives on
/// that: a cost model that is off by the same share everywhere still chooses well. The rules stand
/// in simulator/io/schema/run_record.md.
namespace shardplan::plan {

/// The timed records of one sweep: one case in several layouts. Verdicts play no part.
struct SweepRanking {
    std::string sweep;
    std::string group; ///< key of its first record
    std::int64_t rows = 0;
    std::string chosen;  ///< id of the record predicted fastest
    double regret = 0.0; ///< its measured time / the best measured time - 1
    double tau = 0.0;    ///< Kendall's tau-b of measured and predicted times, -1 to 1

    friend bool operator==(const SweepRanking&, const SweepRanking&) = default;
};

/// The sweeps of the records that share a key, and the order of all their timed records.
struct GroupRanking {
    std::string name;
    std::int64_t sweeps = 0;
    double median_regret = 0.0;
    double worst_regret = 0.0;
    std::int64_t best_chosen = 0; ///< sweeps without regret
    double median_tau = 0.0;
    std::int64_t rows = 0;    ///< timed records, in sweeps or not
    double correlation = 0.0; ///< Spearman's, of measured and predicted times of all of them

    friend bool operator==(const GroupRanking&, const GroupRanking&) = default;
};

/// A record that says it was the best of a search (flag best-of-search), among the layouts such a
/// search looks at: every dp, tp, pp and micro-batch that is legal and does not run out of memory,
/// states whole or sharded as in ZeRO-1 (or as published), the rest as published.
struct GridRanking {
    std::string id;
    std::string group;
    std::string skipped;      ///< why it could not be ranked; empty: it was
    std::int64_t layouts = 0; ///< in the grid
    std::int64_t rank = 0;    ///< of the published layout by predicted time, from 1
    double gap = 0.0;         ///< its predicted time / the least predicted time - 1
    std::string best;         ///< layout predicted fastest, canonical text

    friend bool operator==(const GridRanking&, const GridRanking&) = default;
};

struct RunRanking {
    std::vector<SweepRanking> sweeps; ///< of four or more timed records, as they first appear
    /// With two or more timed records, as they first appear; "all" last if there are several.
    std::vector<GroupRanking> groups;
    std::vector<GridRanking> grids; ///< in the order of the records

    friend bool operator==(const RunRanking&, const RunRanking&) = default;
};

/// Kendall's tau-b: (concordant - discordant pairs) over pairs not tied; 0 where all are tied.
/// Source: M. G. Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);
/// Correlation of ranks, ties with their mean rank; 0 for fewer than two values or no spread.
double spearman_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// `predictions[i]` belongs to `records[i]`; grouped by group_key. Errors: data files that are
/// missing or broken.
sim::Result<RunRanking> rank_runs(const std::vector<sim::RunRecord>& records,
                                  const std::vector<RunPrediction>& predictions,
                                  const std::vector<std::string>& by);

/// The published layout of one record in its grid, whatever its flags.
GridRanking rank_in_grid(const sim::RunRecord& record, Reproducer& reproducer);

} // namespace shardplan::plan
