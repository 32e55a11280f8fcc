#include "planner/analysis/collectives_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "planner/analysis/knob_search.hpp"
#include "simulator/io/apply_calibration.hpp"

namespace shardplan::plan {
namespace {

using sim::CollectiveRecord;
using sim::Constant;
using sim::FabricProfile;
using sim::Result;

constexpr std::size_t fewest_records = 4;

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
            knobs.push_back({std::move(name), {&c}, range.lo, range.hi, c.value, 0.0});
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
    if (fabric.reduction_rate) {
        add("reduction_rate", *fabric.reduction_rate, Range{1e8, 1e13});
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

/// Records that share a path.
struct Shape {
    CollectiveSetup setup;
    std::vector<std::size_t> points; ///< which of them
};

/// Predicted / measured - 1 at every point of the shapes.
std::vector<double> errors_at(const std::vector<Shape>& shapes, const std::vector<Point>& points) {
    std::vector<double> errors(points.size());
    for (const Shape& shape : shapes) {
        const sim::GroupPath path = shape.setup.path();
        for (const std::size_t i : shape.points) {
            const Point& p = points[i];
            errors[i] = collective_time(path, p.op, sim::Bytes(p.bytes)).value() / p.seconds - 1.0;
        }
    }
    return errors;
}

/// What the search makes small: the mean size of the logarithm of predicted over measured, and a
/// little for every constant that moves, so that those the points do not decide stay.
double misfit(const std::vector<Shape>& shapes, const std::vector<Point>& points,
              const std::vector<Knob>& knobs) {
    constexpr double weight_of_moving = 2e-4;
    double sum = 0.0;
    for (const double error : errors_at(shapes, points)) {
        sum += std::abs(std::log1p(std::max(error, -1.0 + 1e-9)));
    }
    double moved = 0.0;
    for (const Knob& knob : knobs) {
        moved += std::abs(std::log(knob.value() / knob.start));
    }
    return sum / static_cast<double>(points.size()) + weight_of_moving * moved;
}

/// Puts back what hardly moved: the points do not decide it.
void settle(const std::vector<Knob>& knobs) {
    constexpr double least_move = 0.02;
    for (const Knob& knob : knobs) {
        if (std::abs(knob.value() / knob.start - 1.0) < least_move) {
            knob.set(knob.start);
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
           text(r.ranks_per_node) + " " + r.algorithm.value_or("") + " " + r.protocol.value_or("");
}

/// The shapes of records, each with the setup of its first one. Errors: those of reproduce().
Result<std::vector<Shape>> shapes_of(const CollectiveReproducer& reproducer,
                                     const std::vector<CollectiveRecord>& records,
                                     const sim::Calibration& known, std::vector<Point>& points) {
    std::vector<Shape> shapes;
    std::map<std::string, std::size_t> place;
    for (const CollectiveRecord& record : records) {
        const auto point = point_of(record);
        if (!point) {
            continue;
        }
        const auto [it, is_new] = place.try_emplace(shape_of(record), shapes.size());
        if (is_new) {
            auto setup = reproducer.reproduce(record);
            if (!setup) {
                return setup.error();
            }
            setup->scenario.calibration = known;
            if (const auto applied = sim::apply_calibration(setup->scenario); !applied) {
                return applied.error();
            }
            shapes.push_back({std::move(*setup), {}});
        }
        shapes[it->second].points.push_back(points.size());
        points.push_back(*point);
    }
    return shapes;
}

/// The knobs of the outermost network of all shapes, and its name. Errors: the shapes differ in it.
Result<std::vector<Knob>> shared_knobs(std::vector<Shape>& shapes, const std::string& system,
                                       std::string& fabric) {
    std::vector<Knob> knobs;
    for (Shape& shape : shapes) {
        const sim::GroupPath path = shape.setup.path();
        const std::string name(path.levels.back().name);
        if (!knobs.empty() && name != fabric) {
            return sim::Error{sim::ErrorCode::bad_input, system,
                              "the records are of several networks: " + fabric + " and " + name,
                              "fit them one by one"};
        }
        fabric = name;
        std::vector<Knob> own;
        for (FabricProfile& profile : shape.setup.scenario.fabrics) {
            if (profile.name == name) {
                own = knobs_of(profile);
            }
        }
        if (own.empty()) {
            return sim::Error{sim::ErrorCode::not_found, system, "its network has no profile",
                              "name the kind of network"};
        }
        if (knobs.empty()) {
            knobs = std::move(own);
            continue;
        }
        for (std::size_t i = 0; i < knobs.size(); ++i) {
            knobs[i].constants.push_back(own[i].constants.front());
        }
    }
    return knobs;
}

/// Would a tenth more or less of it fit worse? Then the points say where it is, even if the fit
/// left it there.
bool is_decided(const Knob& knob, const std::vector<Shape>& shapes,
                const std::vector<Point>& points, const std::vector<Knob>& knobs) {
    constexpr double least_change = 0.002; // of the mean relative deviation
    const double value = knob.value();
    const double here = misfit(shapes, points, knobs);
    bool decided = true;
    for (const double factor : {1.1, 1.0 / 1.1}) {
        const double there = std::clamp(value * factor, knob.lo, knob.hi);
        knob.set(there);
        decided =
            decided && (there == value || misfit(shapes, points, knobs) > here + least_change);
        knob.set(value);
    }
    return decided;
}

/// Constants that the points decide, as they are listed and as they are calibrated.
void take_decided(const std::vector<Shape>& shapes, const std::vector<Point>& points,
                  const std::vector<Knob>& knobs, FabricFit& out) {
    const auto [least, most] =
        std::minmax_element(points.begin(), points.end(),
                            [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
    for (const Knob& knob : knobs) {
        if (knob.value() == knob.start && !is_decided(knob, shapes, points, knobs)) {
            continue;
        }
        const std::string path = "fabric." + out.fabric + "." + knob.name;
        out.decided.push_back({path, knob.constants.front()->unit, knob.start, knob.value()});
        out.calibration.entries.push_back(
            {path, out.fabric, knob.value(), least->bytes, most->bytes, out.after.median,
             static_cast<std::int64_t>(points.size()), "fitted to collectives of " + out.system});
    }
}

} // namespace

Result<FabricFit> fit_fabric(const CollectiveReproducer& reproducer,
                             const std::vector<CollectiveRecord>& records,
                             const sim::Calibration& known) {
    for (const CollectiveRecord& record : records) {
        if (record.system != records.front().system || record.device != records.front().device) {
            return sim::Error{sim::ErrorCode::bad_input, record.id,
                              "the records are of several systems or devices",
                              "fit them one by one"};
        }
    }
    std::vector<Point> points;
    auto shapes = shapes_of(reproducer, records, known, points);
    if (!shapes) {
        return shapes.error();
    }
    if (points.size() < fewest_records) {
        return sim::Error{
            sim::ErrorCode::bad_input, records.empty() ? "collectives" : records.front().system,
            "there are fewer than four usable records", "measure at least four sizes"};
    }
    FabricFit out;
    out.system = records.front().system;
    out.device = records.front().device.value_or("");
    auto knobs = shared_knobs(*shapes, out.system, out.fabric);
    if (!knobs) {
        return knobs.error();
    }
    for (const Shape& shape : *shapes) {
        const std::int64_t nodes = node_count(shape.setup.scenario.cluster);
        const FitShape one{nodes, shape.setup.path().ranks};
        if (std::find(out.shapes.begin(), out.shapes.end(), one) == out.shapes.end()) {
            out.shapes.push_back(one);
        }
    }
    const std::vector<double> before = errors_at(*shapes, points);
    out.before = error_figures(before);
    out.flag = flag_of(before, points);
    search(*knobs, [&] { return misfit(*shapes, points, *knobs); });
    settle(*knobs);
    out.residuals = errors_at(*shapes, points);
    out.after = error_figures(out.residuals);
    take_decided(*shapes, points, *knobs, out);
    out.calibration.machine = out.system;
    return out;
}

Result<FabricFits> fit_fabrics(const std::vector<CollectiveRecord>& records,
                               const std::optional<sim::Cluster>& machine) {
    auto reproducer = CollectiveReproducer::make(machine);
    if (!reproducer) {
        return reproducer.error();
    }
    FabricFits out;
    const auto leave_out = [&out](const CollectiveRecord& record, const std::string& why) {
        for (NotFitted& known : out.left_out) {
            if (known.system == record.system && known.why == why) {
                ++known.records;
                return;
            }
        }
        out.left_out.push_back({record.system, 1, why});
    };
    std::vector<std::string> order;
    std::map<std::string, std::vector<CollectiveRecord>> groups;
    std::map<std::string, Result<std::string>> networks; // by shape
    for (const bool one_node : {true, false}) {
        for (const CollectiveRecord& record : records) {
            if ((record.nodes.value_or(1) <= 1) != one_node) {
                continue;
            }
            if (record.fault_noted || !point_of(record)) {
                leave_out(record, record.fault_noted
                                      ? "faulty: " + record.fault.value_or("by its source's word")
                                      : "no collective, size or time");
                continue;
            }
            auto known = networks.find(shape_of(record));
            if (known == networks.end()) {
                const auto setup = reproducer->reproduce(record);
                known = networks
                            .emplace(shape_of(record),
                                     setup ? Result<std::string>(
                                                 std::string(setup->path().levels.back().name))
                                           : Result<std::string>(setup.error()))
                            .first;
            }
            if (!known->second) {
                leave_out(record, known->second.error().what);
                continue;
            }
            const std::string key =
                record.system + "\n" + record.device.value_or("") + "\n" + *known->second;
            auto& group = groups[key];
            if (group.empty()) {
                order.push_back(key);
            }
            group.push_back(record);
        }
    }
    std::map<std::string, sim::Calibration> shown; // by system and device
    for (const std::string& key : order) {
        const std::vector<CollectiveRecord>& group = groups[key];
        sim::Calibration& known = shown[key.substr(0, key.rfind('\n'))];
        auto fit = fit_fabric(*reproducer, group, known);
        if (!fit) {
            for (const CollectiveRecord& record : group) {
                leave_out(record, fit.error().what + "; " + fit.error().hint);
            }
            continue;
        }
        known.entries.insert(known.entries.end(), fit->calibration.entries.begin(),
                             fit->calibration.entries.end());
        out.fits.push_back(std::move(*fit));
    }
    return out;
}

Result<sim::Calibration> calibration_of(const std::vector<FabricFit>& fits, std::string tool,
                                        std::string input) {
    sim::Calibration out;
    for (const FabricFit& fit : fits) {
        for (const sim::CalibrationEntry& entry : fit.calibration.entries) {
            for (const sim::CalibrationEntry& other : out.entries) {
                if (other.path == entry.path) {
                    return sim::Error{
                        sim::ErrorCode::bad_input, entry.path,
                        "it is fitted to several systems, and a calibration is of "
                        "one machine",
                        "name one of them with --system, as in --system \"" + fit.system + "\""};
                }
            }
            out.entries.push_back(entry);
        }
        out.machine = out.machine.empty() ? fit.system : out.machine;
    }
    out.id = "collectives of " + out.machine;
    out.tool = std::move(tool);
    out.input = std::move(input);
    return out;
}

Result<std::vector<CurveTest>> test_curves(const std::vector<CollectiveRecord>& records,
                                           const std::optional<sim::Cluster>& machine) {
    constexpr std::int64_t mib = std::int64_t{1} << 20;
    constexpr std::size_t fewest_sizes = 8;
    auto reproducer = CollectiveReproducer::make(machine);
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
        std::vector<CollectiveRecord> unseen;
        for (const CollectiveRecord& record : curves[name]) {
            const auto index = std::distance(sizes.begin(), sizes.find(*record.size_bytes));
            (index % 2 == 0 ? seen : unseen).push_back(record);
        }
        const auto fit = fit_fabric(*reproducer, seen);
        if (!fit) {
            continue;
        }
        std::vector<Point> points;
        const auto shapes = shapes_of(*reproducer, unseen, fit->calibration, points);
        if (!shapes) {
            return shapes.error();
        }
        out.push_back({name, static_cast<std::int64_t>(sizes.size()),
                       error_figures(errors_at(*shapes, points))});
    }
    return out;
}

} // namespace shardplan::plan
