#include "planner/analysis/fitted_constants.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace shardplan::plan {
namespace {

/// Calls `look` for those of origin fitted_to_runs.
template <class T>
void look_at_fitted(T& root, const std::string& path, const sim::ConstantLook& look) {
    for_each_constant(root, path,
                      [&](const std::string& at, const sim::FieldMeta& meta, sim::Constant& c) {
                          if (c.origin == sim::Origin::fitted_to_runs) {
                              look(at, meta, c);
                          }
                      });
}

std::string fabric_path(const sim::FabricProfile& fabric) { return "fabric." + fabric.name; }

/// Collects Constants, and which files state them.
class Collector {
public:
    explicit Collector(const FittedLimits& limits) : limits_(limits) {}

    /// `base`: what a profile is derived from, or nullptr. `owner` counts towards `limit`.
    template <class T>
    void add(T& profile, T* base, const std::string& path, const std::string& subject,
             const std::string& file, const std::string& base_file) {
        std::map<std::string, sim::Constant> inherited;
        if (base != nullptr) {
            look_at_fitted(*base, path,
                           [&](const std::string& at, const sim::FieldMeta&,
                               const sim::Constant& c) { inherited.emplace(at, c); });
        }
        look_at_fitted(
            profile, path,
            [&](const std::string& at, const sim::FieldMeta& meta, const sim::Constant& c) {
                FittedConstant& known = entry(at, meta, c);
                add_once(known.subjects, subject);
                const auto from = inherited.find(at);
                const bool own = from == inherited.end() || from->second != c;
                if (own || !base_file.empty()) {
                    add_once(known.files, own ? file : base_file);
                }
            });
    }

    [[nodiscard]] std::vector<FittedConstant> take() { return std::move(found_); }

    /// `of_owner`: files that count together, and how many they may state.
    [[nodiscard]] sim::Status check(const std::map<std::string, std::string>& owner_of) const {
        if (found_.size() > limits_.in_all) {
            return too_many("topologies", found_.size(), limits_.in_all);
        }
        std::map<std::string, std::size_t> counts;
        for (const FittedConstant& constant : found_) {
            std::vector<std::string> owners;
            for (const std::string& file : constant.files) {
                const auto owner = owner_of.find(file);
                add_once(owners, owner == owner_of.end() ? file : owner->second);
            }
            const bool of_device = constant.path.starts_with("device.");
            for (const std::string& owner : owners) {
                const std::size_t most = of_device ? limits_.per_generation : limits_.per_stack;
                if (++counts[owner] > most) {
                    return too_many(owner, counts[owner], most);
                }
            }
        }
        return sim::Done{};
    }

private:
    static void add_once(std::vector<std::string>& list, const std::string& text) {
        if (std::find(list.begin(), list.end(), text) == list.end()) {
            list.push_back(text);
        }
    }
    static sim::Error too_many(const std::string& where, std::size_t count, std::size_t most) {
        return {sim::ErrorCode::bad_input, where,
                std::to_string(count) + " constants are fitted to runs, at most " +
                    std::to_string(most) + " may be",
                "find a kernel, a collective or a line of source code that gives one of them"};
    }

    FittedConstant& entry(const std::string& path, const sim::FieldMeta& meta,
                          const sim::Constant& c) {
        const std::size_t index = index_of(found_, path, c);
        if (index == found_.size()) {
            FittedConstant& made = found_.emplace_back();
            made.path = path;
            made.meaning = meta.doc;
            made.constant = c;
        }
        return found_[index];
    }

    FittedLimits limits_;
    std::vector<FittedConstant> found_;
};

sim::Status collect_stacks(Collector& out) {
    const auto names = sim::list_stacks();
    if (!names) {
        return names.error();
    }
    for (const sim::CatalogueEntry& name : *names) {
        auto stack = sim::load_stack(name.name);
        if (!stack) {
            return stack.error();
        }
        sim::StackProfile base;
        if (!stack->derived_from.empty()) {
            auto loaded = sim::load_stack(stack->derived_from);
            if (!loaded) {
                return loaded.error();
            }
            base = std::move(*loaded);
        }
        out.add(*stack, &base, "stack", name.name, "topologies/stacks/" + name.name + ".json", "");
    }
    return sim::Done{};
}

/// `owner_of`: the architecture of each device file.
sim::Status collect_devices(std::vector<sim::Device>& devices, Collector& out,
                            std::map<std::string, std::string>& owner_of) {
    for (sim::Device& device : devices) {
        auto architecture = sim::load_architecture(device.arch);
        if (!architecture) {
            return architecture.error();
        }
        sim::Device base;
        base.compute = std::move(*architecture);
        const std::string file = "topologies/devices/" + device.name + ".json";
        const std::string base_file = "topologies/architectures/" + device.arch + ".json";
        owner_of[file] = base_file;
        out.add(device, &base, "device", device.name, file, base_file);
    }
    return sim::Done{};
}

} // namespace

void for_each_fitted(sim::Scenario& scenario, const sim::ConstantLook& look) {
    look_at_fitted(scenario.stack, "stack", look);
    for (sim::Device& device : scenario.devices) {
        look_at_fitted(device, "device", look);
    }
    for (sim::FabricProfile& fabric : scenario.fabrics) {
        look_at_fitted(fabric, fabric_path(fabric), look);
    }
}

sim::Result<std::vector<FittedConstant>> fitted_constants(const FittedLimits& limits) {
    auto catalogue = sim::load_catalogue();
    if (!catalogue) {
        return catalogue.error();
    }
    Collector out(limits);
    if (const auto stacks = collect_stacks(out); !stacks) {
        return stacks.error();
    }
    std::map<std::string, std::string> owner_of;
    if (const auto devices = collect_devices(catalogue->devices, out, owner_of); !devices) {
        return devices.error();
    }
    for (sim::FabricProfile& fabric : catalogue->fabrics) {
        out.add(fabric, static_cast<sim::FabricProfile*>(nullptr), fabric_path(fabric), fabric.name,
                "topologies/fabrics/" + fabric.name + ".json", "");
    }
    if (const auto within = out.check(owner_of); !within) {
        return within.error();
    }
    return out.take();
}

std::size_t index_of(const std::vector<FittedConstant>& constants, const std::string& path,
                     const sim::Constant& constant) {
    const auto found = std::find_if(
        constants.begin(), constants.end(),
        [&](const FittedConstant& c) { return c.path == path && c.constant == constant; });
    return static_cast<std::size_t>(found - constants.begin());
}

} // namespace shardplan::plan
