#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/units/hash_mix.hpp"
#include "tests/executor/tiny_models.hpp"

/// Training of made-up gradients by the ranks of a layout, as threads, without any model to compute
/// them: every rank that a gradient is added up over brings a number of its own.
namespace shardplan::test {

using namespace exec;

struct SharedTraining {
    sim::ModelSpec model = tiny_gpt2();
    std::string layout = "dp1,mb1";
    Index steps = 3;
    Index micro_batches = 1;
    Storage storage = Storage::scalar;
    bool deterministic = false;
    OptimizerOptions optimizer = {};
    std::int32_t buckets = 1;
    CollectiveChoice choice = {};
    std::string offload_to = {};
    double scale = 1.0; ///< of gradients
};

/// Elements of whole parameters: values, first and second moments.
template <class T>
using WholeState = std::map<std::string, std::array<std::vector<T>, 3>>;

/// One rank of it.
template <class T>
struct TrainingRank {
    Communicator* world = nullptr;
    const SharedTraining* training = nullptr;
    sim::Layout layout;
    RankShare share;
    LayoutGroups groups;
    CpuKernels<T> kernels{1};
    MemoryCount memory;
    std::unique_ptr<Parameters<T>> parameters;
    std::unique_ptr<DataParallel<T>> shared;
    std::vector<StepReport> reports;
};

inline double made_gradient(const std::string& name, Index element, Index pass, Index rank) {
    std::size_t key = 0;
    for (const char c : name)
        key = sim::hash_mix(key, static_cast<std::uint8_t>(c));
    for (const Index i : {element, pass, rank})
        key = sim::hash_mix(key, static_cast<std::uint64_t>(i));
    return static_cast<double>(key >> 11U) * 0x1.0p-52 - 1.0;
}

/// Of an element of a rank's part the place in the whole; -1 where a table is filled up.
inline Index whole_place(const Parameter& p, Index element) {
    const Index row = element / p.columns;
    for (const RowRange& range : p.ranges) {
        if (row < range.row || row >= range.row + range.rows) continue;
        return (range.first_row + row - range.row) * p.whole_columns + p.first_column +
               element % p.columns;
    }
    return -1;
}

/// What tells a rank's part of a gradient from those it is added to.
inline Index contributor(const Parameter& p, const RankShare& share, const sim::Layout& layout) {
    const auto group = p.holders == Holders::expert ? sim::Group::expert_dp : sim::Group::dp_cp;
    const std::vector<int> ranks = group_members(layout, group, static_cast<int>(share.rank));
    const Index place = std::find(ranks.begin(), ranks.end(), share.rank) - ranks.begin();
    const bool by_stage = p.on_two_stages || share.mirrored;
    return place + (p.tokens_split ? 16 * share.tp.part : 0) + (by_stage ? 256 * share.stage : 0);
}

inline sim::Layout layout_of(const std::string& text, sim::LayoutTables& tables) {
    const auto parsed = sim::parse_layout(text, "layout", tables);
    EXPECT_TRUE(parsed) << text;
    return parsed->layout;
}

/// A plan like that of the executor's Schedule.
inline sim::DataParallelPlan plan_of(const sim::Layout& layout, std::int32_t buckets) {
    sim::DataParallelPlan plan;
    plan.units = layout.shard == sim::Shard::all &&
                 (layout.dp * layout.cp > 1 || layout.offload_parameters > 0);
    plan.gather_under = plan.units && layout.prefetch > 0;
    constexpr std::array<std::int32_t, 4> wrapped = {1, 2, 4, 0};
    plan.wrapped = wrapped[static_cast<std::size_t>(layout.wrap)];
    plan.buckets = buckets;
    return plan;
}

template <class T>
Status set_up(Communicator& world, const SharedTraining& training, TrainingRank<T>& rank) {
    if (auto s = world.set_choice(training.choice); !s) return s;
    sim::LayoutTables tables;
    rank.world = &world;
    rank.training = &training;
    rank.layout = layout_of(training.layout, tables);
    auto groups = LayoutGroups::make(world, rank.layout);
    if (!groups) return groups.error();
    rank.groups = std::move(*groups);
    auto share = share_of(training.model, rank.layout, tables, world.rank());
    if (!share) return share.error();
    rank.share = *share;
    rank.parameters = std::make_unique<Parameters<T>>(parameter_table(training.model, rank.share),
                                                      training.storage);
    auto made = DataParallel<T>::make(
        world, rank.groups, rank.share, rank.kernels, *rank.parameters, rank.memory,
        {rank.layout, plan_of(rank.layout, training.buckets), training.optimizer,
         training.deterministic, training.offload_to});
    if (!made) return made.error();
    rank.shared = std::move(*made);
    rank.shared->start(7);
    return sim::Done{};
}

/// The parameters of a portion.
template <class T>
std::vector<Index> parameters_of(const TrainingRank<T>& rank, Index portion) {
    std::vector<Index> all;
    const Portion& p = rank.shared->portion(portion);
    for (Index s = p.first_segment; s < p.first_segment + p.segments; ++s) {
        const Segment& segment = rank.parameters->segments()[static_cast<std::size_t>(s)];
        all.insert(all.end(), segment.parameters.begin(), segment.parameters.end());
    }
    return all;
}

template <class T>
void add_gradients(TrainingRank<T>& rank, const std::vector<Index>& parameters, Index pass) {
    for (const Index i : parameters) {
        const Parameter& p = rank.parameters->table()[i];
        const Index from = contributor(p, rank.share, rank.layout);
        T* gradient = rank.parameters->gradient(i);
        for (Index e = 0; e < p.count(); ++e) {
            const Index place = whole_place(p, e);
            if (place < 0) continue;
            gradient[e] +=
                static_cast<T>(rank.training->scale * made_gradient(p.name, place, pass, from));
        }
    }
}

/// The passes of a step, which leave gradients to be finished.
template <class T>
Status run_passes(TrainingRank<T>& rank, Index step) {
    DataParallel<T>& shared = *rank.shared;
    const Index micro_batches = rank.training->micro_batches;
    for (Index m = 0; m < micro_batches; ++m) {
        const bool every = rank.layout.shard >= sim::Shard::optimizer_gradients;
        for (Index p = shared.portions() - 1; p >= 0; --p) {
            if (auto s = shared.start_gather(p); !s) return s;
            if (auto s = shared.finish_gather(p); !s) return s;
            add_gradients(rank, parameters_of(rank, p), step * micro_batches + m);
            shared.release(p);
            if (!every && m + 1 < micro_batches) continue;
            if (auto s = shared.reduce(p); !s) return s;
        }
    }
    return sim::Done{};
}

template <class T>
Status run_steps(TrainingRank<T>& rank, Index first, Index last) {
    for (Index step = first; step < last; ++step) {
        if (auto s = run_passes(rank, step); !s) return s;
        const auto report = rank.shared->step(0.01);
        if (!report) return report.error();
        rank.reports.push_back(*report);
    }
    return sim::Done{};
}

/// Puts what a rank keeps to its place in the whole; ranks that keep the same have the same.
template <class T>
void collect(TrainingRank<T>& rank, WholeState<T>& whole,
             std::map<std::string, std::vector<bool>>& seen) {
    for (const StatePart<T>& part : rank.shared->state()) {
        const Parameter& p = rank.parameters->table()[part.parameter];
        const auto kind = static_cast<std::size_t>(part.kind);
        const auto count = static_cast<std::size_t>(p.whole_rows * p.whole_columns);
        std::vector<T>& values = whole[p.name][kind];
        std::vector<bool>& there = seen[p.name + "/" + std::to_string(kind)];
        values.resize(count);
        there.resize(count);
        for (Index e = part.begin; e < part.end; ++e) {
            const Index place = whole_place(p, e);
            if (place < 0) {
                EXPECT_EQ(part.data[e - part.begin], T(0)) << p.name;
                continue;
            }
            const auto at = static_cast<std::size_t>(place);
            if (there[at]) {
                EXPECT_EQ(values[at], part.data[e - part.begin]) << p.name;
            }
            values[at] = part.data[e - part.begin];
            there[at] = true;
        }
    }
}

/// All ranks of a training, after it.
template <class T>
struct Trained {
    std::vector<TrainingRank<T>> ranks;
    WholeState<T> state;
};

/// `and_then` runs on every rank afterwards.
template <class T>
void train(const SharedTraining& training, Trained<T>& out,
           const std::function<Status(TrainingRank<T>&)>& and_then = {}) {
    sim::LayoutTables tables;
    const auto count = static_cast<int>(sim::rank_count(layout_of(training.layout, tables)));
    out.ranks = std::vector<TrainingRank<T>>(static_cast<std::size_t>(count));
    std::mutex mutex;
    std::map<std::string, std::vector<bool>> seen;
    RunOptions options;
    options.timeout = std::chrono::seconds(60);
    const auto body = [&](Communicator& world) -> Status {
        TrainingRank<T>& rank = out.ranks[static_cast<std::size_t>(world.rank())];
        if (auto s = set_up(world, training, rank); !s) return s;
        if (auto s = run_steps(rank, 0, training.steps); !s) return s;
        {
            const std::lock_guard lock(mutex);
            collect(rank, out.state, seen);
        }
        if (auto s = world.barrier(); !s) return s; // `and_then` may look at all of the state
        if (and_then) {
            if (auto s = and_then(rank); !s) return s;
        }
        rank.shared.reset(); // before the communicators
        rank.groups = {};
        return sim::Done{};
    };
    const RunOutcome outcome = run_ranks(count, body, options);
    ASSERT_TRUE(outcome.status()) << training.layout << ": " << to_text(outcome.status().error());
    for (const auto& [key, there] : seen) {
        EXPECT_EQ(std::count(there.begin(), there.end(), false), 0) << key << training.layout;
    }
}

/// The same on one rank, which adds up the gradients of all ranks of the layout.
template <class T>
void train_alone(const SharedTraining& training, Trained<T>& out) {
    sim::LayoutTables tables;
    const sim::Layout layout = layout_of(training.layout, tables);
    std::map<std::string, std::set<Index>> contributors;
    for (Index r = 0; r < sim::rank_count(layout); ++r) {
        const RankShare share = *share_of(training.model, layout, tables, r);
        for (const Parameter& p : parameter_table(training.model, share).parameters)
            contributors[p.name].insert(contributor(p, share, layout));
    }
    out.ranks = std::vector<TrainingRank<T>>(1);
    TrainingRank<T>& rank = out.ranks[0];
    rank.parameters = std::make_unique<Parameters<T>>(
        parameter_table(training.model, whole_model(training.model)), training.storage);
    rank.shared = DataParallel<T>::make(rank.kernels, *rank.parameters, training.optimizer);
    rank.shared->start(7);
    const std::vector<Parameter>& table = rank.parameters->table().parameters;
    for (Index step = 0; step < training.steps; ++step) {
        for (std::size_t i = 0; i < table.size(); ++i) {
            T* gradient = rank.parameters->gradient(static_cast<Index>(i));
            for (Index m = 0; m < training.micro_batches; ++m) {
                const Index pass = step * training.micro_batches + m;
                for (Index e = 0; e < table[i].count(); ++e) {
                    for (const Index from : contributors[table[i].name]) {
                        gradient[e] += static_cast<T>(training.scale *
                                                      made_gradient(table[i].name, e, pass, from));
                    }
                }
            }
        }
        const auto report = rank.shared->step(0.01);
        ASSERT_TRUE(report);
        rank.reports.push_back(*report);
    }
    std::map<std::string, std::vector<bool>> seen;
    collect(rank, out.state, seen);
}

/// The largest difference of any element.
template <class T>
double difference(const WholeState<T>& a, const WholeState<T>& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0.0;
    for (const auto& [name, kinds] : a) {
        const auto other = b.find(name);
        if (other == b.end()) {
            ADD_FAILURE() << name;
            continue;
        }
        for (std::size_t k = 0; k < kinds.size(); ++k) {
            EXPECT_EQ(kinds[k].size(), other->second[k].size()) << name;
            for (std::size_t i = 0; i < kinds[k].size(); ++i) {
                most = std::max(most, std::abs(static_cast<double>(kinds[k][i]) -
                                               static_cast<double>(other->second[k][i])));
            }
        }
    }
    return most;
}

} // namespace shardplan::test
