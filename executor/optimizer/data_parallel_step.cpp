#include <algorithm>
#include <cmath>
#include <string>

#include "executor/optimizer/data_parallel.hpp"
#include "executor/optimizer/exact_sum.hpp"

namespace shardplan::exec {

template <class Scalar>
bool DataParallel<Scalar>::counts(Index parameter) const {
    const Parameter& p = parameters_->table()[parameter];
    const bool alike = p.holders == Holders::dense && !p.split;
    if (alike && share_.tp.part > 0) return false;
    // held alike by the ranks that split the experts
    if (p.holders == Holders::expert && !p.split && share_.etp.part > 0) return false;
    if (share_.mirrored) return 2 * share_.stage < share_.stages;
    return !p.on_two_stages || share_.stage == 0;
}

/// Elements from its start before those that another rank speaks for.
template <class Scalar>
Index DataParallel<Scalar>::counted_of(const Stretch& stretch) const {
    const Parameter& p = parameters_->table()[stretch.parameter];
    const Index all = stretch.end - stretch.begin;
    if (share_.tp.part % p.repeats == 0) return all;
    return std::clamp<Index>(p.repeated_row * p.columns - stretch.first, 0, all);
}

template <class Scalar>
std::vector<std::span<const Scalar>> DataParallel<Scalar>::counted_gradients() {
    std::vector<std::span<const Scalar>> out;
    for (Index s = 0; s < shards_->segments(); ++s) {
        const std::vector<Stretch>& stretches = shards_->stretches(s);
        if (stretches.empty()) continue;
        // ranks with copies of the piece share it out among them
        const PartOf copy = groups_.of(shards_->segment(s).holders).copy();
        const Index count = stretches.back().end;
        const Index first = count * copy.part / copy.parts;
        const Index last = count * (copy.part + 1) / copy.parts;
        const Scalar* gradients = shards_->gradients(s);
        Index joined = -1; // the end of what has just been added
        for (const Stretch& stretch : stretches) {
            const Index begin = std::max(first, stretch.begin);
            const Index end = std::min({last, stretch.end, stretch.begin + counted_of(stretch)});
            if (begin >= end || !counts(stretch.parameter)) continue;
            if (joined == begin) {
                const std::span<const Scalar> before = out.back();
                out.back() = {before.data(), before.size() + static_cast<std::size_t>(end - begin)};
            } else {
                out.push_back({gradients + begin, static_cast<std::size_t>(end - begin)});
            }
            joined = end;
        }
    }
    return out;
}

template <class Scalar>
Result<double> DataParallel<Scalar>::exact_norm() {
    ExactSum sum;
    for (const std::span<const Scalar> part : counted_gradients()) {
        sum.add_squares(part);
    }
    const std::span<std::int64_t> digits = sum.parts();
    if (groups_.world != nullptr) {
        auto status = groups_.world->all_reduce(view(digits), ReduceOp::sum);
        if (!status) return std::move(status).error();
    }
    return std::sqrt(sum.value());
}

template <class Scalar>
Result<double> DataParallel<Scalar>::plain_norm() {
    double own = 0.0;
    for (const std::span<const Scalar> part : counted_gradients()) {
        own += kernels_->square_sum(static_cast<Index>(part.size()), part.data());
    }
    if (groups_.world == nullptr) return std::sqrt(own);
    // added here, in the order of ranks, so that all have the same bits
    std::vector<double> all(static_cast<std::size_t>(groups_.world->size()));
    auto status = groups_.world->all_gather(view(std::span(&own, 1)), view(all));
    if (!status) return std::move(status).error();
    double sum = 0.0;
    for (const double of_rank : all) {
        sum += of_rank;
    }
    return std::sqrt(sum);
}

template <class Scalar>
Result<StepReport> DataParallel<Scalar>::norm() {
    shards_->prefetch(0);
    const auto norm = options_.deterministic ? exact_norm() : plain_norm();
    if (!norm) return norm.error();
    StepReport report;
    report.gradient_norm = *norm;
    if (!std::isfinite(report.gradient_norm)) {
        return Error{ErrorCode::backend_failed, "step " + std::to_string(steps_ + 1),
                     "the norm of the gradients is not finite",
                     "lower the learning rate, or lengthen its warm-up"};
    }
    // the small term as in PyTorch and Megatron Core
    const double clip = options_.optimizer.clip;
    if (clip > 0.0) report.factor = std::min(1.0, clip / (report.gradient_norm + 1e-6));
    return report;
}

template <class Scalar>
void DataParallel<Scalar>::update(double rate, const StepReport& report) {
    const OptimizerOptions& o = options_.optimizer;
    ++steps_;
    const auto factor = static_cast<Scalar>(report.factor);
    for (Index s = 0; s < shards_->segments(); ++s) {
        const Scalar* gradients = shards_->gradients(s);
        shards_->update(s, [&](const typename Shards<Scalar>::Run& run) {
            const Stretch& e = run.elements;
            const double decay = parameters_->table()[e.parameter].decays ? o.decay : 0.0;
            if (o.kind == OptimizerKind::adamw) {
                kernels_->adamw({rate, o.beta1, o.beta2, o.epsilon, decay, steps_}, e.end - e.begin,
                                factor, gradients + e.begin, run.values, run.first, run.second);
            } else {
                kernels_->sgd(rate, o.momentum, decay, e.end - e.begin, factor, gradients + e.begin,
                              run.values, run.first);
            }
        });
    }
    clear_gradients();
}

template <class Scalar>
void DataParallel<Scalar>::clear_gradients() {
    for (Index s = 0; s < shards_->segments(); ++s) {
        if (shards_->splits_gradients(s) && parameters_->holds_gradients(s)) {
            parameters_->drop_gradients(s);
        }
    }
    parameters_->clear_gradients(*kernels_);
    for (const Holders holders : {Holders::dense, Holders::expert}) {
        Buffer<Scalar>& split = shards_->split_gradients(holders);
        kernels_->fill(split.size(), Scalar(0), split.data());
    }
    reduced_.assign(reduced_.size(), false);
}

template <class Scalar>
Result<StepReport> DataParallel<Scalar>::step(double rate) {
    if (auto s = finish_reduction(); !s) return std::move(s).error();
    auto report = norm();
    if (!report) return report;
    update(rate, *report);
    for (Index p = 0; p < portions(); ++p) {
        if (auto s = gather_parameters(p); !s) return std::move(s).error();
    }
    return report;
}

template <class Scalar>
Status DataParallel<Scalar>::resume(Index steps) {
    steps_ = steps;
    shards_->pack_values();
    for (Index p = 0; p < portions(); ++p) {
        if (auto s = gather_parameters(p); !s) return s;
    }
    return sim::Done{};
}

template <class Scalar>
std::vector<StatePart<Scalar>> DataParallel<Scalar>::state() {
    std::vector<StatePart<Scalar>> out;
    for (Index s = 0; s < shards_->segments(); ++s) {
        shards_->each_run(s, [&](const typename Shards<Scalar>::Run& run) {
            const Stretch& e = run.elements;
            const Index end = e.first + e.end - e.begin;
            out.push_back({e.parameter, StateKind::value, e.first, end, run.values});
            out.push_back({e.parameter, StateKind::first, e.first, end, run.first});
            if (run.second == nullptr) return;
            out.push_back({e.parameter, StateKind::second, e.first, end, run.second});
        });
    }
    return out;
}

template <class Scalar>
std::vector<Communicator*> DataParallel<Scalar>::communicators() {
    std::vector<Communicator*> out;
    for (const auto& group : groups_.own) {
        out.push_back(group.get());
    }
    return out;
}

#define SHARDPLAN_INSTANTIATE(S)                                      \
    template Result<StepReport> DataParallel<S>::norm();              \
    template void DataParallel<S>::update(double, const StepReport&); \
    template void DataParallel<S>::clear_gradients();                 \
    template Result<StepReport> DataParallel<S>::step(double);        \
    template Status DataParallel<S>::resume(Index);                   \
    template std::vector<StatePart<S>> DataParallel<S>::state();      \
    template std::vector<Communicator*> DataParallel<S>::communicators();
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
