#include <random>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/spec/legality.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;
using sim::Estimate;
using sim::Evaluator;
using sim::Layout;
using sim::Score;
using sim::Workspace;

/// Random legal layouts of one scenario, over every field that a layout has.
class Draw {
public:
    Draw(sim::Scenario scenario, unsigned seed) : random_(seed) {
        const std::int64_t layers = sim::block_count(*sim::trunk_of(scenario.model));
        for (std::int64_t k = 1; k < 4; ++k) {
            plans_.push_back(tables_.intern(sim::RecomputePlan{sim::Recompute::full, k}));
        }
        for (const std::int64_t stages : {2, 4}) {
            sim::StageMap map;
            map.layers.assign(static_cast<std::size_t>(stages), layers / stages);
            map.layers.front() -= 1;
            map.layers.back() += layers - layers / stages * stages + 1;
            maps_.push_back(tables_.intern(map));
        }
        evaluator_ = std::make_unique<Evaluator>(*Evaluator::make(std::move(scenario), tables_));
    }

    [[nodiscard]] const Evaluator& evaluator() const { return *evaluator_; }

    Layout next() {
        while (true) {
            const Layout layout = sim::normal_form(any());
            if (sim::is_legal(evaluator_->scenario(), evaluator_->resolved(), layout,
                              evaluator_->tables())) {
                return layout;
            }
        }
    }

private:
    std::int64_t pick(std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }
    bool rarely() { return pick(0, 3) == 0; }
    std::int64_t power(std::int64_t most) { return std::int64_t{1} << pick(0, most); }

    Layout any() {
        Layout l;
        const std::int64_t devices = sim::device_count(evaluator_->scenario().cluster);
        l.tp = static_cast<std::uint16_t>(power(3));
        l.pp = static_cast<std::uint16_t>(power(4));
        l.cp = static_cast<std::uint16_t>(rarely() ? power(2) : 1);
        l.dp = static_cast<std::uint32_t>(std::max<std::int64_t>(devices / l.tp / l.pp / l.cp, 1));
        l.ep = static_cast<std::uint16_t>(power(3));
        l.etp = static_cast<std::uint16_t>(rarely() ? 1 : 0);
        l.micro_batch = static_cast<std::uint32_t>(power(3));
        l.sp = pick(0, 1) == 1;
        l.cp_kind = static_cast<sim::CpKind>(pick(0, 2));
        l.shard = static_cast<sim::Shard>(pick(0, 3));
        l.recompute = static_cast<std::uint32_t>(pick(0, 2));
        if (rarely()) l.recompute = plans_[static_cast<std::size_t>(pick(0, 2))];
        if (l.pp > 1) {
            l.schedule = static_cast<sim::ScheduleKind>(pick(0, 6));
            const bool two = l.schedule >= sim::ScheduleKind::zb_v;
            const bool many = l.schedule == sim::ScheduleKind::interleaved;
            l.chunks = static_cast<std::uint16_t>(two ? 2 : many ? pick(2, 4) : 1);
            if (rarely()) l.stage_map = maps_[static_cast<std::size_t>(pick(0, 1))];
        }
        if (rarely()) {
            l.offload_tier = sim::OffloadTier::host;
            l.offload_optimizer = static_cast<std::uint16_t>(pick(0, 1000));
            l.offload_activations = static_cast<std::uint16_t>(pick(0, 1000));
        }
        if (l.shard == sim::Shard::all && rarely()) {
            l.reshard = pick(0, 1) == 1;
            l.wrap = static_cast<sim::WrapUnit>(pick(0, 3));
            l.shard_group = static_cast<std::uint32_t>(power(3));
        }
        return l;
    }

    std::mt19937 random_;
    sim::LayoutTables tables_;
    std::vector<std::uint32_t> plans_;
    std::vector<std::uint32_t> maps_;
    std::unique_ptr<Evaluator> evaluator_;
};

std::vector<sim::Scenario> scenarios() {
    std::vector<sim::Scenario> out = {
        scenario(llama_3_8b(), dgx_h100(2), job(8192, 128)),
        scenario(gpt3_175b(), dgx_a100(16), job(2048, 256)),
        scenario(mixtral_8x7b(), dgx_h100(4), job(4096, 128)),
        scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), fsdp2_stack()),
        scenario(llama_3_70b(), dgx_h100(8), job(4096, 256), megatron_core_stack()),
    };
    // two kinds of nodes: classes are stages on a kind of node
    sim::Scenario mixed = scenario(llama_3_8b(), dgx_h100(2), job(8192, 128));
    sim::NodeGroup small = mixed.cluster.node_groups.front();
    small.name = "small";
    small.count = 2;
    mixed.cluster.node_groups.push_back(small);
    mixed.devices.push_back(a100_sxm_80gb());
    out.push_back(std::move(mixed));
    return out;
}

/// The figures that a Score and an Estimate share.
void expect_same(const Score& score, const Estimate& whole, const std::string& text) {
    const auto& deciding = whole.classes.at(static_cast<std::size_t>(score.peak_class));
    ASSERT_EQ(score.step_time, whole.time.total.value) << text;
    ASSERT_EQ(score.time_sigma, whole.time.sigma) << text;
    ASSERT_EQ(score.memory_sigma, whole.memory_sigma) << text;
    ASSERT_EQ(score.peak_class, whole.deciding_class) << text;
    ASSERT_EQ(score.peak, deciding.reserved.value) << text;
    ASSERT_EQ(score.usable, deciding.usable) << text;
    ASSERT_EQ(score.peak_phase, deciding.peak_phase) << text;
    ASSERT_EQ(score.verdict, whole.verdict) << text;
    ASSERT_EQ(score.deciding, whole.deciding) << text;
    ASSERT_EQ(score.money_per_million_tokens, whole.money_per_million_tokens) << text;
}

/// No class is nearer to its limit than the deciding one, and none has a worse verdict: stages that
/// were left out of the comparison could not have decided.
void expect_worst(const Estimate& whole, const std::string& text) {
    const auto& deciding = whole.classes[static_cast<std::size_t>(whole.deciding_class)];
    const double worst = deciding.reserved.high / deciding.usable;
    for (const sim::ClassMemory& c : whole.classes) {
        ASSERT_LE(c.reserved.high / c.usable, worst * (1.0 + 1e-12)) << text;
        ASSERT_LE(c.verdict, whole.verdict) << text;
    }
}

TEST(Score, EqualsTheEstimateBitForBitOnTenThousandRandomLayouts) {
    unsigned seed = 7;
    for (const sim::Scenario& given : scenarios()) {
        Draw draw(given, seed++);
        Workspace warm;
        for (int i = 0; i < 1700; ++i) {
            const Layout layout = draw.next();
            const std::string text = sim::to_text(layout, draw.evaluator().tables());
            const Score score = draw.evaluator().score(layout, warm);
            Workspace cold;
            Estimate whole;
            draw.evaluator().evaluate(layout, cold, whole);
            expect_same(score, whole, text);
            expect_worst(whole, text);
            if (HasFatalFailure()) return;
        }
    }
}

} // namespace
} // namespace shardplan::plan
