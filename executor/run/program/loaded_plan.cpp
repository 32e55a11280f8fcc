#include "executor/run/program/loaded_plan.hpp"

#include <utility>

#include <fmt/format.h>

#include "simulator/io/measurement.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::exec {
namespace {

using sim::Done;

sim::Error not_done(std::string field, std::string what, std::string hint) {
    return {ErrorCode::unsupported, std::move(field), std::move(what), std::move(hint)};
}

sim::Result<OptimizerOptions> optimizer_of(const sim::Resolved& resolved) {
    OptimizerOptions out;
    switch (resolved.optimizer) {
        case sim::OptimizerKind::adamw:
            return out;
        case sim::OptimizerKind::sgd_momentum:
            out.kind = OptimizerKind::sgd;
            return out;
        default:
            return not_done(
                "job.optimizer.kind",
                fmt::format("the executor has no optimizer {}", name_of(resolved.optimizer)),
                "plan with --set job.optimizer.kind=adamw or sgd_momentum");
    }
}

sim::Result<Arithmetic> arithmetic_of(const sim::Resolved& resolved) {
    if (resolved.compute == sim::Dtype::fp32) return Arithmetic::fp32;
    if (resolved.compute != sim::Dtype::bf16) {
        return not_done(
            "job.precision.compute",
            fmt::format("the executor does not compute in {}", name_of(resolved.compute)),
            "plan with --set job.precision.compute=fp32 or bf16");
    }
    if (resolved.master != sim::Dtype::fp32) {
        return not_done(
            "job.precision.master",
            fmt::format("the executor keeps no master weights in {}", name_of(resolved.master)),
            "plan with --set job.precision.master=fp32");
    }
    return Arithmetic::bf16;
}

sim::Status check_job(const sim::Resolved& resolved) {
    if (resolved.method.kind != sim::MethodKind::full) {
        return not_done(
            "job.method.kind",
            fmt::format("the executor trains no adapters ({})", name_of(resolved.method.kind)),
            "plan with --method full");
    }
    if (resolved.state != sim::Dtype::fp32) {
        return not_done("job.optimizer.state",
                        fmt::format("the executor keeps no moments in {}", name_of(resolved.state)),
                        "plan with --set job.optimizer.state=fp32");
    }
    if (resolved.moe.capacity > 0.0) {
        return not_done("job.moe.capacity", "the executor drops no tokens of experts",
                        "plan with --set job.moe.capacity=0");
    }
    return Done{};
}

/// Collectives as the plan prices them: by algorithms of our own unless it names a library of MPI.
CollectiveChoice collectives_of(const sim::CommPolicy& policy) {
    CollectiveChoice choice;
    choice.library = policy.library == sim::CommLibrary::mpi;
    if (policy.algorithms.size() == 1) choice.algorithm = policy.algorithms.front();
    choice.servers = static_cast<int>(policy.servers);
    return choice;
}

/// One plan of the file.
sim::Result<std::string> layout_text(const sim::Document& document, const ProgramOptions& options) {
    const auto count = static_cast<Index>(document.plans.size());
    if (options.plan_number > count) {
        return sim::Error{ErrorCode::bad_input, "--plan",
                          fmt::format("{} holds {} plans, there is no plan {}", options.plan, count,
                                      options.plan_number),
                          fmt::format("write a number from 1 to {}", count)};
    }
    return document.plans[static_cast<std::size_t>(options.plan_number - 1)].layout;
}

} // namespace

sim::Result<LoadedPlan> load_plan(const ProgramOptions& options, Index ranks) {
    auto document = sim::read_document_file(options.plan);
    if (!document) return document.error();
    const auto text = layout_text(*document, options);
    if (!text) return text.error();
    const sim::Scenario& scenario = document->scenario;
    LoadedPlan out;
    TrainingPlan& plan = out.plan;
    const auto parsed = sim::parse_layout(*text, options.plan, plan.tables);
    if (!parsed) return parsed.error();
    const std::int64_t devices = scenario.job.constraints.idle_devices
                                     ? sim::rank_count(parsed->layout)
                                     : sim::device_count(scenario.cluster);
    const auto layout = sim::complete_layout(*parsed, devices, options.plan);
    if (!layout) return layout.error();
    plan.layout = *layout;
    out.names.layout = *text;
    if (ranks != 0 && ranks != sim::rank_count(*layout)) return wrong_rank_count(out, ranks);
    const auto resolved = sim::resolve(scenario);
    if (!resolved) return resolved.error();
    if (const auto status = check_job(resolved->values); !status) return status.error();
    const auto optimizer = optimizer_of(resolved->values);
    if (!optimizer) return optimizer.error();
    const auto arithmetic = arithmetic_of(resolved->values);
    if (!arithmetic) return arithmetic.error();

    plan.model = scenario.model;
    plan.sequence = resolved->values.sequence;
    plan.global_batch = resolved->values.global_batch;
    plan.arithmetic = *arithmetic;
    plan.optimizer = *optimizer;
    plan.collectives = collectives_of(scenario.stack.collectives);
    plan.rate.peak = options.rate;
    plan.rate.warmup = options.warmup;
    if (options.decay > 0) {
        constexpr double tenth = 0.1;
        plan.rate.total = options.decay;
        plan.rate.floor = options.rate * tenth;
    }
    plan.seed = static_cast<std::uint64_t>(options.seed);
    plan.deterministic = options.deterministic;
    plan.threads = static_cast<int>(options.threads);
    plan.offload_to = options.offload_dir;

    out.network = sim::name_of(scenario.cluster.fabric.kind);
    if (!scenario.devices.empty()) out.device = scenario.devices.front().name;
    out.names.plan = options.plan;
    out.names.plan_hash = sim::plan_hash(scenario, *text);
    out.names.model = scenario.model.name;
    out.names.parameters = sim::count_parameters(scenario.model).total;
    out.scenario = std::move(document->scenario);
    return out;
}

sim::Error wrong_rank_count(const LoadedPlan& loaded, Index ranks) {
    const Index needed = sim::rank_count(loaded.plan.layout);
    return {
        ErrorCode::bad_input, "--ranks",
        fmt::format("the plan's layout {} is one of {} ranks, not of {}", loaded.names.layout,
                    needed, ranks),
        fmt::format("write --ranks {0} (mpirun -n {0}), or plan for {1} devices with --gpus {1}",
                    needed, ranks)};
}

sim::Result<TokenSource> tokens_of(const ProgramOptions& options, const TrainingPlan& plan) {
    const Index vocab = plan.model.embedding.vocab;
    if (options.data.empty()) {
        const Index samples = options.steps * plan.global_batch;
        return TokenSource::synthetic(samples * plan.sequence + 1, vocab, plan.seed);
    }
    constexpr Index bytes = 256;
    if (options.format == TokenFormat::bytes && vocab < bytes) {
        return sim::Error{ErrorCode::bad_input, "--format",
                          fmt::format("bytes are {} tokens, and the model knows {}", bytes, vocab),
                          "give the model a vocabulary of 256, or data of its own tokens"};
    }
    return TokenSource::open(options.data, options.format);
}

} // namespace shardplan::exec
