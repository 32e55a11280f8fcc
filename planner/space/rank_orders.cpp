#include "planner/space/rank_orders.hpp"

#include <algorithm>
#include <array>

#include "simulator/network/group_path.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::plan {

namespace {

using sim::Dim;
using sim::Group;
using sim::Layout;

/// What of an order can matter to a layout: the sequence of the dimensions in use, and on which
/// side of dp the experts are cut. Equal keys are equal orders, before any path is worked out.
std::uint32_t key_of(const std::array<Dim, 5>& order, const Layout& layout) {
    std::uint32_t key = 0;
    bool ep_seen = false;
    bool ep_before_dp = false;
    const auto add = [&](Dim dim, bool used) {
        if (used) {
            key = key * 8U + static_cast<std::uint32_t>(dim) + 1U;
        }
    };
    for (const Dim dim : order) {
        switch (dim) {
            case Dim::tp:
                add(dim, layout.tp > 1);
                break;
            case Dim::cp:
                add(dim, layout.cp > 1);
                break;
            case Dim::dp:
                add(dim, layout.dp > 1);
                ep_before_dp = ep_seen;
                break;
            case Dim::pp:
                add(dim, layout.pp > 1);
                break;
            case Dim::ep:
                ep_seen = true;
                break;
        }
    }
    return key * 2U + (layout.ep > 1 && ep_before_dp ? 1U : 0U);
}

/// Everything an order decides.
struct Links {
    std::vector<sim::GroupPath> paths;
    std::vector<sim::RankClass> classes; ///< where node groups differ

    friend bool operator==(const Links&, const Links&) = default;
};

Links links_of(const sim::Scenario& scenario, const sim::LayoutTables& tables, const Layout& layout,
               bool has_experts) {
    // dp alone carries nothing: gradients go over dp x cp
    constexpr std::array<Group, 6> of_all = {Group::tp,    Group::cp,    Group::pp,
                                             Group::dp_cp, Group::shard, Group::replica};
    constexpr std::array<Group, 3> of_experts = {Group::ep, Group::etp, Group::expert_dp};
    Links out;
    for (const Group group : of_all) {
        out.paths.push_back(sim::tiers_of(scenario, layout, group));
    }
    if (has_experts) {
        for (const Group group : of_experts) {
            out.paths.push_back(sim::tiers_of(scenario, layout, group));
        }
    }
    if (scenario.cluster.node_groups.size() > 1) {
        out.classes = sim::place(scenario, layout, tables).classes;
        for (sim::RankClass& rank_class : out.classes) {
            rank_class.example_rank = 0;
        }
    }
    return out;
}

} // namespace

std::vector<std::uint8_t> distinct_orders(const sim::Scenario& scenario,
                                          const sim::LegalityFacts& facts,
                                          const sim::LayoutTables& tables, Layout layout) {
    if (facts.orders.size() <= 1) {
        return facts.orders;
    }
    static const auto orders = [] {
        std::array<std::array<Dim, 5>, sim::order_count> all{};
        for (std::uint8_t order = 0; order < sim::order_count; ++order) {
            all[order] = sim::order_of(order);
        }
        return all;
    }();
    std::vector<std::uint8_t> out;
    std::vector<std::uint32_t> keys;
    std::vector<Links> known;
    for (const std::uint8_t order : facts.orders) {
        const std::uint32_t key = key_of(orders[order], layout);
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
            continue;
        }
        keys.push_back(key);
        layout.order = order;
        Links links = links_of(scenario, tables, layout, facts.experts > 0);
        if (std::find(known.begin(), known.end(), links) == known.end()) {
            known.push_back(std::move(links));
            out.push_back(order);
        }
    }
    return out;
}

} // namespace shardplan::plan
