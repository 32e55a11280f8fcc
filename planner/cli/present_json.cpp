#include "planner/cli/present.hpp"
#include "simulator/estimate/band.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan::cli {
namespace {

template <class Q>
void write_band(sim::JsonWriter& json, std::string_view key, const sim::Band<Q>& band) {
    json.begin_object(key)
        .member("low", band.low.value())
        .member("value", band.value.value())
        .member("high", band.high.value())
        .end_object();
}

template <class Kind, class Amounts>
void write_kinds(sim::JsonWriter& json, std::string_view key, const Amounts& amounts) {
    json.begin_object(key);
    for (std::size_t i = 0; i < amounts.amounts.size(); ++i) {
        if (amounts.amounts[i].value() != 0.0) {
            json.member(name_of(static_cast<Kind>(i)), amounts.amounts[i].value());
        }
    }
    json.end_object();
}

/// Standard deviations, relative to the step and to the memory of the deciding class.
void write_sigmas(sim::JsonWriter& json, const sim::Estimate& e) {
    json.begin_object("sigma").member("step", e.time.sigma);
    for (std::size_t i = 0; i < sim::error_class_count; ++i) {
        const auto error = static_cast<sim::ErrorClass>(i);
        const bool memory = error == sim::ErrorClass::memory;
        json.member(name_of(error), memory ? e.memory_sigma : e.time.sigmas[i]);
    }
    json.end_object();
}

void write_class(sim::JsonWriter& json, const sim::ClassMemory& c) {
    json.begin_object()
        .member("stage", c.stage)
        .member("node_group", c.node_group)
        .member("ranks", c.ranks)
        .member("example_rank", c.example_rank)
        .member("verdict", name_of(c.verdict))
        .member("peak_phase", name_of(c.peak_phase))
        .member("usable_bytes", c.usable.value());
    write_band(json, "allocated_bytes", c.allocated);
    write_band(json, "reserved_bytes", c.reserved);
    write_band(json, "process_bytes", c.process);
    write_kinds<sim::TensorKind>(json, "persistent_bytes", c.persistent);
    write_kinds<sim::TensorKind>(json, "at_peak_bytes", c.at_peak);
    json.begin_object("phase_peak_bytes");
    for (std::size_t i = 0; i < sim::phase_count; ++i) {
        if (c.phase_peaks[i].value() > 0.0) {
            json.member(name_of(static_cast<sim::Phase>(i)), c.phase_peaks[i].value());
        }
    }
    json.end_object();
    json.begin_object("host_phase_bytes");
    for (const sim::Phase phase : {sim::Phase::load, sim::Phase::step, sim::Phase::save}) {
        json.member(name_of(phase), c.host_phases[static_cast<std::size_t>(phase)].value());
    }
    json.end_object()
        .member("host_bytes", c.host.value())
        .member("nvme_bytes", c.nvme.value())
        .end_object();
}

} // namespace

void write_calibration(sim::JsonWriter& json, const sim::Scenario& scenario) {
    const std::vector<std::string> paths = sim::calibrated_constants(scenario);
    json.begin_object("calibration")
        .member("calibrated", !paths.empty())
        .member("id", scenario.calibration.id)
        .member("date", scenario.calibration.date)
        .member("machine", scenario.calibration.machine)
        .begin_array("constants");
    for (const std::string& path : paths) {
        json.value(path);
    }
    json.end_array().end_object();
}

void write_scenario_summary(sim::JsonWriter& json, const sim::Evaluator& evaluator) {
    const sim::Scenario& scenario = evaluator.scenario();
    const sim::Resolved& r = evaluator.resolved();
    const sim::ParameterCounts counts = sim::count_parameters(scenario.model);
    json.begin_object("model")
        .member("name", scenario.model.name)
        .member("total", counts.total)
        .member("active", counts.active)
        .end_object();
    json.begin_object("cluster")
        .member("name", scenario.cluster.name)
        .member("gpus", sim::device_count(scenario.cluster))
        .member("summary", sim::summary(scenario.cluster))
        .end_object();
    json.begin_object("job")
        .member("sequence", r.sequence)
        .member("global_batch", r.global_batch)
        .member("compute", name_of(r.compute))
        .member("method", name_of(r.method.kind))
        .member("optimizer", name_of(r.optimizer))
        .end_object();
    json.begin_object("stack")
        .member("name", scenario.stack.name)
        .member("version", scenario.stack.version)
        .end_object();
    write_calibration(json, scenario);
}

void write_estimate(sim::JsonWriter& json, const Shown& shown) {
    const sim::Estimate& e = shown.estimate;
    json.begin_object()
        .member("layout", shown.layout)
        .member("verdict", name_of(e.verdict))
        .member("verdict_text", e.verdict_text)
        .member("margin_bytes", e.margin.value())
        .member("deciding_class", e.deciding_class)
        .member("deciding_term", name_of(e.deciding));
    write_band(json, "step_time_s", e.time.total);
    write_sigmas(json, e);
    write_kinds<sim::TimeKind>(json, "exposed_s", e.time.exposed);
    write_kinds<sim::TimeKind>(json, "hidden_s", e.time.hidden);
    json.member("micro_batches", e.micro_batches)
        .member("devices_used", e.devices_used)
        .member("tokens_per_s", e.tokens_per_second)
        .member("tokens_per_s_per_device", e.tokens_per_second_per_device)
        .member("samples_per_s", e.samples_per_second)
        .member("mfu", e.mfu)
        .member("hfu", e.hfu)
        .member("peak", e.peak_name)
        .member("money_per_hour", e.money_per_hour)
        .member("money_per_million_tokens", e.money_per_million_tokens)
        .member("kilowatt_hours_per_million_tokens", e.kilowatt_hours_per_million_tokens)
        .member("calibrated", e.calibrated);
    json.begin_array("classes");
    for (const sim::ClassMemory& c : e.classes) {
        write_class(json, c);
    }
    json.end_array();
    json.begin_array("links");
    for (const sim::LinkLoad& link : e.links) {
        json.begin_object()
            .member("dimension", link.dim)
            .member("tier", link.tier)
            .member("ranks", link.ranks)
            .member("first_stage", link.first_stage)
            .member("stages", link.stages)
            .member("bytes_per_step", link.per_step.value())
            .member("time_s", link.time.value())
            .end_object();
    }
    json.end_array().end_object();
}

void write_notes(sim::JsonWriter& json, const std::vector<sim::Assumption>& assumptions,
                 const std::vector<sim::Warning>& warnings) {
    json.begin_array("assumptions");
    for (const sim::Assumption& assumption : assumptions) {
        json.value(assumption);
    }
    json.end_array();
    json.begin_array("warnings");
    for (const sim::Warning& warning : warnings) {
        json.begin_object().member("id", warning.id).member("text", warning.text).end_object();
    }
    json.end_array();
}

void write_refusals(sim::JsonWriter& json, const std::vector<sim::Refusal>& refusals) {
    json.begin_array("refusals");
    for (const sim::Refusal& refusal : refusals) {
        json.begin_object()
            .member("id", refusal.id)
            .member("field", refusal.field)
            .member("rule", refusal.rule);
        json.begin_array("numbers");
        for (const double number : refusal.numbers) {
            json.value(number);
        }
        json.end_array();
        json.begin_array("nearest");
        for (const std::string& text : refusal.nearest) {
            json.value(text);
        }
        json.end_array().end_object();
    }
    json.end_array();
}

} // namespace shardplan::plan::cli
