#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "simulator/units/hash_mix.hpp"
#include "tests/executor/tiny_models.hpp"

/// Runs of a model on the ranks of a layout, compared with runs of it on one rank.
namespace shardplan::test {

/// A rank's share of a model, with values by place, and the groups it exchanges through.
template <class Scalar>
struct RankModel {
    std::unique_ptr<exec::LayoutGroups> groups; // outlive the model
    exec::RankShare share;
    std::unique_ptr<exec::Model<Scalar>> model;
};

constexpr exec::Index parallel_sequence = 24; ///< goes into the pieces of 2, 3 and 4 ranks

/// Values that depend on a parameter's name and the place in the whole alone.
template <class Scalar>
void fill_by_place(exec::Parameters<Scalar>& parameters) {
    for (const exec::Parameter& p : parameters.table().parameters) {
        std::size_t key = 0;
        for (const char c : p.name) {
            key = sim::hash_mix(key, static_cast<std::uint8_t>(c));
        }
        const double middle = p.start == exec::Start::ones ? 1.0 : 0.0;
        for (const exec::RowRange& range : p.ranges) {
            for (exec::Index i = 0; i < range.rows * p.columns; ++i) {
                const exec::Index place = (range.first_row + i / p.columns) * p.whole_columns +
                                          p.first_column + i % p.columns;
                const auto hash = sim::hash_mix(key, static_cast<std::uint64_t>(place)) >> 11U;
                const double unit = static_cast<double>(hash) * 0x1.0p-53;
                parameters.values()[p.offset + range.row * p.columns + i] =
                    static_cast<Scalar>(middle + 0.4 * (unit - 0.5));
            }
        }
    }
    parameters.changed();
}

/// Every rank of `world` calls it.
template <class Scalar>
exec::Result<RankModel<Scalar>> rank_model(exec::Communicator& world, const sim::ModelSpec& model,
                                           const sim::Layout& layout,
                                           const sim::LayoutTables& tables,
                                           const exec::ModelOptions& options) {
    auto groups = exec::LayoutGroups::make(world, layout);
    if (!groups) return groups.error();
    auto share = exec::share_of(model, layout, tables, world.rank());
    if (!share) return share.error();
    RankModel<Scalar> out{std::make_unique<exec::LayoutGroups>(std::move(*groups)), *share, {}};
    auto made = exec::Model<Scalar>::make(model, *share, out.groups.get(), options,
                                          std::make_shared<exec::CpuKernels<Scalar>>(1));
    if (!made) return made.error();
    out.model = std::move(*made);
    fill_by_place(out.model->parameters());
    return out;
}

/// Gradients of whole parameters by name.
using Gradients = std::map<std::string, std::vector<double>>;

/// Whether all tensor-parallel ranks find the same gradient, of which one counts.
inline bool alike_over_tp(const exec::Parameter& p) {
    return !p.split && !p.tokens_split && p.holders == exec::Holders::dense;
}

/// Adds what a rank holds to the whole, as block.hpp says whoever drives a model has to.
template <class Scalar>
void add_gradients(exec::Parameters<Scalar>& parameters, const exec::RankShare& share,
                   Gradients& whole) {
    for (const exec::Parameter& p : parameters.table().parameters) {
        std::vector<double>& sum = whole[p.name];
        sum.resize(static_cast<std::size_t>(p.whole_rows * p.whole_columns));
        if (alike_over_tp(p) && share.tp.part > 0) continue;
        const bool of_expert = p.holders == exec::Holders::expert;
        if (of_expert && !p.split && share.etp.part > 0) continue;
        for (const exec::RowRange& range : p.ranges) {
            for (exec::Index i = 0; i < range.rows * p.columns; ++i) {
                const exec::Index place = (range.first_row + i / p.columns) * p.whole_columns +
                                          p.first_column + i % p.columns;
                sum[static_cast<std::size_t>(place)] += static_cast<double>(
                    parameters.gradients()[p.offset + range.row * p.columns + i]);
            }
        }
    }
}

/// Whether gradients that are alike over the tensor-parallel ranks are so to the bit. `seen`: of
/// those who share a micro-batch's part.
template <class Scalar>
bool replicas_agree(exec::Parameters<Scalar>& parameters, Gradients& seen) {
    bool agree = true;
    for (const exec::Parameter& p : parameters.table().parameters) {
        if (!alike_over_tp(p)) continue;
        const Scalar* first = parameters.gradients() + p.offset;
        const auto [at, is_first] = seen.emplace(p.name, std::vector<double>());
        if (is_first) at->second.assign(first, first + p.count());
        agree = agree && std::equal(at->second.begin(), at->second.end(), first,
                                    [](double a, Scalar b) { return a == static_cast<double>(b); });
    }
    return agree;
}

/// What a step of all data-parallel ranks comes to.
struct StepResult {
    std::map<exec::Index, exec::Loss> losses; ///< by data-parallel rank
    Gradients gradients;
    bool alike = true;   ///< ranks that share a micro-batch found the same loss, replicas gradients
    bool leaves = false; ///< activations behind
    std::string failure;
};

struct ParallelCase {
    sim::ModelSpec model;
    std::string layout;
    exec::ModelOptions options;
    bool deferred = false;
};

inline TinyBatch parallel_tokens(const exec::ModelOptions& options, exec::Index dp,
                                 exec::Index vocab = 50) {
    TinyBatch batch;
    for (exec::Index i = 0; i < options.tokens(); ++i) {
        batch.tokens.push_back(static_cast<exec::Token>((i * i + 3 * i + 17 * dp) % vocab));
        batch.targets.push_back(static_cast<exec::Token>((i * i + 5 * i + 17 * dp + 4) % vocab));
    }
    return batch;
}

/// As a pipeline runs it, weights last.
template <class Scalar>
exec::Loss train_deferred(const exec::Model<Scalar>& model, const TinyBatch& batch,
                          exec::LossFactors factors) {
    exec::Pass<Scalar> pass;
    exec::Loss loss;
    model.embed(batch.tokens, pass);
    const auto blocks = static_cast<exec::Index>(pass.blocks.size());
    for (exec::Index i = 0; i < blocks; ++i) {
        model.forward(i, pass, true);
        loss.balance += pass.blocks[static_cast<std::size_t>(i)].balance;
    }
    exec::Buffer<Scalar> gradient(model.boundary());
    loss.sum = model.head(batch.targets, pass, factors.token, gradient.data());
    pass.output.release();
    for (exec::Index i = blocks - 1; i >= 0; --i) {
        model.backward(i, pass, gradient.data(), factors.balance, true);
    }
    model.embed_backward(batch.tokens, pass, gradient.data());
    model.weight_gradients(pass);
    return loss;
}

template <class Scalar>
StepResult run_step(const ParallelCase& c, const sim::Layout& layout,
                    const sim::LayoutTables& tables) {
    StepResult result;
    std::mutex mutex;
    std::map<std::pair<exec::Index, exec::Index>, Gradients> replicas; ///< by dp and cp
    const auto ranks = static_cast<int>(sim::rank_count(layout));
    const exec::LossFactors factors{1.0 / static_cast<double>(c.options.tokens() * layout.dp),
                                    1.0 / layout.dp};
    const auto body = [&](exec::Communicator& world) -> exec::Status {
        auto rank = rank_model<Scalar>(world, c.model, layout, tables, c.options);
        if (!rank) return rank.error();
        exec::Model<Scalar>& model = *rank->model;
        const exec::RankShare* share = &rank->share;
        const TinyBatch batch = parallel_tokens(c.options, share->dp.part, c.model.embedding.vocab);
        exec::Loss loss;
        if (c.deferred) {
            loss = train_deferred(model, batch, factors);
            if (auto status = model.failure(); !status) return status;
        } else {
            auto trained = model.train(batch.tokens, batch.targets, factors);
            if (!trained) return trained.error();
            loss = *trained;
        }
        const std::lock_guard lock(mutex);
        const auto [at, is_first] = result.losses.emplace(share->dp.part, loss);
        result.alike =
            result.alike && at->second.sum == loss.sum && at->second.balance == loss.balance &&
            replicas_agree(model.parameters(), replicas[{share->dp.part, share->cp.part}]);
        result.leaves = result.leaves || model.arena().bytes_in_use() != 0;
        add_gradients(model.parameters(), *share, result.gradients);
        return sim::Done{};
    };
    const auto outcome = exec::run_ranks(ranks, body, {.timeout = std::chrono::seconds(60)});
    if (auto status = outcome.status(); !status) result.failure = to_text(status.error());
    return result;
}

/// Largest differences between two steps, of losses relative to each, of gradients relative to the
/// largest of the parameter.
struct Deviation {
    double loss = 0.0;
    double gradient = 0.0;
    std::string parameter;
};
inline Deviation deviation(const StepResult& found, const StepResult& want) {
    Deviation d;
    for (const auto& [dp, loss] : want.losses) {
        const auto at = found.losses.find(dp);
        if (at == found.losses.end()) return {INFINITY, INFINITY, "a loss is missing"};
        d.loss = std::max(d.loss, std::abs(at->second.sum / loss.sum - 1.0));
        if (loss.balance > 0.0) {
            d.loss = std::max(d.loss, std::abs(at->second.balance / loss.balance - 1.0));
        }
    }
    for (const auto& [name, whole] : want.gradients) {
        const auto at = found.gradients.find(name);
        if (at == found.gradients.end()) return {d.loss, INFINITY, name + " is missing"};
        double largest = 0.0;
        double off = 0.0;
        for (std::size_t i = 0; i < whole.size(); ++i) {
            largest = std::max(largest, std::abs(whole[i]));
            off = std::max(off, std::abs(at->second[i] - whole[i]));
        }
        if (largest == 0.0) return {d.loss, INFINITY, name + " has no gradient"};
        if (off / largest > d.gradient) {
            d.gradient = off / largest;
            d.parameter = name;
        }
    }
    return d;
}

/// A model on the ranks of a layout against the same data-parallel ranks without it.
template <class Scalar>
Deviation deviation_of(const ParallelCase& c) {
    sim::LayoutTables tables;
    const auto layout = sim::parse_layout(c.layout, "layout", tables);
    if (!layout) return {INFINITY, INFINITY, to_text(layout.error())};
    sim::Layout plain;
    plain.dp = layout->layout.dp;
    ParallelCase alone = c;
    alone.deferred = false;
    const StepResult want = run_step<Scalar>(alone, plain, tables);
    const StepResult found = run_step<Scalar>(c, layout->layout, tables);
    if (!found.failure.empty()) return {INFINITY, INFINITY, found.failure};
    if (!found.alike) return {INFINITY, INFINITY, "ranks of a micro-batch differ"};
    if (found.leaves) return {INFINITY, INFINITY, "activations are left over"};
    return deviation(found, want);
}

} // namespace shardplan::test
