#include "planner/analysis/vary.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "planner/import/load_model.hpp"
#include "simulator/io/setting.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

bool begins(std::string_view text, std::string_view with) { return text.rfind(with, 0) == 0; }

sim::Result<std::int64_t> devices_from(const std::string& text, std::string_view where) {
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 1) {
        return sim::Error{sim::ErrorCode::bad_input, std::string(where),
                          sim::in_quotes(text) + " is no number of devices",
                          "write a whole number, as in gpus=64"};
    }
    return number;
}

/// A hypothesis may leave the plausible range of a Constant: the range follows it.
sim::Status widen_range(sim::Scenario& scenario, const std::string& path, const std::string& value,
                        std::string_view where) {
    constexpr std::string_view last = ".value";
    if (path.size() <= last.size() ||
        path.compare(path.size() - last.size(), last.size(), last) != 0) {
        return sim::Done{};
    }
    const auto leaves = leaves_of(scenario);
    const Leaf* leaf = find_leaf(leaves, path);
    if (leaf == nullptr || !leaf->range) {
        return sim::Done{};
    }
    const std::string constant = path.substr(0, path.size() - last.size());
    const bool below = leaf->value < leaf->range->lo;
    if (!below && leaf->value <= leaf->range->hi) {
        return sim::Done{};
    }
    sim::FieldsOf<sim::Scenario> fields(scenario);
    return sim::detail::apply_setting(fields, constant + (below ? ".lo" : ".hi"), value, where);
}

/// What software reaches of a link follows its physical bandwidth. `before`: the leaves before it
/// changed.
sim::Status scale_siblings(sim::Scenario& scenario, const std::vector<Leaf>& before,
                           const std::string& path, std::string_view where) {
    constexpr std::string_view last = "physical";
    const Leaf* old = find_leaf(before, path);
    if (old == nullptr || path.size() <= last.size() ||
        path.compare(path.size() - last.size(), last.size(), last) != 0 || !(old->value > 0.0)) {
        return sim::Done{};
    }
    const auto leaves = leaves_of(scenario);
    const double factor = find_leaf(leaves, path)->value / old->value;
    const std::string stem = path.substr(0, path.size() - last.size());
    for (const char* sibling : {"achievable", "measured"}) {
        const Leaf* leaf = find_leaf(leaves, stem + sibling);
        if (leaf == nullptr) {
            continue;
        }
        sim::FieldsOf<sim::Scenario> fields(scenario);
        const auto status = sim::detail::apply_setting(
            fields, leaf->path, setting_text(*leaf, leaf->value * factor), where);
        if (!status) {
            return status;
        }
    }
    return sim::Done{};
}

/// `before`: the leaves of the scenario as it is.
sim::Status set_field(sim::Scenario& scenario, const std::vector<Leaf>& before,
                      const std::vector<std::string>& paths, const std::string& value,
                      std::string_view where) {
    for (const std::string& path : paths) {
        sim::FieldsOf<sim::Scenario> fields(scenario);
        if (const auto status = sim::detail::apply_setting(fields, path, value, where); !status) {
            return status;
        }
        for (const sim::Status& status : {widen_range(scenario, path, value, where),
                                          scale_siblings(scenario, before, path, where)}) {
            if (!status) {
                return status;
            }
        }
    }
    return sim::Done{};
}

/// Devices and fabrics of a cluster that changed: those of before where they are still named.
sim::Status refresh_hardware(sim::Scenario& scenario, const sim::Scenario& base,
                             const VaryRules& rules, std::string_view where) {
    if (rules.catalogue == nullptr) {
        scenario.devices.resize(scenario.cluster.node_groups.size());
        return sim::check_cluster(scenario.cluster, where);
    }
    auto fresh = sim::assemble_scenario(scenario.model, scenario.cluster, scenario.job,
                                        scenario.stack, scenario.calibration, *rules.catalogue);
    if (!fresh) {
        sim::Error error = fresh.error();
        error.where = std::string(where) + ": " + error.where;
        return error;
    }
    for (std::size_t i = 0; i < fresh->devices.size() && i < base.devices.size(); ++i) {
        const bool same =
            base.cluster.node_groups[i].node.device == fresh->cluster.node_groups[i].node.device;
        if (same) {
            fresh->devices[i] = base.devices[i];
        }
    }
    for (sim::FabricProfile& fabric : fresh->fabrics) {
        for (const sim::FabricProfile& before : base.fabrics) {
            if (before.name == fabric.name && before.arch == fabric.arch) {
                fabric = before;
            }
        }
    }
    scenario.devices = std::move(fresh->devices);
    scenario.fabrics = std::move(fresh->fabrics);
    return sim::Done{};
}

/// Checks what changed; the rest was accepted before.
sim::Status check_changes(const sim::Scenario& scenario, const sim::Scenario& base,
                          std::string_view where) {
    sim::Status status = sim::Done{};
    const auto check = [&](bool changed, const auto& run) {
        if (status && changed) {
            status = run();
        }
    };
    check(scenario.model != base.model, [&] { return sim::check_model(scenario.model, where); });
    check(scenario.cluster != base.cluster,
          [&] { return sim::check_cluster(scenario.cluster, where); });
    check(scenario.job != base.job, [&] { return sim::check_job(scenario.job, where); });
    check(scenario.stack != base.stack, [&] { return sim::check_stack(scenario.stack, where); });
    for (const sim::Device& device : scenario.devices) {
        check(scenario.devices != base.devices, [&] { return sim::check_device(device, where); });
    }
    for (const sim::FabricProfile& fabric : scenario.fabrics) {
        check(scenario.fabrics != base.fabrics, [&] { return sim::check_fabric(fabric, where); });
    }
    return status;
}

/// The batch after the sequence or the devices changed.
sim::Status keep_batch(sim::Scenario& scenario, const sim::Scenario& base, const VaryRules& rules,
                       bool batch_set) {
    const auto before = sim::resolve(base);
    if (!before || batch_set) {
        return sim::Done{}; // an unsound base is reported by whoever evaluates it
    }
    sim::Scenario probe = scenario;
    probe.job.global_batch = {1, 0, true};
    const auto after = sim::resolve(probe);
    if (!after) {
        return after.error();
    }
    const std::int64_t sequence = after->values.sequence;
    const std::int64_t devices = sim::device_count(scenario.cluster);
    const bool moved = sequence != before->values.sequence;
    if (rules.batch && (moved || devices != sim::device_count(base.cluster))) {
        scenario.job.global_batch = rules.batch(sequence, devices);
    } else if (moved && scenario.job.global_batch.sequences > 0) {
        const double tokens = static_cast<double>(before->values.global_batch) *
                              static_cast<double>(before->values.sequence);
        scenario.job.global_batch.sequences = std::max<std::int64_t>(
            static_cast<std::int64_t>(std::llround(tokens / static_cast<double>(sequence))), 1);
    }
    return sim::Done{};
}

} // namespace

namespace {

bool is_whole(std::string_view path) {
    return path == "model" || path == "cluster" || path == "stack";
}

/// Another model, cluster or stack in the place of this one.
sim::Status replace_part(sim::Scenario& scenario, const FieldSetting& setting,
                         std::string_view where) {
    const auto failed = [&](sim::Error error) {
        error.where = where;
        return sim::Status(std::move(error));
    };
    if (setting.path == "model") {
        auto model = load_model(setting.value);
        if (!model) {
            return failed(model.error());
        }
        scenario.model = std::move(model->model);
    } else if (setting.path == "stack") {
        auto stack = sim::load_stack(setting.value);
        if (!stack) {
            return failed(stack.error());
        }
        scenario.stack = std::move(*stack);
    } else {
        auto cluster = sim::load_cluster(setting.value);
        if (!cluster) {
            return failed(cluster.error());
        }
        auto cut =
            sim::resize(std::move(cluster->value), sim::device_count(scenario.cluster), where);
        if (!cut) {
            return cut.error();
        }
        scenario.cluster = std::move(*cut);
    }
    return sim::Done{};
}

/// The parts that are replaced whole, then the number of devices.
sim::Status replace_parts(sim::Scenario& scenario, std::span<const FieldSetting> settings,
                          std::string_view where) {
    const FieldSetting* gpus = nullptr;
    for (const FieldSetting& setting : settings) {
        gpus = setting.path == "gpus" ? &setting : gpus;
    }
    if (gpus != nullptr) {
        const auto devices = devices_from(gpus->value, where);
        if (!devices) {
            return devices.error();
        }
        // A cluster that comes in whole is cut to this number, not to that of the one before.
        for (const FieldSetting& setting : settings) {
            if (setting.path == "cluster") {
                scenario.cluster.node_groups.resize(1);
                scenario.cluster.node_groups.front().count = *devices;
                scenario.cluster.node_groups.front().node.devices = 1;
            }
        }
    }
    for (const FieldSetting& setting : settings) {
        if (is_whole(setting.path)) {
            if (const auto status = replace_part(scenario, setting, where); !status) {
                return status;
            }
        }
    }
    if (gpus != nullptr) {
        auto cluster =
            sim::resize(std::move(scenario.cluster), *devices_from(gpus->value, where), where);
        if (!cluster) {
            return cluster.error();
        }
        scenario.cluster = std::move(*cluster);
    }
    return sim::Done{};
}

} // namespace

sim::Result<sim::Scenario> vary(const sim::Scenario& base, std::span<const FieldSetting> settings,
                                const VaryRules& rules, std::string_view where) {
    sim::Scenario out = base;
    bool batch_set = false;
    if (const auto status = replace_parts(out, settings, where); !status) {
        return status.error();
    }
    // The cluster first: it decides which devices and fabrics there are.
    for (const bool cluster_turn : {true, false}) {
        for (const FieldSetting& setting : settings) {
            if (setting.path == "gpus" || is_whole(setting.path) ||
                begins(setting.path, "cluster") != cluster_turn) {
                continue;
            }
            const auto leaves = leaves_of(out);
            const auto paths = full_paths(leaves, setting.path, where);
            if (!paths) {
                // Not a leaf that exists: a list, an absent optional field, a key of a map.
                if (const auto status =
                        set_field(out, leaves, {setting.path}, setting.value, where);
                    !status) {
                    const bool unknown = status.error().code == sim::ErrorCode::not_found;
                    return unknown ? paths.error() : status.error();
                }
            } else if (const auto status = set_field(out, leaves, *paths, setting.value, where);
                       !status) {
                return status.error();
            }
            batch_set = batch_set || begins(setting.path, "job.global_batch");
        }
        if (cluster_turn && out.cluster != base.cluster) {
            if (const auto status = refresh_hardware(out, base, rules, where); !status) {
                return status.error();
            }
        }
    }
    if (const auto status = keep_batch(out, base, rules, batch_set); !status) {
        return status.error();
    }
    if (const auto status = check_changes(out, base, where); !status) {
        return status.error();
    }
    return out;
}

sim::Result<sim::Layout> layout_for(std::string_view text, std::string_view where,
                                    const sim::Scenario& scenario, sim::LayoutTables& tables) {
    const auto parsed = sim::parse_layout(text, where, tables);
    if (!parsed) {
        return parsed.error();
    }
    std::int64_t devices = sim::device_count(scenario.cluster);
    if (scenario.job.constraints.idle_devices) {
        const std::int64_t replica = sim::rank_count(parsed->layout) / parsed->layout.dp;
        const std::int64_t used =
            parsed->dp_given ? sim::rank_count(parsed->layout) : devices / replica * replica;
        if (used > 0 && used <= devices) {
            devices = used;
        }
    }
    return sim::complete_layout(*parsed, devices, where);
}

sim::Result<PricedLayout> price_layout(sim::Scenario scenario, std::string_view layout,
                                       std::string_view where) {
    sim::LayoutTables tables;
    const auto whole = layout_for(layout, where, scenario, tables);
    if (!whole) {
        return whole.error();
    }
    const auto evaluator = sim::Evaluator::make(std::move(scenario), std::move(tables));
    if (!evaluator) {
        return evaluator.error();
    }
    PricedLayout out;
    out.layout = sim::to_text(*whole, evaluator->tables());
    out.refusals = sim::check_layout(evaluator->scenario(), evaluator->resolved(), *whole,
                                     evaluator->tables());
    if (out.refusals.empty()) {
        sim::Workspace workspace;
        out.estimate = evaluator->estimate(*whole, workspace);
    }
    return out;
}

sim::Result<PricedLayout> price_legal_layout(sim::Scenario scenario, std::string_view layout,
                                             std::string_view where) {
    auto priced = price_layout(std::move(scenario), layout, where);
    if (priced && !priced->legal()) {
        return sim::Error{sim::ErrorCode::bad_input, "layout " + priced->layout,
                          "the layout is not legal: " + priced->refusals.front().rule,
                          "see `shardplan estimate` for the nearest legal one"};
    }
    return priced;
}

double communication_share(const sim::StepTime& time) {
    const double total = time.total.value.value();
    double waiting = 0.0;
    for (const sim::TimeKind kind :
         {sim::TimeKind::tp_comm, sim::TimeKind::cp_comm, sim::TimeKind::ep_comm,
          sim::TimeKind::pp_comm, sim::TimeKind::dp_comm}) {
        waiting += time.exposed[kind].value();
    }
    return total > 0.0 ? waiting / total : 0.0;
}

} // namespace shardplan::plan
