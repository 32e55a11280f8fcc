#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/vary.hpp"
#include "planner/search/progress.hpp"

/// One or two inputs varied over a list of values, each point estimated.
namespace shardplan::plan {

/// The values of one input.
struct SweepAxis {
    std::string path; ///< as in FieldSetting
    std::vector<std::string> values;
    std::vector<double> numbers; ///< of the values, in base units; empty: names, not numbers
    sim::Dimension dimension = sim::Dimension::scalar;

    friend bool operator==(const SweepAxis&, const SweepAxis&) = default;
};

/// What became of a point.
enum class PointKind : std::uint8_t {
    fits,
    borderline,
    does_not_fit,
    not_legal, ///< the layout breaks a rule there
    no_plan,   ///< the search found nothing that fits
    no_input,  ///< the inputs contradict one another there
};

struct SweepPoint {
    std::vector<std::size_t> at; ///< index into the values of each axis
    PointKind kind = PointKind::fits;
    std::string why;     ///< one sentence where there is no estimate, else the verdict
    std::string layout;  ///< empty where there is none
    bool priced = false; ///< the figures below are filled
    std::int64_t devices = 0;
    std::int64_t global_batch = 0; ///< sequences
    std::int64_t sequence = 0;     ///< tokens
    double step_s = 0.0;
    double step_low_s = 0.0;
    double step_high_s = 0.0;
    double tokens_per_s = 0.0;
    double tokens_per_s_per_device = 0.0;
    double mfu = 0.0;
    double communication = 0.0; ///< share of the step
    double bubble = 0.0;        ///< share of the step
    double reserved_bytes = 0.0;
    double usable_bytes = 0.0;
    double margin_bytes = 0.0;
    double money_per_million_tokens = 0.0; ///< 0: no price is known
    double kilowatt_hours_per_million_tokens = 0.0;

    friend bool operator==(const SweepPoint&, const SweepPoint&) = default;
};

struct SweepRequest {
    std::string layout; ///< text form for every point; empty: planned anew at each
    sim::Objective objective = sim::Objective::time;
    ProgressSink* progress = nullptr; ///< may be null
};

struct Sweep {
    std::vector<SweepAxis> axes;    ///< one or two
    std::vector<SweepPoint> points; ///< the first axis varies slowest
    std::string layout;             ///< as asked for
    std::string title;              ///< "llama-3-70b on dgx-h100, megatron-core"

    friend bool operator==(const Sweep&, const Sweep&) = default;
};

/// "gpus=64..4096,job.sequence=4096,8192": one or two inputs, each with values or a range. `a..b`
/// doubles; `a..b:c` adds c; `a..b:xf` multiplies by f; the unit may stand at the last number only.
/// Errors: where it is not of the form, no such input, more than 10 000 points.
sim::Result<std::vector<SweepAxis>> parse_axes(std::string_view text, const sim::Scenario& base,
                                               std::string_view where);

/// Estimates every point. A point that cannot be estimated says why and does not stop the others.
Sweep sweep(const sim::Scenario& base, std::vector<SweepAxis> axes, const VaryRules& rules,
            const SweepRequest& options);

/// One line per point with a header, RFC 4180; numbers in base units, empty where there is none.
std::string sweep_csv(const Sweep& sweep);
/// A page that needs nothing but itself: plots as inline SVG, tables, light and dark.
std::string sweep_html(const Sweep& sweep);

std::string_view name_of(PointKind kind);

} // namespace shardplan::plan
