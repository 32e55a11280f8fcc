#include "planner/analysis/collectives_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "simulator/io/apply_calibration.hpp"

namespace shardplan::plan {
namespace {

using sim::CollectiveRecord;
using sim::Constant;
using sim::FabricProfile;
using sim::Result;

constexpr std::size_t fewest_records = 4;

/// A constant that the fit moves.
struct Knob {
    std::string name; ///< within the profile, "tree.half_size"
    Constant* constant = nullptr;
    double lo = 0.0;
    double hi = 1.0;
    double start = 0.0;
    double step = 0.0; ///< relative, of the next trial
};

/// The constants of a profile with the range in which any network lies.
std::vector<Knob> knobs_of(FabricProfile& fabric) {
    struct Range {
        double lo, hi;
    };
    constexpr Range share{0.005, 1.0};
    constexpr Range seconds{1e-7, 1e-2};
    constexpr Range bytes{1e3, 1e10};
    constexpr Range power{0.3, 1.0};
    std::vector<Knob> knobs;
    const auto add = [&](std::string name, Constant& c, Range range) {
        if (c.value > 0.0) {
            knobs.push_back({std::move(name), &c, range.lo, range.hi, c.value, 0.0});
        }
    };
    add("bandwidth_efficiency", fabric.bandwidth_efficiency, share);
    add("launch_latency", fabric.launch_latency, seconds);
    add("half_size", fabric.half_size, bytes);
    add("ramp", fabric.ramp, power);
    const auto add_transport = [&](const std::string& name,
                                   std::optional<sim::TransportProfile>& transport) {
        if (transport) {
            add(name + ".bandwidth_efficiency", transport->bandwidth_efficiency, share);
            add(name + ".half_size", transport->half_size, bytes);
            add(name + ".step_latency", transport->step_latency, seconds);
        }
    };
    add_transport("in_switch", fabric.in_switch);
    add_transport("tree", fabric.tree);
    add_transport("low_latency_128", fabric.low_latency_128);
    add_transport("low_latency", fabric.low_latency);
    add("step_latency", fabric.step_latency, seconds);
    if (fabric.floor_latency) {
        add("floor_latency", *fabric.floor_latency, seconds);
    }
    return knobs;
}

/// A measured point.
struct Point {
    sim::Collective op = sim::Collective::all_reduce;
    double bytes = 0.0;
    double seconds = 0.0;
};

std::optional<Point> point_of(const CollectiveRecord& record) {
    const auto op = sim::enum_from<sim::Collective>(record.collective);
    if (!op || record.size_bytes.value_or(0) < 1 || record.time_us.value_or(0.0) <= 0.0) {
        return std::nullopt;
    }
    return Point{*op, static_cast<double>(*record.size_bytes), *record.time_us * 1e-6};
}

/// Predicted / measured - 1 at every point.
std::vector<double> errors_at(const CollectiveSetup& setup, const std::vector<Point>& points) {
    const sim::GroupPath path = setup.path();
    std::vector<double> errors;
    for (const Point& p : points) {
        errors.push_back(collective_time(path, p.op, sim::Bytes(p.bytes)).value() / p.seconds -
                         1.0);
    }
    return errors;
}

/// What the search makes small: the mean size of the logarithm of predicted over measured, and a
/// little for every constant that moves, so that those the points do not decide stay.
double misfit(const CollectiveSetup& setup, const std::vector<Point>& points,
              const std::vector<Knob>& knobs) {
    constexpr double weight_of_moving = 2e-4;
    double sum = 0.0;
    for (const double error : errors_at(setup, points)) {
        sum += std::abs(std::log1p(std::max(error, -1.0 + 1e-9)));
    }
    double moved = 0.0;
    for (const Knob& knob : knobs) {
        moved += std::abs(std::log(knob.constant->value / knob.start));
    }
    return sum / static_cast<double>(points.size()) + weight_of_moving * moved;
}

/// Moves each constant up or down by a share of itself as long as that helps; shares grow where it
/// did and shrink where it did not.
void search(CollectiveSetup& setup, const std::vector<Point>& points, std::vector<Knob>& knobs) {
    constexpr int rounds = 40;
    constexpr double first_step = 0.4;
    constexpr double smallest_step = 0.002;
    for (Knob& knob : knobs) {
        knob.step = first_step;
    }
    double best = misfit(setup, points, knobs);
    for (int round = 0; round < rounds; ++round) {
        for (Knob& knob : knobs) {
            if (knob.step < smallest_step) {
                continue;
            }
            const double before = knob.constant->value;
            bool better = false;
            for (const double factor : {1.0 + knob.step, 1.0 / (1.0 + knob.step)}) {
                knob.constant->value = std::clamp(before * factor, knob.lo, knob.hi);
                const double now = misfit(setup, points, knobs);
                if (now < best) {
                    best = now;
                    better = true;
                    break;
                }
                knob.constant->value = before;
            }
            knob.step *= better ? 1.3 : 0.6;
        }
    }
}

/// Points of bandwidth-bound size far below what the links give.
std::string flag_of(const std::vector<double>& errors, const std::vector<Point>& points) {
    constexpr double large = 16.0 * 1024 * 1024;
    std::vector<double> at_large;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (points[i].bytes >= large) {
            at_large.push_back(errors[i]);
        }
    }
    return remark_on(median_of(at_large));
}

/// Records of one shape: same place, same ranks.
std::string shape_of(const CollectiveRecord& r) {
    const auto text = [](const auto& value) { return value ? std::to_string(*value) : "?"; };
    return r.system + " " + r.device.value_or("?") + " " + text(r.nodes) + "x" +
           text(r.ranks_per_node) + " " + r.algorithm.value_or("");
}

} // namespace

Result<FabricFit> fit_fabric(const CollectiveReproducer& reproducer,
                             const std::vector<CollectiveRecord>& records) {
    std::vector<Point> points;
    for (const CollectiveRecord& record : records) {
        if (shape_of(record) != shape_of(records.front())) {
            return sim::Error{sim::ErrorCode::bad_input, record.id,
                              "the records are of several systems or shapes",
                              "fit them one by one"};
        }
        if (const auto point = point_of(record)) {
            points.push_back(*point);
        }
    }
    if (points.size() < fewest_records) {
        return sim::Error{sim::ErrorCode::bad_input,
                          records.empty() ? "collectives" : records.front().system,
                          "there are " + std::to_string(points.size()) + " usable records",
                          "measure at least four sizes"};
    }
    auto setup = reproducer.reproduce(records.front());
    if (!setup) {
        return setup.error();
    }
    const sim::GroupPath path = setup->path();
    FabricFit out;
    out.system = records.front().system;
    out.nodes = records.front().nodes.value_or(1);
    out.ranks = path.ranks;
    out.fabric = std::string(path.levels.back().name);
    FabricProfile* fabric = nullptr;
    for (FabricProfile& profile : setup->scenario.fabrics) {
        fabric = profile.name == out.fabric ? &profile : fabric;
    }
    if (fabric == nullptr) {
        return sim::Error{sim::ErrorCode::not_found, out.system, "its network has no profile",
                          "name the kind of network"};
    }
    std::vector<Knob> knobs = knobs_of(*fabric);
    const std::vector<double> before = errors_at(*setup, points);
    out.before = error_figures(before);
    out.flag = flag_of(before, points);
    search(*setup, points, knobs);
    out.residuals = errors_at(*setup, points);
    out.after = error_figures(out.residuals);
    const auto [least, most] =
        std::minmax_element(points.begin(), points.end(),
                            [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
    for (const Knob& knob : knobs) {
        if (knob.constant->value == knob.start) {
            continue;
        }
        out.calibration.entries.push_back(
            {"fabric." + out.fabric + "." + knob.name, out.fabric, knob.constant->value,
             least->bytes, most->bytes, out.after.median, static_cast<std::int64_t>(points.size()),
             "fitted to collectives of " + out.system});
    }
    out.calibration.machine = out.system;
    return out;
}

Result<std::vector<FabricFit>> fit_fabrics(const std::vector<CollectiveRecord>& records) {
    auto reproducer = CollectiveReproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    std::vector<std::string> order;
    std::map<std::string, std::vector<CollectiveRecord>> shapes;
    for (const CollectiveRecord& record : records) {
        if (record.fault_noted || !point_of(record)) {
            continue;
        }
        auto& shape = shapes[shape_of(record)];
        if (shape.empty()) {
            order.push_back(shape_of(record));
        }
        shape.push_back(record);
    }
    std::vector<FabricFit> out;
    for (const std::string& shape : order) {
        if (auto fit = fit_fabric(*reproducer, shapes[shape])) {
            out.push_back(std::move(*fit));
        }
    }
    return out;
}

Result<std::vector<CurveTest>> test_curves(const std::vector<CollectiveRecord>& records) {
    constexpr std::int64_t mib = std::int64_t{1} << 20;
    constexpr std::size_t fewest_sizes = 8;
    auto reproducer = CollectiveReproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    std::vector<std::string> order;
    std::map<std::string, std::vector<CollectiveRecord>> curves;
    for (const CollectiveRecord& record : records) {
        if (record.size_bytes.value_or(0) < mib || record.fault_noted || !point_of(record)) {
            continue;
        }
        auto& curve = curves[record.curve];
        if (curve.empty()) {
            order.push_back(record.curve);
        }
        curve.push_back(record);
    }
    std::vector<CurveTest> out;
    for (const std::string& name : order) {
        std::set<std::int64_t> sizes;
        for (const CollectiveRecord& record : curves[name]) {
            sizes.insert(*record.size_bytes);
        }
        if (sizes.size() < fewest_sizes) {
            continue;
        }
        std::vector<CollectiveRecord> seen;
        std::vector<Point> unseen;
        for (const CollectiveRecord& record : curves[name]) {
            const auto index = std::distance(sizes.begin(), sizes.find(*record.size_bytes));
            if (index % 2 == 0) {
                seen.push_back(record);
            } else {
                unseen.push_back(*point_of(record));
            }
        }
        const auto fit = fit_fabric(*reproducer, seen);
        auto setup = reproducer->reproduce(seen.front());
        if (!fit || !setup) {
            continue;
        }
        setup->scenario.calibration = fit->calibration;
        if (const auto applied = sim::apply_calibration(setup->scenario); !applied) {
            return applied.error();
        }
        out.push_back({name, static_cast<std::int64_t>(sizes.size()),
                       error_figures(errors_at(*setup, unseen))});
    }
    return out;
}

} // namespace shardplan::plan
