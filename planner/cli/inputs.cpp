#include "planner/cli/inputs.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "planner/import/catalogue_once.hpp"
#include "planner/import/load_model.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/document.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr std::array<JobFlag, 18> flags = {{
    {"--sequence", "sequence.max", "tokens per sample, as in 8192"},
    {"--global-batch", "global_batch.sequences", "samples per optimizer step, as in 512"},
    {"--global-batch-tokens", "global_batch.tokens", "tokens per optimizer step instead"},
    {"--precision", "precision.compute", "matrix products: bf16, fp16, fp8, fp32, ..."},
    {"--fp8-recipe", "precision.recipe", "tensorwise, rowwise, blockwise, mxfp8, nvfp4"},
    {"--method", "method.kind", "full, lora or qlora"},
    {"--lora-rank", "method.rank", "rank of the adapters, as in 16"},
    {"--optimizer", "optimizer.kind", "adamw, adamw_8bit, sgd, muon, ..."},
    {"--optimizer-state", "optimizer.state", "format of the moments, as in bf16"},
    {"--capacity-factor", "moe.capacity", "expert capacity with padding; 0: dropless"},
    {"--imbalance", "moe.imbalance", "tokens of the busiest expert rank over the mean"},
    {"--micro-batch", "constraints.micro_batch", "allowed micro-batch sizes, as in 1,2,4"},
    {"--tp", "constraints.tp", "allowed tensor-parallel degrees, as in 4,8"},
    {"--pp", "constraints.pp", "allowed pipeline-parallel degrees"},
    {"--recompute", "constraints.recompute", "any, forbid or full"},
    {"--idle", "constraints.idle_devices", "layouts may leave whole nodes unused", true},
    {"--memory-cap", "constraints.memory_cap", "most memory per device, as in \"70 GiB\""},
    {"--tokens", "tokens_to_train", "tokens of the whole run, as in 2e12"},
}};

using Notes = std::vector<sim::Assumption>;

void assume(Notes& notes, std::string path, std::string value, std::string origin,
            std::string note) {
    notes.push_back({std::move(path), std::move(value), std::move(origin), std::move(note)});
}

/// An error about a name, with the flag it was given by.
sim::Error from_flag(sim::Error error, std::string_view noun, std::string_view flag) {
    if (error.where == noun) {
        error.where = flag;
    }
    return error;
}

/// Sequence length a job means when it does not say: positions of the model, at most 8192.
std::int64_t sequence_of(const sim::Job& job, const sim::ModelSpec& model) {
    constexpr std::int64_t most = 8192;
    if (job.sequence.max > 0) {
        return job.sequence.max;
    }
    return model.max_positions > 0 ? std::min(model.max_positions, most) : most;
}

sim::Status apply_job_flags(sim::Job& job, const std::vector<FieldValue>& fields) {
    for (const FieldValue& field : fields) {
        // A flag replaces what a job file says about the batch, in whichever unit.
        if (field.path.starts_with("global_batch.")) {
            job.global_batch.sequences = 0;
            job.global_batch.tokens = 0;
        }
    }
    for (const FieldValue& field : fields) {
        if (const auto status = sim::apply_setting(job, field.path, field.value, field.flag);
            !status) {
            return status;
        }
    }
    return sim::Done{};
}

sim::Result<sim::Job> job_from(const ScenarioOptions& options, const sim::ModelSpec& model,
                               std::int64_t devices, Notes& notes) {
    sim::Job job;
    if (!options.job.empty()) {
        auto loaded = sim::load_job(options.job);
        if (!loaded) {
            return from_flag(loaded.error(), "job", "--job");
        }
        notes.insert(notes.end(), loaded->assumptions.begin(), loaded->assumptions.end());
        job = std::move(loaded->value);
    }
    if (const auto status = apply_job_flags(job, options.job_fields); !status) {
        return status.error();
    }
    if (const auto status = apply_sets(job, "job", options.sets); !status) {
        return status.error();
    }
    if (job.precision.compute == sim::Dtype::fp8 && job.precision.recipe == sim::Fp8Recipe::none) {
        job.precision.recipe = sim::Fp8Recipe::tensorwise;
        assume(notes, "job.precision.recipe", "tensorwise", "default", "one scale per tensor");
    }
    if (job.global_batch.sequences == 0 && job.global_batch.tokens == 0) {
        const std::int64_t sequence = sequence_of(job, model);
        job.global_batch = default_batch(sequence, devices);
        assume(notes, "job.global_batch",
               std::to_string(job.global_batch.sequences) + " sequences (" +
                   sim::group_digits(job.global_batch.sequences * sequence) + " tokens)",
               "default", "give --global-batch");
    }
    if (const auto status = sim::check_job(job, options.job.empty() ? "job" : options.job);
        !status) {
        return status.error();
    }
    return job;
}

sim::Result<sim::StackProfile> stack_from(const ScenarioOptions& options, const sim::Job& job,
                                          Notes& notes) {
    std::string name = options.stack;
    if (name.empty()) {
        name = default_stack(job);
        assume(notes, "stack", name, "default", "give --stack; `shardplan list stacks`");
    }
    auto stack = sim::load_stack(name);
    if (!stack) {
        return from_flag(stack.error(), "stack", "--stack");
    }
    std::vector<sim::Feature> features;
    for (const std::string& text : options.features) {
        const auto feature = sim::enum_from<sim::Feature>(text);
        if (!feature) {
            const auto& names = sim::EnumNames<sim::Feature>::names;
            return sim::Error{sim::ErrorCode::not_found, "--feature",
                              "no stack has a feature " + sim::in_quotes(text),
                              sim::nearest_hint(text, names)};
        }
        features.push_back(*feature);
    }
    sim::StackProfile profile = sim::with_features(std::move(*stack), features);
    if (const auto status = apply_sets(profile, "stack", options.sets); !status) {
        return status.error();
    }
    if (const auto status = sim::check_stack(profile, "stack " + name); !status) {
        return status.error();
    }
    return profile;
}

/// Whether any figure of the device is given by flag.
bool gives_device(const ScenarioOptions& options) {
    return !options.device_peak.empty() || !options.device_memory.empty() ||
           !options.device_bandwidth.empty();
}

template <class Q>
sim::Status read_figure(const std::string& text, sim::Dimension dimension, const char* flag,
                        Q& out) {
    if (text.empty()) {
        return sim::Done{};
    }
    const auto amount = sim::parse_quantity(text, dimension, flag);
    if (!amount) {
        return amount.error();
    }
    if (!(*amount > 0.0)) {
        return sim::Error{sim::ErrorCode::bad_input, flag, "the figure must be above 0",
                          "give the figure of the sheet, or leave the flag out"};
    }
    out = Q(*amount);
    return sim::Done{};
}

/// The device with the figures given by flag; the peak is that of 16-bit products.
sim::Status set_figures(sim::Device& device, const ScenarioOptions& options) {
    sim::FlopRate peak;
    sim::Bytes memory;
    for (const auto& status : {
             read_figure(options.device_peak, sim::Dimension::flop_rate, "--device-peak", peak),
             read_figure(options.device_memory, sim::Dimension::bytes, "--device-memory", memory),
             read_figure(options.device_bandwidth, sim::Dimension::bandwidth, "--device-bandwidth",
                         device.memory_bandwidth.physical),
         }) {
        if (!status) {
            return status;
        }
    }
    if (!options.device_bandwidth.empty()) {
        device.memory_bandwidth.achievable.reset();
        device.memory_bandwidth.measured.reset();
    }
    if (peak.value() > 0.0) {
        device.peak_dense["bf16"] = peak;
        device.peak_dense["fp16"] = peak;
    }
    if (memory.value() > 0.0) {
        device.memory_label = memory;
        device.memory_visible = memory;
    }
    return sim::Done{};
}

/// Puts devices that flags describe or change into the cluster, where they win over the catalogue.
sim::Status describe_devices(sim::Cluster& cluster, const ScenarioOptions& options,
                             const sim::Catalogue& catalogue, Notes& notes) {
    const bool has_sets = std::any_of(options.sets.begin(), options.sets.end(), [](const auto& s) {
        return split_setting(s).root == "device";
    });
    if (!gives_device(options) && !has_sets) {
        return sim::Done{};
    }
    for (const sim::NodeGroup& group : cluster.node_groups) {
        const std::string& name = group.node.device;
        auto own = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                                [&](const sim::Device& d) { return d.name == name; });
        if (own == cluster.devices.end()) {
            sim::Device device;
            if (auto known = sim::find_device(catalogue.devices, name, "--cluster")) {
                device = std::move(known->value);
            }
            device.name = name;
            own = cluster.devices.insert(own, std::move(device));
        }
        if (const auto status = set_figures(*own, options); !status) {
            return status;
        }
        if (const auto status = apply_sets(*own, "device", options.sets); !status) {
            return status;
        }
        if (const auto status = sim::check_device(*own,
                                                  "--device-peak, --device-memory, "
                                                  "--device-bandwidth");
            !status) {
            return status;
        }
        assume(notes, "device." + name, "figures given by flag", "command line", "");
    }
    return sim::Done{};
}

/// Refuses devices that an imported file names without saying all about them.
sim::Status check_described(const sim::Cluster& cluster) {
    for (const sim::Device& device : cluster.devices) {
        const bool no_peak = device.peak_dense.empty();
        if (!no_peak && usable(device.memory_bandwidth).value() > 0.0) {
            continue;
        }
        return sim::Error{
            sim::ErrorCode::bad_input, "--cluster",
            "the file names " + sim::in_quotes(device.name) + " and its memory, " +
                sim::to_text(device.memory_visible) + ", but no " +
                (no_peak ? "peak" : "memory bandwidth") + ", and the catalogue does not know it",
            "give its figures: --device-peak \"165 TFLOP/s\" --device-bandwidth \"1008 GB/s\""};
    }
    return sim::Done{};
}

/// Adds how to go on to the error about a device nobody knows.
sim::Error with_device_flags(sim::Error error) {
    if (error.what.find("device") != std::string::npos) {
        error.hint += (error.hint.empty() ? "" : "; ") +
                      std::string(
                          "or give its figures: --device-peak \"165 TFLOP/s\" "
                          "--device-memory \"24 GiB\" --device-bandwidth \"1008 GB/s\"");
    }
    return error;
}

} // namespace

std::span<const JobFlag> job_flags() { return flags; }

Setting split_setting(std::string_view text) {
    const std::size_t equals = text.find('=');
    const std::size_t dot = text.find('.');
    if (equals == std::string_view::npos || dot == std::string_view::npos || dot > equals ||
        dot == 0 || dot + 1 == equals) {
        return {};
    }
    return {text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), text.substr(equals + 1)};
}

sim::Status check_sets(const std::vector<std::string>& sets,
                       const std::vector<std::string>& roots) {
    std::string all;
    for (const std::string& root : roots) {
        all += (all.empty() ? "" : ", ") + root;
    }
    for (const std::string& text : sets) {
        const Setting setting = split_setting(text);
        if (setting.root.empty()) {
            return sim::Error{sim::ErrorCode::bad_input, "--set " + text,
                              "this is not of the form path=value",
                              "write for example --set " + roots.front() +
                                  (roots.front() == "job" ? ".sequence.max=8192" : ".name=x")};
        }
        if (std::find(roots.begin(), roots.end(), setting.root) == roots.end()) {
            return sim::Error{sim::ErrorCode::bad_input, "--set " + text,
                              "there is nothing called " + sim::in_quotes(setting.root) + " here",
                              "paths begin with one of: " + all};
        }
    }
    return sim::Done{};
}

std::string_view default_stack(const sim::Job& job) {
    return job.method.kind == sim::MethodKind::full ? "megatron-core" : "torchtune";
}

sim::GlobalBatch default_batch(std::int64_t sequence, std::int64_t devices) {
    constexpr std::int64_t tokens = std::int64_t{1} << 22;
    const std::int64_t wanted =
        std::max<std::int64_t>(tokens / std::max<std::int64_t>(sequence, 1), 1);
    // The odd part alone would leave 104 devices with a batch that only 13 of them can share.
    std::int64_t whole = std::max<std::int64_t>(devices, 1);
    while (whole % 2 == 0 && whole > wanted / 4) {
        whole /= 2;
    }
    sim::GlobalBatch batch;
    batch.sequences = std::max<std::int64_t>((wanted + whole / 2) / whole, 1) * whole;
    return batch;
}

sim::Result<sim::Scenario> scenario_from(const ScenarioOptions& options) {
    if (const auto status =
            check_sets(options.sets, {"job", "model", "cluster", "stack", "device"});
        !status) {
        return status.error();
    }
    Notes notes;
    auto model = load_model(options.model);
    if (!model) {
        return from_flag(model.error(), "model", "--model");
    }
    notes = std::move(model->assumptions);
    if (const auto status = apply_sets(model->model, "model", options.sets); !status) {
        return status.error();
    }
    if (const auto status = sim::check_model(model->model, "--model " + options.model); !status) {
        return status.error();
    }
    auto cluster =
        cluster_from({options.cluster, options.gpus, options.sets, options.import}, notes);
    if (!cluster) {
        return from_flag(cluster.error(), "cluster", "--cluster");
    }
    const auto& catalogue = catalogue_once();
    if (!catalogue) {
        return catalogue.error();
    }
    if (const auto status = describe_devices(*cluster, options, *catalogue, notes); !status) {
        return status.error();
    }
    if (const auto status = check_described(*cluster); !status) {
        return status.error();
    }
    auto job = job_from(options, model->model, sim::device_count(*cluster), notes);
    if (!job) {
        return job.error();
    }
    auto stack = stack_from(options, *job, notes);
    if (!stack) {
        return stack.error();
    }
    sim::Calibration calibration;
    if (!options.calibration.empty()) {
        auto loaded = sim::read_calibration_file(options.calibration);
        if (!loaded) {
            return loaded.error();
        }
        calibration = std::move(*loaded);
    }
    auto scenario =
        sim::assemble_scenario(std::move(model->model), std::move(*cluster), std::move(*job),
                               std::move(*stack), std::move(calibration), *catalogue);
    if (!scenario) {
        return with_device_flags(scenario.error());
    }
    scenario->assumptions.insert(scenario->assumptions.begin(), notes.begin(), notes.end());
    return scenario;
}

} // namespace shardplan::plan::cli
