#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search/findings.hpp"
#include "planner/search/pricer.hpp"
#include "planner/space/space.hpp"

/// Private to planner/search: looks through blocks for one thread.
namespace shardplan::plan {

/// Prices the layouts of a block as far as needed to tell which can matter, and solves its ordered
/// choices: the smallest number of recomputed blocks, the smallest share of offloaded states with
/// which the layout reaches the best verdict that more of them would give. Where both are open, the
/// best by the objective of all pairs in which neither number could be smaller.
///
/// Memory falls as the numbers rise, so that they are found by bisection; where two probes show
/// otherwise, every number is tried. A block that is computed again at the very end can need its
/// input and its output at once, so the most that `part` recomputes is one block less than all.
class BlockSearch {
public:
    /// `sample`: what is known before; layouts that cannot change it are cut.
    BlockSearch(Pricer& pricer, sim::Objective objective, const Findings& sample,
                const sim::LayoutTables& tables)
        : pricer_(pricer), objective_(objective), sample_(sample), tables_(tables) {}

    /// Adds everything of a block to `found`.
    void run(const Block& block, Findings& found);

private:
    struct Choice {
        sim::Layout layout; ///< in the first rank order
        sim::Score score;   ///< memory
    };
    /// Choices of which the best counts.
    using Family = std::vector<Choice>;

    void look(std::size_t micro_batch);
    void look_kept(Again again);
    void look_part();
    void look_offloaded(Again again, sim::OffloadTier tier);
    void look_part_offloaded(sim::OffloadTier tier);
    void price_survivors();
    void take_best(const Family& family, std::uint8_t order);

    /// The smallest number from `from` to `to` that reaches the verdict of `most`, which is the
    /// choice of `to`. `make(number)` gives the layout. Nothing if what is left to try cannot
    /// matter, even if it took no longer than `fast` at least (null: whether it matters or not).
    template <class Make>
    [[nodiscard]] std::optional<Choice> smallest(std::int64_t from, std::int64_t to, Choice most,
                                                 const sim::Layout* fast, Make make);
    /// The fewest recomputed blocks, from `from` on, that reach a verdict.
    [[nodiscard]] std::optional<Choice> fewest_blocks(const sim::Layout& base, std::int64_t from,
                                                      sim::Verdict wanted);
    [[nodiscard]] Family smallest_pairs(sim::OffloadTier tier, std::uint16_t most,
                                        sim::Verdict wanted);
    [[nodiscard]] std::uint16_t most_offload(sim::OffloadTier tier);
    [[nodiscard]] sim::Score lean_memory(const sim::Layout& layout, Again again,
                                         std::uint16_t most);
    [[nodiscard]] bool is_nearer_enough(sim::OffloadTier tier) const;
    /// Could layouts with this memory, or more, that take as long as `fast` at least, matter?
    [[nodiscard]] bool can_matter(const sim::Layout& fast, sim::Score memory);
    void refuse(const sim::Layout& layout, const sim::Score& memory, bool& hopeless);
    void keep_if_it_matters(std::optional<Choice> choice);

    Pricer& pricer_;
    sim::Objective objective_;
    const Findings& sample_;
    const sim::LayoutTables& tables_;

    // of the block
    const Block* block_ = nullptr;
    Findings* found_ = nullptr;
    std::vector<Family> survivors_;
    std::array<std::optional<std::uint16_t>, 3> most_offload_; ///< by tier
    /// No larger micro-batch fits; by kind of recomputation, and by tier.
    std::array<std::array<bool, 3>, 4> hopeless_{};
    // of the micro-batch
    std::int64_t micro_batches_left_ = 0; ///< with this one
    sim::Layout layout_;
    std::array<std::optional<sim::Score>, 4> kept_; ///< nothing offloaded, by recomputation
    std::array<std::optional<sim::Score>, 4> lean_; ///< all offloaded, by recomputation
    std::optional<sim::Score> least_;               ///< memory of one with less recomputation
};

} // namespace shardplan::plan
