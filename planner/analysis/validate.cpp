#include "planner/analysis/validate.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan {
namespace {

/// 10^9 / 2^30: the true figure behind a "GB" of unknown kind lies between this share and all of
/// it.
constexpr double gb_in_gib = 0.931;

struct Grouping {
    const char* name;
    std::string (*key)(const sim::RunRecord&);
};

std::string or_unknown(const std::optional<std::string>& text) { return text.value_or("unknown"); }

std::string pipeline_of(const sim::RunRecord& r) {
    return r.layout.pp.value_or(1) > 1 ? "pipeline" : "no pipeline";
}

std::string attention_of(const sim::RunRecord& r) {
    const auto& flash = r.layout.flash_attention;
    return !flash ? "unknown" : *flash ? "flash" : "unfused";
}

constexpr Grouping groupings[] = {
    {"group", [](const sim::RunRecord& r) { return r.group; }},
    {"stack", [](const sim::RunRecord& r) { return r.stack.name; }},
    {"device", [](const sim::RunRecord& r) { return or_unknown(r.cluster.device); }},
    {"model", [](const sim::RunRecord& r) { return r.model.name; }},
    {"precision", [](const sim::RunRecord& r) { return or_unknown(r.layout.precision); }},
    {"recompute", [](const sim::RunRecord& r) { return or_unknown(r.layout.recompute); }},
    {"attention", attention_of},
    {"pipeline", pipeline_of},
    {"gpus",
     [](const sim::RunRecord& r) { return std::to_string(r.cluster.gpus.value_or(0)) + " GPUs"; }},
};

/// The picks an entry is compared with.
const MemoryPicks& picks_of(const RunPrediction& prediction, const sim::RunMemory& entry) {
    return entry.kind == "reserved"  ? prediction.reserved
           : entry.kind == "process" ? prediction.process
                                     : prediction.allocated;
}

/// Errors of one group while they are collected.
struct Collected {
    GroupFigures figures;
    std::vector<double> time, allocated, reserved, process, shown;
    std::vector<double> time_off, allocated_off, reserved_off, process_off; ///< in bands
};

void collect_memory(const sim::RunRecord& record, const RunPrediction& prediction, Collected& out) {
    const auto scored = scored_entries(record);
    for (const sim::RunMemory& entry : scored) {
        const double error = memory_error(predicted_gib(prediction, entry), entry);
        const bool allocated = entry.kind == "allocated";
        const bool reserved = entry.kind == "reserved";
        auto& list = allocated ? out.allocated : reserved ? out.reserved : out.process;
        auto& off = allocated ? out.allocated_off : reserved ? out.reserved_off : out.process_off;
        const MemoryPicks& picks = picks_of(prediction, entry);
        if (usable_for(record, "memory")) {
            list.push_back(error);
            off.push_back(distance_in_band({picks.low, 1.0, picks.high}, 1.0 / (1.0 + error)));
        }
    }
    for (const sim::RunMemory& entry : record.measured.memory) {
        if (entry.kind == "analytic" || entry.kind_uncertain) {
            out.shown.push_back(memory_error(predicted_gib(prediction, entry), entry));
        }
    }
}

void collect(const sim::RunRecord& record, const RunPrediction& prediction, Collected& out) {
    ++out.figures.records;
    if (!prediction.skipped.empty()) {
        ++out.figures.skipped;
        return;
    }
    if (is_timed(record)) {
        out.time.push_back(prediction.step_time_s / *record.measured.step_time_s - 1.0);
        out.time_off.push_back(distance_in_band(
            {prediction.step_time_low_s, prediction.step_time_s, prediction.step_time_high_s},
            *record.measured.step_time_s));
    }
    collect_memory(record, prediction, out);
    if (!usable_for(record, "fit")) {
        return;
    }
    if (prediction.verdict == sim::Verdict::borderline) {
        ++out.figures.fit.borderline;
    } else if ((prediction.verdict == sim::Verdict::fits) == !record.measured.oom) {
        ++out.figures.fit.right;
    } else {
        ++out.figures.fit.wrong;
    }
}

GroupFigures finish(Collected collected) {
    GroupFigures out = std::move(collected.figures);
    out.time = error_figures(collected.time, collected.time_off);
    out.allocated = error_figures(collected.allocated, collected.allocated_off);
    out.reserved = error_figures(collected.reserved, collected.reserved_off);
    out.process = error_figures(collected.process, collected.process_off);
    out.shown = error_figures(collected.shown);
    return out;
}

} // namespace

double median_of(std::vector<double> values) {
    if (values.empty()) {
        return 0.0;
    }
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

double percentile_of(std::vector<double> values, double share) {
    if (values.empty()) {
        return 0.0;
    }
    std::sort(values.begin(), values.end());
    // The small amount keeps 0.9 x 10 at rank 9: the product is not exact in binary.
    const auto rank =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()) - 1e-9));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

ErrorFigures error_figures(const std::vector<double>& errors) {
    std::vector<double> sizes;
    std::transform(errors.begin(), errors.end(), std::back_inserter(sizes),
                   [](double error) { return std::abs(error); });
    ErrorFigures out;
    out.rows = static_cast<std::int64_t>(errors.size());
    out.median = median_of(sizes);
    out.p90 = percentile_of(sizes, 0.9);
    out.bias = median_of(errors);
    return out;
}

ErrorFigures error_figures(const std::vector<double>& errors,
                           const std::vector<double>& distances) {
    ErrorFigures out = error_figures(errors);
    if (distances.empty()) {
        return out;
    }
    const auto share = [&](double bands) {
        const auto inside = std::count_if(distances.begin(), distances.end(),
                                          [&](double distance) { return distance <= bands; });
        return static_cast<double>(inside) / static_cast<double>(distances.size());
    };
    out.within_one = share(1.0);
    out.within_two = share(2.0);
    return out;
}

double distance_in_band(const sim::Band<double>& band, double measured) {
    const double off = std::abs(measured - band.value);
    const double width = measured < band.value ? band.value - band.low : band.high - band.value;
    if (width > 0.0) {
        return off / width;
    }
    return off > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

bool is_timed(const sim::RunRecord& record) {
    return usable_for(record, "time") && record.measured.step_time_s.value_or(0.0) > 0.0;
}

double predicted_gib(const RunPrediction& prediction, const sim::RunMemory& entry) {
    const MemoryPicks& picks = picks_of(prediction, entry);
    if (entry.rank == "first") {
        return picks.first;
    }
    return entry.rank == "last" ? picks.last : picks.max;
}

double memory_error(double predicted, const sim::RunMemory& entry) {
    if (!entry.unit_uncertain) {
        return predicted / entry.gib - 1.0;
    }
    const double least = entry.gib * gb_in_gib;
    if (predicted < least) {
        return predicted / least - 1.0;
    }
    return predicted > entry.gib ? predicted / entry.gib - 1.0 : 0.0;
}

std::vector<sim::RunMemory> scored_entries(const sim::RunRecord& record) {
    std::vector<sim::RunMemory> out;
    for (const char* kind : {"allocated", "reserved", "process"}) {
        const auto found =
            std::find_if(record.measured.memory.begin(), record.measured.memory.end(),
                         [&](const sim::RunMemory& entry) {
                             return entry.kind == kind && !entry.kind_uncertain;
                         });
        if (found != record.measured.memory.end()) {
            out.push_back(*found);
        }
    }
    return out;
}

std::vector<std::string> grouping_names() {
    std::vector<std::string> out;
    for (const Grouping& grouping : groupings) {
        out.emplace_back(grouping.name);
    }
    return out;
}

sim::Status check_grouping(const std::vector<std::string>& by,
                           const std::vector<std::string>& names) {
    for (const std::string& name : by) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            return sim::Error{sim::ErrorCode::bad_input, "--by",
                              "records cannot be grouped by " + sim::in_quotes(name),
                              sim::nearest_hint(name, names)};
        }
    }
    return sim::Done{};
}

std::string group_key(const sim::RunRecord& record, const std::vector<std::string>& by) {
    std::string key;
    for (const Grouping& grouping : groupings) {
        if (std::find(by.begin(), by.end(), grouping.name) != by.end()) {
            key += (key.empty() ? "" : " / ") + grouping.key(record);
        }
    }
    return key;
}

std::vector<GroupFigures> score_predictions(const std::vector<sim::RunRecord>& records,
                                            const std::vector<RunPrediction>& predictions,
                                            const std::vector<std::string>& by) {
    std::vector<Collected> groups;
    std::map<std::string, std::size_t> index_of;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const std::string key = group_key(records[i], by);
        const auto [entry, is_new] = index_of.try_emplace(key, groups.size());
        if (is_new) {
            groups.emplace_back().figures.name = key;
        }
        collect(records[i], predictions[i], groups[entry->second]);
    }
    std::vector<GroupFigures> out;
    for (Collected& group : groups) {
        out.push_back(finish(std::move(group)));
    }
    return out;
}

GroupFigures score_all(const std::vector<sim::RunRecord>& records,
                       const std::vector<RunPrediction>& predictions) {
    Collected all;
    all.figures.name = "all";
    for (std::size_t i = 0; i < records.size(); ++i) {
        collect(records[i], predictions[i], all);
    }
    return finish(std::move(all));
}

} // namespace shardplan::plan
