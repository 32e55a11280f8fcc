#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "simulator/spec/scenario.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {

/// Random layouts of one model on up to `most_ranks` ranks that are legal for software that can
/// express everything.
class RandomLayouts {
public:
    RandomLayouts(const sim::ModelSpec& model, std::int64_t sequence, std::int64_t global_batch,
                  std::int64_t most_ranks, unsigned seed)
        : random_(seed), most_ranks_(most_ranks) {
        sim::Cluster cluster = dgx_h100(1);
        cluster.node_groups[0].node.devices = most_ranks;
        sim::Job work = job(sequence, global_batch);
        work.constraints.idle_devices = true;
        scenario_ = scenario(model, std::move(cluster), std::move(work));
        scenario_.stack.capabilities.rank_orders = {"any"};
        resolved_ = sim::resolve(scenario_).value().values;
        layers_ = sim::block_count(*sim::trunk_of(model));
    }

    [[nodiscard]] const sim::LayoutTables& tables() const { return tables_; }

    sim::Layout next() {
        while (true) {
            const sim::Layout layout = sim::normal_form(any());
            if (sim::rank_count(layout) <= most_ranks_ &&
                sim::is_legal(scenario_, resolved_, layout, tables_)) {
                return layout;
            }
        }
    }

private:
    std::int64_t pick(std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }
    bool rarely() { return pick(0, 3) == 0; }
    template <class T>
    T degree() {
        return static_cast<T>(pick(0, 1) == 0 ? 1 : pick(1, most_ranks_));
    }

    void draw_pipeline(sim::Layout& l) {
        l.pp = degree<std::uint16_t>();
        if (l.pp == 1) return;
        l.schedule = static_cast<sim::ScheduleKind>(pick(0, 6));
        const bool two = l.schedule >= sim::ScheduleKind::zb_v;
        const bool many = l.schedule == sim::ScheduleKind::interleaved;
        l.chunks = static_cast<std::uint16_t>(two ? 2 : many ? pick(2, 3) : 1);
        if (!rarely()) return;
        sim::StageMap map;
        map.layers.assign(l.pp, 1);
        for (std::int64_t left = layers_ - l.pp; left > 0; --left) {
            ++map.layers[static_cast<std::size_t>(pick(0, l.pp - 1))];
        }
        l.stage_map = tables_.intern(map);
    }
    void draw_sharding(sim::Layout& l) {
        l.shard = static_cast<sim::Shard>(pick(0, 3));
        if (l.shard != sim::Shard::none && rarely()) {
            l.shard_group = static_cast<std::uint32_t>(pick(1, most_ranks_));
        }
        if (l.shard == sim::Shard::all) {
            l.reshard = !rarely();
            l.prefetch = static_cast<std::uint8_t>(pick(1, 3));
            l.wrap = static_cast<sim::WrapUnit>(pick(0, 3));
        }
        if (rarely()) draw_offload(l);
    }
    void draw_offload(sim::Layout& l) {
        l.offload_tier = rarely() ? sim::OffloadTier::nvme : sim::OffloadTier::host;
        const auto share = [&] {
            const bool whole = pick(0, 1) == 1;
            return static_cast<std::uint16_t>(whole ? sim::offload_scale
                                                    : pick(1, sim::offload_scale));
        };
        const std::int64_t kinds = pick(1, 7);
        if ((kinds & 1) != 0) l.offload_optimizer = share();
        if ((kinds & 2) != 0) l.offload_activations = share();
        if ((kinds & 4) != 0 && l.shard == sim::Shard::all) l.offload_parameters = share();
    }
    sim::Layout any() {
        sim::Layout l;
        draw_pipeline(l);
        l.tp = degree<std::uint16_t>();
        l.cp = degree<std::uint16_t>();
        l.dp = degree<std::uint32_t>();
        l.ep = degree<std::uint16_t>();
        l.etp = static_cast<std::uint16_t>(rarely() ? pick(1, most_ranks_) : 0);
        l.micro_batch = static_cast<std::uint32_t>(pick(1, 2));
        l.sp = pick(0, 1) == 1;
        l.cp_kind = static_cast<sim::CpKind>(pick(0, 2));
        l.recompute = static_cast<std::uint32_t>(pick(0, 2));
        if (rarely()) l.recompute = tables_.intern({sim::Recompute::full, pick(1, 3)});
        l.order = static_cast<std::uint8_t>(rarely() ? pick(0, sim::order_count - 1) : 0);
        draw_sharding(l);
        return l;
    }

    std::mt19937 random_;
    std::int64_t most_ranks_ = 1;
    std::int64_t layers_ = 1;
    sim::Scenario scenario_;
    sim::Resolved resolved_;
    sim::LayoutTables tables_;
};

} // namespace shardplan::test
