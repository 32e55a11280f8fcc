#include "planner/cli/collective_input.hpp"

#include <algorithm>
#include <utility>

#include "planner/cli/inputs.hpp"
#include "planner/import/collective_file.hpp"
#include "planner/import/import_text.hpp"
#include "simulator/compute/op_list.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan::cli {
namespace {

sim::Result<TimedMachine> machine_from(const ClusterOptions& options,
                                       std::vector<sim::Assumption>& assumptions) {
    TimedMachine out;
    auto devices = sim::load_devices();
    if (!devices) {
        return devices.error();
    }
    out.catalogue = std::move(*devices);
    out.gpus = options.gpus;
    if (options.gpus && *options.gpus < 2) {
        return sim::Error{sim::ErrorCode::bad_input, "--gpus " + std::to_string(*options.gpus),
                          "a collective takes two ranks or more", "give how many took part"};
    }
    if (!options.import.device.empty()) {
        auto found = sim::find_device(out.catalogue, options.import.device, "--device");
        if (!found) {
            return found.error();
        }
        out.device = found->value.name;
        assumptions = found->assumptions;
    }
    if (!options.cluster.empty()) {
        ClusterOptions whole = options;
        whole.gpus.reset(); // how many took part changes no node
        auto cluster = cluster_from(whole, assumptions);
        if (!cluster) {
            return cluster.error();
        }
        std::erase_if(assumptions, [](const sim::Assumption& one) {
            return one.path == "cluster.gpus"; // the timings say how many
        });
        out.cluster = std::move(*cluster);
        return out;
    }
    for (const auto& [flag, given] :
         {std::pair("--node", !options.import.node.empty()), {"--set", !options.sets.empty()}}) {
        if (given) {
            return sim::Error{sim::ErrorCode::bad_input, flag, "there is no cluster to change",
                              "add --cluster with the machine the timings were taken on"};
        }
    }
    return out;
}

/// Drops the records of every other system. Errors: there is no such system, with the nearest.
sim::Status keep_system(std::vector<sim::CollectiveRecord>& records, const std::string& system) {
    std::vector<std::string> known;
    for (const sim::CollectiveRecord& record : records) {
        if (std::find(known.begin(), known.end(), record.system) == known.end()) {
            known.push_back(record.system);
        }
    }
    if (std::find(known.begin(), known.end(), system) == known.end()) {
        const auto nearest = sim::nearest_name(system, known);
        return sim::Error{sim::ErrorCode::not_found, "--system " + system,
                          "no timing is of this system",
                          nearest ? "did you mean " + sim::in_quotes(*nearest) + "?"
                                  : "the first is " + sim::in_quotes(known.front())};
    }
    std::erase_if(records,
                  [&](const sim::CollectiveRecord& record) { return record.system != system; });
    return sim::Done{};
}

} // namespace

sim::Result<TimedCollectives> collectives_from(const std::vector<std::string>& files,
                                               const TimingOptions& options) {
    TimedCollectives out;
    auto machine = machine_from(options.machine, out.assumptions);
    if (!machine) {
        return machine.error();
    }
    if (!options.collective.empty()) {
        const auto& known = sim::EnumNames<sim::Collective>::names;
        if (!sim::enum_from<sim::Collective>(options.collective)) {
            return sim::Error{sim::ErrorCode::bad_input, "--collective " + options.collective,
                              "there is no such collective",
                              "write one of " + text::listed({known.begin(), known.end()}, 20)};
        }
        machine->collective = options.collective;
    }
    for (const std::string& path : files) {
        auto file = read_collectives(path);
        if (!file) {
            return file.error();
        }
        if (const auto status = complete_collectives(*file, *machine); !status) {
            return status.error();
        }
        const auto add = [](std::string& list, const std::string& item) {
            list += (list.empty() || item.empty() ? "" : ", ") + item;
        };
        add(out.input, file->input);
        if (out.hosts.find(file->hosts) == std::string::npos) {
            add(out.hosts, file->hosts);
        }
        const auto append = [](auto& to, auto&& from) {
            to.insert(to.end(), std::make_move_iterator(from.begin()),
                      std::make_move_iterator(from.end()));
        };
        append(out.records, std::move(file->records.records));
        append(out.problems, std::move(file->records.problems));
        append(out.assumptions, std::move(file->assumptions));
    }
    if (!options.system.empty()) {
        if (const auto status = keep_system(out.records, options.system); !status) {
            return status.error();
        }
    }
    out.machine = std::move(machine->cluster);
    return out;
}

} // namespace shardplan::plan::cli
