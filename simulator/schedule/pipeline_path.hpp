#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/schedule/pipeline_passes.hpp"
#include "simulator/units/recent_table.hpp"

namespace shardplan::sim {

/// What the longest path through the passes of a pipeline is made of. Its length is linear in what
/// passes take, so one path serves all pipelines that are alike but for a factor and small shifts.
struct PipelinePath {
    std::vector<double> passes; ///< how many, by run of stages, chunk and PassKind
    double hops = 0.0;

    friend bool operator==(const PipelinePath&, const PipelinePath&) = default;
};

/// The longest path through the passes in the order of `pipeline_order`, from the beginning to the
/// end of all of them; for zero-bubble schedules whose stages step one after another (zb-h2, zb-v),
/// through the stage that takes longest from its first pass to its last one. `passes.chunks` is
/// filled.
PipelinePath longest_path(const PipelineShape& shape, const PipelinePasses& passes);

/// Paths by what they depend on, in whole parts: cached dimensionless makespans. Passes count in
/// 1 / `parts` of the longest one. Orders that are written down are played for 4 p micro-batches at
/// most, others for `most_passes` passes; what more micro-batches add is taken from what the last p
/// of those add, or the second half. A value follows from its arguments alone, whatever was asked
/// for before.
class PlayedPaths {
public:
    /// Seconds of the path under the durations that are given.
    double seconds(ScheduleKind kind, const PipelinePasses& passes, std::int64_t micro_batches,
                   std::int64_t chunks);

private:
    using Key = std::vector<std::int32_t>;

    static constexpr double parts = 64.0;
    static constexpr std::int64_t most_passes = 1 << 16;

    [[nodiscard]] const PipelinePath& path(const PipelineShape& shape);
    void fill_key(const PipelineShape& shape, const PipelinePasses& passes);

    RecentTable<Key, PipelinePath> known_{1U << 14U};
    Key key_;
    PipelinePasses whole_; ///< with chunks
    PipelinePasses round_; ///< in whole parts
};

} // namespace shardplan::sim
