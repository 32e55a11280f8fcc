#include "simulator/io/catalogue.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/catalogue_files.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

using detail::same_name;

/// Reads and checks one file of ours.
template <class T>
Result<Loaded<T>> load_file(const std::string& path, Status (*check)(const T&, std::string_view),
                            std::string_view prefix) {
    const Result<std::string> text = read_file(path);
    if (!text) {
        return text.error();
    }
    ReadNotes notes;
    Result<T> value = read_described<T>(*text, path, &notes);
    if (!value) {
        return std::move(value).error();
    }
    if (Status status = check(*value, path); !status) {
        return std::move(status).error();
    }
    Loaded<T> loaded{std::move(value).value(), {}};
    for (DefaultTaken& taken : notes.defaults_taken) {
        loaded.assumptions.push_back(
            {std::string(prefix) + taken.path, std::move(taken.value), "default", ""});
    }
    return loaded;
}

Status accept(const Calibration& /*calibration*/, std::string_view /*source*/) { return Done{}; }

/// The built-ins of a folder, each through `load`.
template <class T>
Result<std::vector<T>> load_all(std::string_view folder,
                                Status (*check)(const T&, std::string_view)) {
    const Result<std::vector<std::string>> names = detail::names_in(folder);
    if (!names) {
        return names.error();
    }
    std::vector<T> all;
    for (const std::string& name : *names) {
        Result<Loaded<T>> loaded = load_file<T>(detail::path_of_built_in(folder, name), check, "");
        if (!loaded) {
            return std::move(loaded).error();
        }
        all.push_back(std::move(loaded->value));
    }
    return all;
}

bool is_spelling_of(const Device& device, std::string_view name) {
    return same_name(device.name, name) ||
           std::any_of(device.aliases.begin(), device.aliases.end(),
                       [&](const std::string& alias) { return same_name(alias, name); });
}

std::vector<std::string> spellings(const std::vector<Device>& devices) {
    std::vector<std::string> all;
    for (const Device& device : devices) {
        all.push_back(device.name);
    }
    for (const Device& device : devices) {
        all.insert(all.end(), device.aliases.begin(), device.aliases.end());
    }
    for (const Device& device : devices) {
        for (const AssumedAlias& assumed : device.assumed_aliases) {
            all.push_back(assumed.alias);
        }
    }
    return all;
}

} // namespace

// --- architectures and devices ---------------------------------------------------------------

Result<ComputeProfile> load_architecture(std::string_view arch) {
    const Result<std::vector<std::string>> names = detail::names_in(detail::architecture_folder);
    if (!names) {
        return names.error();
    }
    const bool known = std::any_of(names->begin(), names->end(),
                                   [&](const std::string& name) { return same_name(name, arch); });
    Result<Loaded<ComputeProfile>> loaded = load_file<ComputeProfile>(
        detail::path_of_built_in(detail::architecture_folder, known ? arch : "generic"),
        check_compute, "");
    if (!loaded) {
        return std::move(loaded).error();
    }
    return std::move(loaded->value);
}

namespace {

/// A device file over the file of its architecture.
Result<Device> load_device(const std::string& path, const ComputeProfile& architecture,
                           const Device& alone) {
    const Result<std::string> text = read_file(path);
    if (!text) {
        return text.error();
    }
    const Result<JsonValue> json = JsonValue::parse(*text, path);
    if (!json) {
        return json.error();
    }
    Device base = alone;
    base.compute = architecture;
    Result<Device> device = read_described_over(std::move(base), *json);
    if (!device) {
        return std::move(device).error();
    }
    if (Status status = check_compute(device->compute, path); !status) {
        return std::move(status).error();
    }
    return device;
}

} // namespace

Result<std::vector<Device>> load_devices() {
    Result<std::vector<Device>> devices = load_all<Device>(detail::device_folder, check_device);
    const Result<std::vector<std::string>> names = detail::names_in(detail::device_folder);
    if (!devices || !names) {
        return devices;
    }
    std::vector<std::pair<std::string, ComputeProfile>> architectures;
    for (std::size_t i = 0; i < devices->size(); ++i) {
        Device& device = (*devices)[i];
        auto known = std::find_if(architectures.begin(), architectures.end(),
                                  [&](const auto& entry) { return entry.first == device.arch; });
        if (known == architectures.end()) {
            Result<ComputeProfile> loaded = load_architecture(device.arch);
            if (!loaded) {
                return std::move(loaded).error();
            }
            architectures.emplace_back(device.arch, std::move(loaded).value());
            known = architectures.end() - 1;
        }
        Result<Device> whole = load_device(
            detail::path_of_built_in(detail::device_folder, (*names)[i]), known->second, device);
        if (!whole) {
            return std::move(whole).error();
        }
        device = std::move(whole).value();
    }
    return devices;
}

Result<Loaded<Device>> find_device(const std::vector<Device>& devices, std::string_view name,
                                   std::string_view where) {
    for (const Device& device : devices) {
        if (is_spelling_of(device, name)) {
            return Loaded<Device>{device, {}};
        }
    }
    for (const Device& device : devices) {
        for (const AssumedAlias& assumed : device.assumed_aliases) {
            if (same_name(assumed.alias, name)) {
                return Loaded<Device>{device,
                                      {{std::string(where), device.name,
                                        "the spelling " + in_quotes(name), assumed.reason}}};
            }
        }
    }
    Error error = detail::unknown_name("device", name, spellings(devices));
    error.where = where;
    return error;
}

Result<Loaded<Device>> find_device(std::string_view name) {
    const Result<std::vector<Device>> devices = load_devices();
    if (!devices) {
        return devices.error();
    }
    return find_device(*devices, name, "device");
}

// --- clusters, fabrics, jobs, calibrations ---------------------------------------------------

Result<Loaded<Cluster>> load_cluster(const std::string& name_or_path) {
    const Result<std::string> path =
        detail::find_file(detail::cluster_folder, "cluster", name_or_path);
    if (!path) {
        return path.error();
    }
    Result<Loaded<Cluster>> loaded = load_file<Cluster>(*path, check_cluster, "cluster.");
    if (loaded && !detail::is_path(name_or_path)) {
        // What a built-in leaves out was left out knowingly.
        loaded->assumptions.clear();
    }
    return loaded;
}

Result<std::vector<Cluster>> load_clusters() {
    const Result<std::vector<std::string>> names = detail::names_in(detail::cluster_folder);
    if (!names) {
        return names.error();
    }
    std::vector<Cluster> out;
    for (const std::string& name : *names) {
        Result<Loaded<Cluster>> cluster = load_cluster(name);
        if (!cluster) {
            return cluster.error();
        }
        out.push_back(std::move(cluster->value));
    }
    return out;
}

Result<FabricProfile> load_fabric(std::string_view kind) {
    const Result<std::string> path =
        detail::find_file(detail::fabric_folder, "fabric", std::string(kind));
    if (!path) {
        return path.error();
    }
    Result<Loaded<FabricProfile>> loaded = load_file<FabricProfile>(*path, check_fabric, "");
    if (!loaded) {
        return std::move(loaded).error();
    }
    return std::move(loaded->value);
}

Result<Loaded<Job>> load_job(const std::string& name_or_path) {
    const Result<std::string> path = detail::find_file(detail::job_folder, "job", name_or_path);
    if (!path) {
        return path.error();
    }
    return load_file<Job>(*path, check_job, "job.");
}

Result<Calibration> load_calibration(const std::string& path) {
    Result<Loaded<Calibration>> loaded = load_file<Calibration>(path, accept, "");
    if (!loaded) {
        return std::move(loaded).error();
    }
    return std::move(loaded->value);
}

// --- lists -----------------------------------------------------------------------------------

Result<std::vector<CatalogueEntry>> list_devices() {
    const Result<std::vector<Device>> devices = load_devices();
    if (!devices) {
        return devices.error();
    }
    std::vector<CatalogueEntry> entries;
    for (const Device& device : *devices) {
        std::string text = device.vendor + " " + device.arch + ", " +
                           to_text(device.memory_visible) + " at " +
                           to_text(device.memory_bandwidth.physical);
        for (const char* format : {"bf16", "fp16", "fp32"}) {
            if (const auto peak = device.peak_dense.find(format); peak != device.peak_dense.end()) {
                text += ", " + to_text(peak->second) + " " + format;
                break;
            }
        }
        entries.push_back({device.name, std::move(text)});
    }
    return entries;
}

Result<std::vector<CatalogueEntry>> list_clusters() {
    const Result<std::vector<std::string>> names = detail::names_in(detail::cluster_folder);
    const Result<std::vector<Cluster>> clusters = load_clusters();
    if (!names || !clusters) {
        return names ? clusters.error() : names.error();
    }
    std::vector<CatalogueEntry> entries;
    for (std::size_t i = 0; i < names->size(); ++i) {
        entries.push_back({(*names)[i], summary((*clusters)[i])});
    }
    return entries;
}

Result<std::vector<CatalogueEntry>> list_jobs() {
    const Result<std::vector<std::string>> names = detail::names_in(detail::job_folder);
    if (!names) {
        return names.error();
    }
    std::vector<CatalogueEntry> entries;
    for (const std::string& name : *names) {
        const Result<Loaded<Job>> job = load_job(name);
        if (!job) {
            return job.error();
        }
        const Job& j = job->value;
        const std::string batch = j.global_batch.tokens > 0
                                      ? group_digits(j.global_batch.tokens) + " tokens"
                                      : group_digits(j.global_batch.sequences) + " samples";
        entries.push_back(
            {name,
             std::string(name_of(j.method.kind)) + ", " + batch + " per step of " +
                 (j.sequence.max > 0 ? group_digits(j.sequence.max) : std::string("the model's")) +
                 " tokens each, " + std::string(name_of(j.precision.compute)) + ", " +
                 std::string(name_of(j.optimizer.kind))});
    }
    return entries;
}

Result<std::vector<CatalogueEntry>> list_stacks() {
    const Result<std::vector<std::string>> names = detail::names_in(detail::stack_folder);
    if (!names) {
        return names.error();
    }
    std::vector<CatalogueEntry> entries;
    for (const std::string& name : *names) {
        const Result<StackProfile> stack = load_stack(name);
        if (!stack) {
            return stack.error();
        }
        std::string text = stack->title;
        text += stack->version.empty() ? "" : " " + stack->version;
        text += stack->derived_from.empty() ? "" : ", derived from " + stack->derived_from;
        entries.push_back({name, std::move(text)});
    }
    return entries;
}

// --- putting a scenario together -------------------------------------------------------------

Result<Catalogue> load_catalogue() {
    Result<std::vector<Device>> devices = load_devices();
    if (!devices) {
        return std::move(devices).error();
    }
    Result<std::vector<FabricProfile>> fabrics =
        load_all<FabricProfile>(detail::fabric_folder, check_fabric);
    if (!fabrics) {
        return std::move(fabrics).error();
    }
    return Catalogue{std::move(devices).value(), std::move(fabrics).value()};
}

} // namespace shardplan::sim
