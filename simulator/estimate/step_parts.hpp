#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "simulator/estimate/band.hpp"
#include "simulator/estimate/collective_memo.hpp"
#include "simulator/estimate/unit_time.hpp"
#include "simulator/memory/rank_parameters.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// A unit on a stage: which one, how often, and how many of them are fully recomputed. `unit`:
/// index of the block kind, then behind the last one the embedding, the head and, where the model
/// predicts further tokens, what joins such a module's block to the trunk.
struct UnitUse {
    std::int64_t unit = 0;
    double count = 0.0;
    double recomputed = 0.0;

    friend bool operator==(const UnitUse&, const UnitUse&) = default;
};

/// What a stage runs; stages that run the same share one.
struct StageShape {
    std::vector<UnitUse> units;
    /// By chunk, if there are several: of a micro-batch that comes there.
    std::vector<std::vector<UnitUse>> chunks;
    double blocks = 0.0;
    bool has_embedding = false;
    bool has_head = false;

    friend bool operator==(const StageShape&, const StageShape&) = default;
};
/// One shape per stage.
std::vector<StageShape> stage_shapes(const ModelSpec& model, const Layout& layout,
                                     const RecomputePlan& plan, const std::vector<Stage>& stages);

/// Neighbouring stages of one shape.
struct ShapeRun {
    StageShape shape;
    std::int64_t count = 1;  ///< stages
    std::size_t same_as = 0; ///< the first run of this shape

    friend bool operator==(const ShapeRun&, const ShapeRun&) = default;
};
/// `shapes`: one per stage.
std::vector<ShapeRun> runs_of(const std::vector<StageShape>& shapes);

/// What is fixed for a Scenario, prepared once.
struct StepContext {
    const Scenario* scenario = nullptr;
    const Resolved* resolved = nullptr;
    ComputeRates rates; ///< of the slowest device
    Overlap overlap;
    double hidden = 0.0;             ///< elements of the residual stream
    double activation_element = 2.0; ///< bytes
    double parameter_element = 2.0;
    double gradient_element = 4.0;
    double host_link = 0.0;   ///< bytes/s between device and host, one direction
    double host_memory = 0.0; ///< bytes/s an update on the host moves, for one device
    double nvme = 0.0;        ///< bytes/s of local storage for one device
    TimeSpread spread;        ///< of the constants behind all of these
};
StepContext step_context(const Scenario& scenario, const Resolved& resolved);

/// Times of units that somebody else holds, by block kind, then embedding, then head.
class UnitTimes {
public:
    UnitTimes() = default;
    explicit UnitTimes(const std::vector<const UnitTime*>& units)
        : units_(units.data()), size_(units.size()) {}
    [[nodiscard]] const UnitTime& operator[](std::size_t unit) const { return *units_[unit]; }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    const UnitTime* const* units_ = nullptr;
    std::size_t size_ = 0;
};

/// Cached parts of one layout: times of its units, parameters of its units, paths of its groups.
struct LayoutParts {
    GroupPaths paths{};
    LinkSpread spread{};                    ///< of the time on `paths`
    UnitTimes units;                        ///< as UnitUse counts them
    std::vector<RankParameters> parameters; ///< of the same units
    /// Of `paths`. Changes no figure; as the parts, it belongs to one thread.
    mutable CollectiveMemo collectives;
    /// Numbers that tell apart what caches hold; 0: nobody counts them.
    std::uint64_t row = 0;          ///< layouts that differ in the micro-batch only
    std::uint64_t units_number = 0; ///< of `units`
    std::uint64_t runs_number = 0;  ///< of the stages of the layout, with what they recompute
};
/// The same from scratch, with the times it points to.
struct OwnLayoutParts {
    std::unique_ptr<Paths> paths;
    std::vector<std::unique_ptr<UnitTime>> times;
    std::vector<const UnitTime*> units;
    LayoutParts parts;
};
OwnLayoutParts layout_parts(const StepContext& context, const Layout& layout);

std::int64_t unit_count(const ModelSpec& model);
/// Parameters of every unit on one rank, replacing what is in `out`. `out.size()` = unit_count.
void set_unit_parameters(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                         std::vector<RankParameters>& out);
/// The operators of a unit as LayoutParts prices them. `part`: of a block. `room`: a list whose
/// memory is used again.
OpList unit_ops(const StepContext& context, const Layout& layout, std::int64_t unit,
                BlockPart part = BlockPart::whole, OpList room = {});
std::string_view unit_name(const ModelSpec& model, std::int64_t unit);

} // namespace shardplan::sim
