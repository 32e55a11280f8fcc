#include "planner/search/block_search.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace shardplan::plan {

using sim::Layout;
using sim::OffloadTier;
using sim::Score;
using sim::Verdict;

namespace {

std::size_t index_of(Again again) { return static_cast<std::size_t>(again); }
std::size_t index_of(OffloadTier tier) { return static_cast<std::size_t>(tier); }

sim::Bytes too_much(const Score& score) { return score.peak - score.usable; }

} // namespace

void BlockSearch::run(const Block& block, Findings& found) {
    block_ = &block;
    found_ = &found;
    survivors_.clear();
    most_offload_.fill(std::nullopt);
    for (auto& row : hopeless_) {
        row.fill(false);
    }
    for (std::size_t i = 0; i < block.micro_batches.size(); ++i) {
        look(i);
    }
    price_survivors();
}

void BlockSearch::look(std::size_t micro_batch) {
    micro_batches_left_ = static_cast<std::int64_t>(block_->micro_batches.size() - micro_batch);
    layout_ = block_->layout;
    layout_.micro_batch = static_cast<std::uint32_t>(block_->micro_batches[micro_batch]);
    kept_.fill(std::nullopt);
    lean_.fill(std::nullopt);
    least_.reset();
    for (const Again again : block_->again) {
        if (again == Again::part) {
            look_part();
        } else {
            look_kept(again);
        }
        for (const OffloadTier tier : block_->tiers) {
            if (tier == OffloadTier::none) {
                continue;
            }
            if (again == Again::part) {
                look_part_offloaded(tier);
            } else {
                look_offloaded(again, tier);
            }
        }
    }
}

void BlockSearch::refuse(const Layout& layout, const Score& memory, bool& hopeless) {
    hopeless = memory.hopeless;
    found_->take_misfit(layout, memory,
                        (hopeless ? micro_batches_left_ : 1) * block_->order_count());
}

bool BlockSearch::can_matter(const Layout& fast, Score memory) {
    if (block_->orders.size() > 1) {
        pricer_.add_least_time_in_any_order(fast, memory);
    } else {
        pricer_.add_least_time(fast, memory);
    }
    return sample_.matters(fast, memory);
}

void BlockSearch::keep_if_it_matters(std::optional<Choice> choice) {
    if (choice && can_matter(choice->layout, choice->score)) {
        survivors_.push_back({std::move(*choice)});
    } else {
        found_->counts.cut_by_time += block_->order_count();
    }
}

/// Nothing offloaded, a fixed kind of recomputation.
void BlockSearch::look_kept(Again again) {
    bool& hopeless = hopeless_[index_of(again)][0];
    if (hopeless) {
        return;
    }
    const Layout layout = with_recompute(layout_, again, 0);
    const Score score = pricer_.memory(layout);
    kept_[index_of(again)] = score;
    if (score.verdict == Verdict::does_not_fit) {
        refuse(layout, score, hopeless);
        return;
    }
    found_->count_verdict(score.verdict, block_->order_count());
    const bool dominated =
        least_ && least_->verdict <= score.verdict && too_much(*least_) <= too_much(score);
    if (dominated) {
        found_->counts.cut_by_dominance += block_->order_count();
        return;
    }
    least_ = score;
    keep_if_it_matters(Choice{layout, score});
}

template <class Make>
std::optional<BlockSearch::Choice> BlockSearch::smallest(std::int64_t from, std::int64_t to,
                                                         Choice most, const Layout* fast,
                                                         Make make) {
    const Verdict wanted = most.score.verdict;
    const auto at = [&](std::int64_t number) {
        const Layout layout = make(number);
        return Choice{layout, pricer_.memory(layout)};
    };
    Choice best = std::move(most);
    std::optional<sim::Bytes> below; // what the number at `low` has too much
    std::int64_t low = from - 1;
    std::int64_t high = to;
    while (high - low > 1) {
        if (fast != nullptr && !can_matter(*fast, best.score)) {
            return std::nullopt;
        }
        const std::int64_t middle = low + (high - low) / 2;
        Choice one = at(middle);
        const sim::Bytes excess = too_much(one.score);
        if (excess < too_much(best.score) || (below && excess > *below)) {
            break; // memory does not fall steadily: every number is tried
        }
        if (one.score.verdict <= wanted) {
            high = middle;
            best = std::move(one);
        } else {
            low = middle;
            below = excess;
        }
    }
    for (std::int64_t number = from; high - low > 1 && number < to; ++number) {
        Choice one = at(number);
        if (one.score.verdict <= wanted) {
            return one;
        }
    }
    return best;
}

std::optional<BlockSearch::Choice> BlockSearch::fewest_blocks(const Layout& base, std::int64_t from,
                                                              Verdict wanted) {
    const auto at = [&](std::int64_t blocks) {
        const Layout layout = blocks == 0 ? base : with_recompute(base, Again::part, blocks);
        return Choice{layout, pricer_.memory(layout)};
    };
    Choice first = at(from);
    if (first.score.verdict <= wanted) {
        return first;
    }
    const std::int64_t most = block_->longest_stage - 1;
    if (from >= most) {
        return std::nullopt;
    }
    Choice lean = at(most);
    if (lean.score.verdict > wanted) {
        return std::nullopt;
    }
    return smallest(from + 1, most, std::move(lean), nullptr,
                    [&](std::int64_t blocks) { return at(blocks).layout; });
}

/// Nothing offloaded, some blocks recomputed.
void BlockSearch::look_part() {
    bool& hopeless = hopeless_[index_of(Again::part)][0];
    if (hopeless) {
        return;
    }
    const std::optional<Score>& none = kept_[index_of(Again::none)];
    if (none && none->verdict == Verdict::fits) {
        found_->count_verdict(Verdict::fits, block_->order_count());
        found_->counts.cut_by_dominance += block_->order_count();
        return;
    }
    const std::int64_t most = block_->longest_stage - 1;
    const Layout lean = with_recompute(layout_, Again::part, most);
    const Score score = pricer_.memory(lean);
    if (score.verdict == Verdict::does_not_fit) {
        refuse(lean, score, hopeless);
        return;
    }
    found_->count_verdict(score.verdict, block_->order_count());
    if (none && none->verdict <= score.verdict) {
        found_->counts.cut_by_dominance += block_->order_count();
        return;
    }
    keep_if_it_matters(smallest(1, most, {lean, score}, &layout_, [&](std::int64_t blocks) {
        return with_recompute(layout_, Again::part, blocks);
    }));
}

std::uint16_t BlockSearch::most_offload(OffloadTier tier) {
    std::optional<std::uint16_t>& most = most_offload_[index_of(tier)];
    if (!most) {
        most = pricer_.most_offload(layout_, tier, block_->offload_step);
    }
    return *most;
}

/// Memory with everything offloaded that the tier holds. Tiers that hold as much need it once.
Score BlockSearch::lean_memory(const Layout& layout, Again again, std::uint16_t most) {
    std::optional<Score>& known = lean_[index_of(again)];
    if (known && most == sim::offload_scale) {
        return *known;
    }
    const Score score = pricer_.memory(layout);
    if (most == sim::offload_scale) {
        known = score;
    }
    return score;
}

/// Where host memory holds all states, storage behind it is of no use.
bool BlockSearch::is_nearer_enough(OffloadTier tier) const {
    return tier == OffloadTier::nvme &&
           most_offload_[index_of(OffloadTier::host)] == sim::offload_scale;
}

/// A fixed kind of recomputation, states offloaded.
void BlockSearch::look_offloaded(Again again, OffloadTier tier) {
    bool& hopeless = hopeless_[index_of(again)][index_of(tier)];
    if (hopeless) {
        return;
    }
    const std::int64_t orders = block_->order_count();
    const std::optional<Score>& kept = kept_[index_of(again)];
    if (kept && kept->verdict == Verdict::fits) {
        found_->count_verdict(Verdict::fits, orders);
        found_->counts.cut_by_dominance += orders;
        return;
    }
    const Layout base = with_recompute(layout_, again, 0);
    const std::uint16_t most = most_offload(tier);
    const Layout layout = most == 0 ? base : with_offload(base, tier, most);
    const Score lean = lean_memory(layout, again, most);
    if (lean.verdict == Verdict::does_not_fit) {
        refuse(layout, lean, hopeless);
        return;
    }
    found_->count_verdict(lean.verdict, orders);
    if (is_nearer_enough(tier) || most == 0 || (kept && kept->verdict <= lean.verdict)) {
        found_->counts.cut_by_dominance += orders;
        return;
    }
    keep_if_it_matters(
        smallest(1, most / block_->offload_step, {layout, lean}, &base, [&](std::int64_t steps) {
            const std::int64_t share = steps * block_->offload_step;
            return with_offload(base, tier, static_cast<std::uint16_t>(share));
        }));
}

/// Pairs of recomputed blocks and offloaded states that reach a verdict, and in which neither
/// number could be smaller, none of them 0. The more is offloaded, the fewer blocks it takes, so
/// the walk starts with the largest share.
BlockSearch::Family BlockSearch::smallest_pairs(OffloadTier tier, std::uint16_t most,
                                                Verdict wanted) {
    Family out;
    std::int64_t blocks = block_->again.front() == Again::none ? 0 : 1;
    for (int share = most; share >= 0; share -= block_->offload_step) {
        const Layout base =
            share == 0 ? layout_ : with_offload(layout_, tier, static_cast<std::uint16_t>(share));
        auto fewest = fewest_blocks(base, blocks, wanted);
        if (!fewest) {
            break;
        }
        const std::int64_t with_larger_share = blocks;
        blocks = sim::LayoutTables::recompute(fewest->layout.recompute).layers_per_stage;
        if (blocks == with_larger_share && !out.empty()) {
            out.pop_back(); // a smaller share does with the same blocks
        }
        if (blocks > 0 && share > 0) {
            out.push_back(std::move(*fewest));
        }
    }
    return out;
}

/// Some blocks recomputed and states offloaded.
void BlockSearch::look_part_offloaded(OffloadTier tier) {
    bool& hopeless = hopeless_[index_of(Again::part)][index_of(tier)];
    if (hopeless) {
        return;
    }
    const std::int64_t orders = block_->order_count();
    const std::optional<Score>& none = kept_[index_of(Again::none)];
    if (none && none->verdict == Verdict::fits) {
        found_->count_verdict(Verdict::fits, orders);
        found_->counts.cut_by_dominance += orders;
        return;
    }
    const std::uint16_t most = most_offload(tier);
    Layout layout = with_recompute(layout_, Again::part, block_->longest_stage - 1);
    if (most > 0) {
        layout = with_offload(layout, tier, most);
    }
    const Score lean = lean_memory(layout, Again::part, most);
    if (lean.verdict == Verdict::does_not_fit) {
        refuse(layout, lean, hopeless);
        return;
    }
    found_->count_verdict(lean.verdict, orders);
    if (is_nearer_enough(tier) || most == 0 || (none && none->verdict <= lean.verdict)) {
        found_->counts.cut_by_dominance += orders;
        return;
    }
    if (!can_matter(layout_, lean)) {
        found_->counts.cut_by_time += orders;
        return;
    }
    Family pairs = smallest_pairs(tier, most, lean.verdict);
    if (pairs.empty()) {
        found_->counts.cut_by_dominance += orders;
    } else if (std::none_of(pairs.begin(), pairs.end(), [&](const Choice& pair) {
                   return can_matter(pair.layout, pair.score);
               })) {
        found_->counts.cut_by_time += orders;
    } else {
        survivors_.push_back(std::move(pairs));
    }
}

/// Step times in every rank order, one order after the other: its paths stay at hand.
void BlockSearch::price_survivors() {
    if (survivors_.empty()) {
        return;
    }
    const bool bound_again = block_->orders.size() > 1; // by the links of the order itself
    for (const std::uint8_t order : block_->orders) {
        for (Family& family : survivors_) {
            const auto matters = [&](Choice& one) {
                one.layout.order = order;
                Score least = one.score;
                pricer_.add_least_time(one.layout, least);
                return sample_.matters(one.layout, least);
            };
            if (bound_again && std::none_of(family.begin(), family.end(), matters)) {
                ++found_->counts.cut_by_time;
                continue;
            }
            ++found_->counts.scored;
            take_best(family, order);
        }
    }
}

void BlockSearch::take_best(const Family& family, std::uint8_t order) {
    std::optional<Choice> best;
    for (Choice one : family) {
        one.layout.order = order;
        pricer_.add_time(one.layout, one.score);
        const auto before = [&](const Choice& a, const Choice& b) {
            const double value = objective_value(objective_, a.layout, a.score);
            const double other = objective_value(objective_, b.layout, b.score);
            return value != other
                       ? value < other
                       : sim::to_text(a.layout, tables_) < sim::to_text(b.layout, tables_);
        };
        if (!best || before(one, *best)) {
            best = one;
        }
    }
    found_->take(best->layout, best->score);
}

} // namespace shardplan::plan
