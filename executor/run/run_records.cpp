#include "executor/run/run_records.hpp"

#include <algorithm>
#include <set>

#include "executor/run/rank_facts.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::exec {

double largest(const std::vector<StepFacts>& all, double StepFacts::*fact) {
    double out = 0.0;
    for (const StepFacts& one : all) {
        out = std::max(out, one.*fact);
    }
    return out;
}

std::string start_record(const RunNames& names, const TrainingPlan& plan, const RunControl& control,
                         const RunStart& start) {
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object()
        .member("event", "start")
        .member("program", names.program)
        .member("backend", names.backend)
        .member("ranks", start.hosts.size())
        .begin_array("hosts");
    for (const std::string& host : std::set<std::string>(start.hosts.begin(), start.hosts.end())) {
        json.value(host);
    }
    json.end_array()
        .member("processors", allowed_processors())
        .member("threads_per_rank", plan.threads)
        .member("plan", names.plan)
        .member("plan_hash", names.plan_hash)
        .member("model", names.model)
        .member("parameters", names.parameters)
        .member("layout", names.layout)
        .member("sequence", plan.sequence)
        .member("global_batch", plan.global_batch)
        .member("steps", control.steps)
        .member("begins_after_step", start.begins_after_step)
        .member("date", start.date)
        .begin_object("versions");
    for (const auto& [what, version] : names.versions) {
        json.member(what, version);
    }
    json.end_object().end_object();
    return json.str();
}

std::string step_record(const TrainStep& step, const std::vector<StepFacts>& all) {
    const double seconds = largest(all, &StepFacts::seconds);
    double communication = 0.0;
    for (const StepFacts& one : all) {
        communication += one.communication / static_cast<double>(all.size());
    }
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object()
        .member("event", "step")
        .member("step", step.step)
        .member("loss", step.loss)
        .member("seconds", seconds)
        .member("tokens", step.tokens)
        .member("tokens_per_second",
                seconds > 0.0 ? static_cast<double>(step.tokens) / seconds : 0.0)
        .member("gradient_norm", step.gradient_norm)
        .member("rate", step.rate)
        .member("communication_share", communication)
        .member("memory_bytes", largest(all, &StepFacts::held))
        .member("peak_memory_bytes", largest(all, &StepFacts::peak));
    if (step.balance != 0.0) json.member("balance", step.balance);
    json.end_object();
    return json.str();
}

std::string save_record(Index step, const std::string& path) {
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object()
        .member("event", "save")
        .member("step", step)
        .member("path", path)
        .end_object();
    return json.str();
}

std::string end_record(const RunEnd& end, const sim::Measurement& measured) {
    const auto median = sim::median_step(measured);
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object()
        .member("event", "end")
        .member("reason", end.stopped ? "stopped" : "done")
        .member("steps", end.steps)
        .member("step", end.step);
    if (median) {
        const sim::MeasuredStep& step = measured.steps[*median];
        json.member("median_step_seconds", step.seconds.value())
            .member("tokens_per_second",
                    step.seconds.value() > 0.0
                        ? static_cast<double>(step.tokens) / step.seconds.value()
                        : 0.0);
    }
    if (!measured.steps.empty()) {
        json.member("first_loss", measured.steps.front().loss)
            .member("last_loss", measured.steps.back().loss);
    }
    json.end_object();
    return json.str();
}

std::string error_record(const Error& error, int rank) {
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object()
        .member("event", "error")
        .member("rank", rank)
        .member("where", error.where)
        .member("what", error.what);
    if (!error.hint.empty()) json.member("hint", error.hint);
    json.end_object();
    return json.str();
}

} // namespace shardplan::exec
