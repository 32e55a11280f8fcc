#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "planner/search/plan.hpp"
#include "simulator/estimate/unit_time.hpp"

/// Every legal layout of a small scenario, found by trying the values of all fields against the
/// rules: nothing of planner/space is used but its definition.
namespace shardplan::plan::test {

using sim::Layout;
using sim::OffloadTier;
using sim::Score;
using sim::Verdict;

inline double to_spare(const Score& score) { return (score.usable - score.peak).value(); }

struct Scored {
    Layout layout;
    Score score;
    Score least;
    std::string text;
};

/// What is left of one row (a layout without its numbers of recomputed blocks and offloaded states)
/// by the definition of an ordered choice.
class BruteForce {
public:
    BruteForce(const sim::Evaluator& evaluator, sim::Objective objective)
        : evaluator_(evaluator),
          objective_(objective),
          legality_(evaluator.scenario(), evaluator.resolved()) {}

    std::vector<Scored> kept;                 ///< one per family and distinct order
    std::int64_t legal = 0;                   ///< families, in every distinct order
    std::array<std::int64_t, 3> by_verdict{}; ///< of the families

    void run() {
        const sim::LegalityFacts& facts = legality_.facts();
        const std::int64_t devices = facts.devices;
        Layout l;
        for (std::int64_t ranks = 1; ranks <= devices; ++ranks) {
            if (!uses_whole_nodes(ranks)) continue;
            for (std::int64_t tp = 1; tp <= ranks; ++tp) {
                for (std::int64_t pp = 1; tp * pp <= ranks; ++pp) {
                    for (std::int64_t cp = 1; tp * pp * cp <= ranks; ++cp) {
                        if (ranks % (tp * pp * cp) != 0) continue;
                        l = Layout{};
                        l.tp = static_cast<std::uint16_t>(tp);
                        l.pp = static_cast<std::uint16_t>(pp);
                        l.cp = static_cast<std::uint16_t>(cp);
                        l.dp = static_cast<std::uint32_t>(ranks / (tp * pp * cp));
                        const auto& can = evaluator_.scenario().stack.capabilities;
                        l.sp = tp > 1 && can.sequence_parallel &&
                               evaluator_.resolved().sequence % (cp * tp) == 0;
                        with_kinds(l);
                    }
                }
            }
        }
    }

private:
    static constexpr std::uint16_t all = 1000;
    static constexpr std::uint16_t tenth = 100;

    [[nodiscard]] bool uses_whole_nodes(std::int64_t ranks) const {
        const sim::Scenario& s = evaluator_.scenario();
        return ranks == legality_.facts().devices ||
               (s.job.constraints.idle_devices &&
                ranks % s.cluster.node_groups.front().node.devices == 0);
    }
    [[nodiscard]] bool is_legal(const Layout& l) const {
        return !legality_.first_broken(l, evaluator_.tables());
    }

    void with_kinds(Layout l) {
        const std::int64_t experts = legality_.facts().experts;
        for (const sim::CpKind kind :
             {sim::CpKind::ring, sim::CpKind::all_to_all, sim::CpKind::all_gather}) {
            if (l.cp == 1 && kind != sim::CpKind::ring) continue;
            l.cp_kind = kind;
            for (std::uint16_t ep = 1; ep <= std::max<std::int64_t>(1, experts); ++ep) {
                for (std::uint16_t etp = 0; etp <= (l.tp > 1 ? 1 : 0); ++etp) {
                    l.ep = ep;
                    l.etp = etp;
                    with_sharding(l);
                }
            }
        }
    }

    void with_sharding(Layout l) {
        const std::int64_t copies = std::int64_t{l.dp} * l.cp;
        const sim::Scenario& s = evaluator_.scenario();
        const std::int64_t node = s.cluster.node_groups.front().node.devices;
        const auto& shards = s.stack.capabilities.shards;
        const bool has_zero2 = std::find(shards.begin(), shards.end(),
                                         sim::Shard::optimizer_gradients) != shards.end();
        const bool has_none =
            std::find(shards.begin(), shards.end(), sim::Shard::none) != shards.end();
        for (std::uint8_t shard = 0; shard < 4; ++shard) {
            l.shard = static_cast<sim::Shard>(shard);
            // nothing to split: one kind stands for all
            if (copies == 1 && l.shard != (has_none ? sim::Shard::none : shards.front())) continue;
            for (std::uint32_t group = 0; group < copies; ++group) {
                const bool near = group == 0 || node % (std::int64_t{group} * l.tp) == 0;
                if (group == 1 || !near) continue;
                for (const bool reshard : {true, false}) {
                    // zero2 of FSDP by another name, or without a meaning
                    if (!reshard &&
                        (has_zero2 || !s.stack.capabilities.fully_sharded || copies == 1)) {
                        continue;
                    }
                    l.shard_group = group;
                    l.reshard = reshard;
                    with_passes(l);
                }
            }
        }
    }

    void with_passes(Layout l) {
        const std::int64_t layers = legality_.facts().layers;
        std::vector<std::uint8_t> orders;
        for (std::uint16_t chunks = 1; chunks <= layers; ++chunks) {
            for (std::size_t s = 0; s < sim::EnumNames<sim::ScheduleKind>::names.size(); ++s) {
                l.chunks = chunks;
                l.schedule = static_cast<sim::ScheduleKind>(s);
                // the planner interleaves even chunks only
                if (l.schedule == sim::ScheduleKind::interleaved && layers % (l.pp * chunks) != 0) {
                    continue;
                }
                for (std::int64_t mb = 1; mb <= evaluator_.resolved().global_batch; ++mb) {
                    l.micro_batch = static_cast<std::uint32_t>(mb);
                    if (!is_legal_somehow(l)) continue;
                    if (orders.empty()) orders = distinct_orders(l);
                    look(l, orders);
                }
            }
        }
    }

    /// Some kind of recomputation is legal with it.
    [[nodiscard]] bool is_legal_somehow(Layout l) const {
        for (std::uint32_t recompute = 0; recompute < 3; ++recompute) {
            l.recompute = recompute;
            if (is_legal(l)) return true;
        }
        return false;
    }

    /// All 120 orders that are legal; of those with equal paths for every group, the one with the
    /// smallest number.
    [[nodiscard]] std::vector<std::uint8_t> distinct_orders(Layout l) const {
        for (l.recompute = 0; l.recompute < 2 && !is_legal(l); ++l.recompute) {
        }
        std::vector<std::uint8_t> out;
        std::vector<sim::Paths> known;
        for (std::uint8_t order = 0; order < 120; ++order) {
            l.order = order;
            if (!is_legal(l)) continue;
            sim::Paths paths = sim::paths_of(evaluator_.scenario(), l);
            paths[static_cast<std::size_t>(sim::Group::dp)] = {}; // nothing runs over dp alone
            if (legality_.facts().experts == 0) {
                for (const sim::Group group :
                     {sim::Group::ep, sim::Group::etp, sim::Group::expert_dp}) {
                    paths[static_cast<std::size_t>(group)] = {};
                }
            }
            if (std::find(known.begin(), known.end(), paths) == known.end()) {
                known.push_back(paths);
                out.push_back(order);
            } else if (probes_++ % 997 == 0) {
                expect_twin(l, out[static_cast<std::size_t>(
                                   std::find(known.begin(), known.end(), paths) - known.begin())]);
            }
        }
        return out;
    }

    /// An order that is left out costs what the one that stands for it costs, to the bit.
    void expect_twin(Layout l, std::uint8_t twin) const {
        sim::Workspace workspace;
        const Score own = evaluator_.score(l, workspace);
        l.order = twin;
        EXPECT_EQ(own, evaluator_.score(l, workspace)) << sim::to_text(l, evaluator_.tables());
    }

    // --- the numbers of ordered choices ----------------------------------------------------------

    struct Point {
        Layout layout;
        Score score;
    };
    [[nodiscard]] Point memory(const Layout& l) {
        return {l, evaluator_.score_memory(l, workspace_)};
    }
    static Verdict best(const std::vector<Point>& points) {
        Verdict out = Verdict::does_not_fit;
        for (const Point& point : points) {
            out = std::min(out, point.score.verdict);
        }
        return out;
    }
    /// The first that reaches a verdict.
    static const Point* first(const std::vector<Point>& points, Verdict wanted) {
        const auto at = std::find_if(points.begin(), points.end(), [&](const Point& point) {
            return point.score.verdict <= wanted;
        });
        return at == points.end() ? nullptr : &*at;
    }

    /// Layouts with every share of offloaded states that the nodes hold, from a tenth.
    [[nodiscard]] std::vector<Point> offloaded(Layout l, OffloadTier tier) {
        std::vector<Point> out;
        l.offload_tier = tier;
        for (std::uint16_t share = tenth; share <= all;
             share = static_cast<std::uint16_t>(share + tenth)) {
            l.offload_optimizer = share;
            if (is_legal(l) && holds(l)) out.push_back(memory(l));
        }
        return out;
    }
    [[nodiscard]] bool holds(const Layout& l) {
        const sim::Estimate estimate = evaluator_.estimate(l, workspace_);
        for (const sim::ClassMemory& c : estimate.classes) {
            const auto& node = evaluator_.scenario()
                                   .cluster.node_groups[static_cast<std::size_t>(c.node_group)]
                                   .node;
            if (c.host.value() * static_cast<double>(node.devices) > node.host.memory.value() ||
                c.nvme.value() * static_cast<double>(node.devices) > node.host.nvme.value()) {
                return false;
            }
        }
        return true;
    }

    void look(const Layout& row, const std::vector<std::uint8_t>& orders) {
        orders_ = &orders;
        const std::int64_t longest = (legality_.facts().layers + row.pp - 1) / row.pp;
        const auto with = [&](std::int64_t blocks) {
            Layout l = row;
            l.recompute = static_cast<std::uint32_t>(2 + blocks);
            return l;
        };
        std::vector<Point> lesser; // kinds with less recomputation
        for (const std::uint32_t kind : {0U, 1U, 2U}) {
            Layout l = row;
            l.recompute = kind;
            if (!is_legal(l)) continue;
            const Point plain = memory(l);
            const bool dominated =
                std::any_of(lesser.begin(), lesser.end(), [&](const Point& other) {
                    return other.score.verdict <= plain.score.verdict &&
                           to_spare(other.score) >= to_spare(plain.score);
                });
            family(plain.score.verdict, dominated ? std::vector<Point>{} : std::vector{plain});
            lesser.push_back(plain);
            offload_one(plain);
        }
        if (longest < 2 || !is_legal(with(1))) return;
        std::vector<std::vector<Point>> rows; // by share, of every number of blocks from 0
        rows.push_back(row_of(row, longest));
        part_of(rows.front());
        for (const OffloadTier tier : {OffloadTier::host, OffloadTier::nvme}) {
            if (!is_legal(moved(row, tier, all))) continue;
            rows.resize(1);
            for (std::uint16_t share = tenth; share <= all;
                 share = static_cast<std::uint16_t>(share + tenth)) {
                const Layout l = moved(row, tier, share);
                if (is_legal(l) && holds(l)) rows.push_back(row_of(l, longest));
            }
            pairs_of(rows, is_needless(row, tier));
        }
    }
    static Layout moved(Layout l, OffloadTier tier, std::uint16_t share) {
        l.offload_tier = tier;
        l.offload_optimizer = share;
        return l;
    }
    /// Storage behind host memory that holds everything.
    [[nodiscard]] bool is_needless(const Layout& l, OffloadTier tier) {
        const Layout host = moved(l, OffloadTier::host, all);
        return tier == OffloadTier::nvme && is_legal(host) && holds(host);
    }
    /// 0 blocks recomputed, 1, ... all but one.
    [[nodiscard]] std::vector<Point> row_of(Layout l, std::int64_t longest) {
        std::vector<Point> out;
        for (std::int64_t blocks = 0; blocks < longest; ++blocks) {
            l.recompute = blocks == 0 ? 0U : static_cast<std::uint32_t>(2 + blocks);
            out.push_back(memory(l));
        }
        return out;
    }

    void offload_one(const Point& plain) {
        for (const OffloadTier tier : {OffloadTier::host, OffloadTier::nvme}) {
            if (!is_legal(moved(plain.layout, tier, all))) continue;
            const std::vector<Point> shares = offloaded(plain.layout, tier);
            const Verdict verdict = std::min(plain.score.verdict, best(shares));
            const bool helps = verdict < plain.score.verdict;
            if (helps && !is_needless(plain.layout, tier)) {
                family(verdict, {*first(shares, verdict)});
            } else {
                family(verdict, {});
            }
        }
    }

    void part_of(const std::vector<Point>& blocks) {
        const Verdict verdict = best(blocks);
        if (blocks.front().score.verdict <= verdict) {
            family(verdict, {});
        } else {
            family(verdict, {*first(blocks, verdict)});
        }
    }

    /// `rows`: by share from 0. Pairs that reach the best verdict of all, with no number 0 and
    /// neither of them larger than it must be beside the other.
    void pairs_of(const std::vector<std::vector<Point>>& rows, bool needless) {
        Verdict verdict = Verdict::does_not_fit;
        for (const auto& row : rows) {
            verdict = std::min(verdict, best(row));
        }
        std::vector<Point> pairs;
        std::size_t fewest = rows.front().size(); // blocks with a smaller share
        for (std::size_t share = 0; share < rows.size(); ++share) {
            const Point* at = first(rows[share], verdict);
            if (at == nullptr) continue;
            const auto blocks = static_cast<std::size_t>(at - rows[share].data());
            if (blocks < fewest && blocks > 0 && share > 0) pairs.push_back(*at);
            fewest = std::min(fewest, blocks);
        }
        family(verdict, needless ? std::vector<Point>{} : pairs);
    }

    /// A family: its best member in every order, if there is one that matters.
    void family(Verdict verdict, const std::vector<Point>& members) {
        const auto orders = static_cast<std::int64_t>(orders_->size());
        legal += orders;
        by_verdict[static_cast<std::size_t>(verdict)] += orders;
        if (members.empty() || verdict == Verdict::does_not_fit) return;
        for (const std::uint8_t order : *orders_) {
            std::optional<Scored> best_member;
            for (const Point& member : members) {
                Scored one;
                one.layout = member.layout;
                one.layout.order = order;
                one.score = member.score;
                evaluator_.add_time(one.layout, workspace_, one.score);
                one.least = one.score;
                evaluator_.add_least_time(one.layout, workspace_, one.least);
                expect_bounds(one);
                one.text = sim::to_text(one.layout, evaluator_.tables());
                if (!best_member || is_before(one, *best_member)) best_member = one;
            }
            kept.push_back(*best_member);
        }
    }
    void expect_bounds(const Scored& one) {
        Score in_any_order = one.score;
        evaluator_.add_least_time(one.layout, workspace_, in_any_order,
                                  sim::Evaluator::Links::none);
        EXPECT_LE(in_any_order.step_time, one.least.step_time);
        EXPECT_LE(one.least.step_time, one.score.step_time);
        EXPECT_LE(one.least.money_per_million_tokens, one.score.money_per_million_tokens);
        EXPECT_GT(in_any_order.step_time.value(), 0.0);
    }
    [[nodiscard]] bool is_before(const Scored& a, const Scored& b) const {
        const double value = objective_value(objective_, a.layout, a.score);
        const double other = objective_value(objective_, b.layout, b.score);
        return value != other ? value < other : a.text < b.text;
    }

    const sim::Evaluator& evaluator_;
    sim::Objective objective_;
    sim::Legality legality_;
    sim::Workspace workspace_;
    const std::vector<std::uint8_t>* orders_ = nullptr;
    mutable std::int64_t probes_ = 0;
};

} // namespace shardplan::plan::test
