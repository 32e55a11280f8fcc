#include "planner/search/search.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "planner/search/block_search.hpp"
#include "planner/search/findings.hpp"

namespace shardplan::plan {

namespace {

using sim::Layout;
using sim::Score;
using sim::Verdict;

/// One layout in this many is scored first. Enough to know good ones; few beside the whole.
constexpr std::int64_t sample_stride = 31;

/// Looks through cells for one thread.
class Worker {
public:
    /// `sample`: what is known before; null while the sample itself is taken.
    Worker(const Space& space, std::unique_ptr<Pricer> pricer, const SearchOptions& options,
           const Findings* sample)
        : space_(space), pricer_(std::move(pricer)), options_(options) {
        if (sample != nullptr) {
            blocks_.emplace(*pricer_, options.objective, *sample, space.tables());
        }
    }

    /// Gives the pricer with its caches to the next worker.
    std::unique_ptr<Pricer> release() { return std::move(pricer_); }

    /// False: stopped.
    bool search_cell(const Cell& cell, Findings& findings) {
        return space_.visit_blocks(cell, [&](const Block& block) {
            if (options_.stop.stop_requested()) {
                return false;
            }
            blocks_->run(block, findings);
            return true;
        });
    }

    /// Scores one layout in `sample_stride` of those with the least recomputation, or with the
    /// most where that does not fit.
    bool sample_cell(const Cell& cell, Findings& findings) {
        std::int64_t at = 0;
        return space_.visit_blocks(cell, [&](const Block& block) {
            for (const std::int64_t micro_batch : block.micro_batches) {
                if (at++ % sample_stride == 0) {
                    sample(block, micro_batch, findings);
                }
            }
            return !options_.stop.stop_requested();
        });
    }

private:
    void sample(const Block& block, std::int64_t micro_batch, Findings& findings) {
        for (const Again again : {block.again.front(), block.again.back()}) {
            Layout layout = with_recompute(block.layout, again, 1);
            layout.micro_batch = static_cast<std::uint32_t>(micro_batch);
            Score score = pricer_->memory(layout);
            if (score.verdict != Verdict::does_not_fit) {
                pricer_->add_time(layout, score);
                findings.take(layout, score);
                return;
            }
        }
    }

    const Space& space_;
    std::unique_ptr<Pricer> pricer_;
    const SearchOptions& options_;
    std::optional<BlockSearch> blocks_;
};

/// Tells the sink how far the cells are, from whichever thread finishes one.
class Meter {
public:
    Meter(ProgressSink* sink, std::size_t cells) : sink_(sink), cells_(cells) {}

    void finished_cell(std::int64_t scored, std::int64_t fits) {
        if (sink_ == nullptr) {
            return;
        }
        const std::scoped_lock lock(mutex_);
        scored_ += scored;
        fits_ += fits;
        ++done_;
        const std::string message = fmt::format("{} layouts scored, {} fit", scored_, fits_);
        sink_->report(
            {static_cast<double>(done_) / static_cast<double>(cells_), "search", message});
    }

private:
    ProgressSink* sink_;
    std::size_t cells_;
    std::mutex mutex_;
    std::size_t done_ = 0;
    std::int64_t scored_ = 0;
    std::int64_t fits_ = 0;
};

/// The threads of a search: each has its own pricer, and takes cell after cell.
class Crew {
public:
    Crew(const Space& space, const PricerFactory& pricers, const SearchOptions& options)
        : space_(space), options_(options) {
        std::size_t count = options.threads;
        if (count == 0) {
            count = std::max(1U, std::thread::hardware_concurrency());
        }
        count = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(1, space.cells().size()));
        for (std::size_t i = 0; i < count; ++i) {
            pricers_.push_back(pricers());
        }
    }

    /// Calls `look(worker, cell, findings)` for every cell; false if one was stopped. What the
    /// threads found is merged in any order, with the same result.
    template <class Look>
    bool run(const Findings* sample, Findings& all, Look look) {
        std::atomic<std::size_t> next{0};
        std::atomic<bool> whole{true};
        std::mutex mutex;
        const auto work = [&](std::unique_ptr<Pricer>& pricer) {
            Findings part(space_.tables(), options_);
            Worker worker(space_, std::move(pricer), options_, sample);
            const std::vector<Cell>& cells = space_.cells();
            for (std::size_t i = next++; i < cells.size() && whole; i = next++) {
                if (options_.stop.stop_requested() || !look(worker, cells[i], part)) {
                    whole = false;
                }
            }
            pricer = worker.release();
            const std::scoped_lock lock(mutex);
            all.merge(part);
        };
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 1; i < pricers_.size(); ++i) {
                threads.emplace_back(work, std::ref(pricers_[i]));
            }
            work(pricers_.front());
        }
        return whole;
    }

private:
    const Space& space_;
    const SearchOptions& options_;
    std::vector<std::unique_ptr<Pricer>> pricers_;
};

} // namespace

PlanSet search(const Space& space, const PricerFactory& pricers, const SearchOptions& options) {
    Crew crew(space, pricers, options);
    Meter meter(options.progress, space.cells().size());
    Findings sample(space.tables(), options);
    Findings all(space.tables(), options);
    bool whole = crew.run(nullptr, sample, [](Worker& worker, const Cell& cell, Findings& part) {
        return worker.sample_cell(cell, part);
    });
    whole = whole && crew.run(&sample, all, [&](Worker& worker, const Cell& cell, Findings& part) {
        const SearchCounts before = part.counts;
        const bool done = worker.search_cell(cell, part);
        meter.finished_cell(part.counts.scored - before.scored, part.counts.fits - before.fits);
        return done;
    });
    PlanSet out = all.result(space.count());
    out.stopped = !whole;
    return out;
}

} // namespace shardplan::plan
