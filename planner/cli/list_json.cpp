#include "planner/cli/list_json.hpp"

#include "planner/import/catalogue_once.hpp"
#include "planner/import/load_model.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan::cli {
namespace {

sim::Status write_model(sim::JsonWriter& json, const std::string& name) {
    const auto loaded = load_model(name);
    if (!loaded) {
        return loaded.error();
    }
    const sim::ModelSpec& model = loaded->model;
    const sim::ParameterCounts counts = sim::count_parameters(model);
    const sim::Part* trunk = sim::trunk_of(model);
    json.member("parameters", counts.total)
        .member("active_parameters", counts.active)
        .member("layers", trunk == nullptr ? 0 : sim::block_count(*trunk))
        .member("hidden", trunk == nullptr ? 0 : trunk->hidden)
        .member("vocabulary", model.embedding.vocab)
        .member("max_positions", model.max_positions);
    return sim::Done{};
}

sim::Status write_device(sim::JsonWriter& json, const std::string& name) {
    const auto& catalogue = catalogue_once();
    if (!catalogue) {
        return catalogue.error();
    }
    const auto found = sim::find_device(catalogue->devices, name, "device");
    if (!found) {
        return found.error();
    }
    const sim::Device& device = found->value;
    json.member("vendor", device.vendor).member("architecture", device.arch);
    json.begin_object("peak_dense_flops_per_s");
    for (const auto& [format, peak] : device.peak_dense) {
        json.member(format, peak.value());
    }
    json.end_object()
        .member("memory_bytes", device.memory_visible.value())
        .member("memory_bandwidth_bytes_per_s", device.memory_bandwidth.physical.value())
        .member("scaleup", name_of(device.scaleup_kind))
        .member("scaleup_bytes_per_s", device.scaleup_per_direction.value())
        .member("pcie_bytes_per_s", device.pcie_per_direction.value())
        .member("board_power_w", device.tdp_watts);
    return sim::Done{};
}

sim::Status write_cluster(sim::JsonWriter& json, const std::string& name) {
    const auto loaded = sim::load_cluster(name);
    if (!loaded) {
        return loaded.error();
    }
    const sim::Cluster& cluster = loaded->value;
    json.member("devices", sim::device_count(cluster))
        .member("scalable", cluster.scalable)
        .member("currency", cluster.currency);
    json.begin_array("node_groups");
    for (const sim::NodeGroup& group : cluster.node_groups) {
        json.value(group);
    }
    json.end_array().member("fabric", cluster.fabric);
    return sim::Done{};
}

sim::Status write_stack(sim::JsonWriter& json, const std::string& name) {
    const auto stack = sim::load_stack(name);
    if (!stack) {
        return stack.error();
    }
    json.member("title", stack->title)
        .member("version", stack->version)
        .member("derived_from", stack->derived_from)
        .member("default_shard", name_of(stack->default_shard));
    json.begin_array("features");
    for (const sim::Feature feature : stack->features) {
        json.value(name_of(feature));
    }
    json.end_array().member("capabilities", stack->capabilities);
    return sim::Done{};
}

sim::Status write_job(sim::JsonWriter& json, const std::string& name) {
    const auto loaded = sim::load_job(name);
    if (!loaded) {
        return loaded.error();
    }
    json.member("job", loaded->value);
    return sim::Done{};
}

struct Kind {
    std::string_view name;
    sim::Status (*write)(sim::JsonWriter&, const std::string&);
};
constexpr Kind kinds[] = {{"models", write_model},
                          {"devices", write_device},
                          {"clusters", write_cluster},
                          {"stacks", write_stack},
                          {"jobs", write_job}};

} // namespace

sim::Status write_details(sim::JsonWriter& json, std::string_view kind, const std::string& name) {
    for (const Kind& known : kinds) {
        if (known.name == kind) {
            return known.write(json, name);
        }
    }
    return sim::Done{}; // features: the sentence is all there is
}

} // namespace shardplan::plan::cli
