#include "executor/optimizer/data_parallel.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace shardplan::exec {

namespace {

ShardRule rule_of(const DataParallelOptions& o) {
    const sim::Tier tier = tier_of(o.layout.offload_tier);
    return {o.layout.shard,
            o.optimizer.kind,
            {tier, o.layout.offload_optimizer, o.offload_to},
            {tier, o.layout.offload_parameters, o.offload_to}};
}

Status check(const DataParallelOptions& o, const RankShare& share, std::size_t units) {
    // of one unit each they reach over no chunks
    const bool reach = o.plan.buckets > 1 && static_cast<std::size_t>(o.plan.buckets) < units;
    if (share.mirrored && !o.plan.units && reach) {
        return Error{ErrorCode::unsupported, "layout",
                     "dualpipe with gradients in several buckets, which its two stages cut apart",
                     "use one bucket, or zero3"};
    }
    return sim::Done{};
}

} // namespace

template <class Scalar>
DataParallel<Scalar>::DataParallel(Kernels<Scalar>& kernels, Parameters<Scalar>& parameters,
                                   MemoryCount* count, DataParallelOptions options)
    : kernels_(&kernels),
      parameters_(&parameters),
      memory_(count != nullptr ? count : &own_memory_),
      options_(std::move(options)) {}

template <class Scalar>
Result<std::unique_ptr<DataParallel<Scalar>>> DataParallel<Scalar>::make(
    Communicator& world, const LayoutGroups& groups, const RankShare& share,
    Kernels<Scalar>& kernels, Parameters<Scalar>& parameters, MemoryCount& count,
    const DataParallelOptions& options) {
    std::unique_ptr<DataParallel> made(new DataParallel(kernels, parameters, &count, options));
    auto sharing = ShareGroups::make(world, groups, share, options.layout);
    if (!sharing) return std::move(sharing).error();
    made->groups_ = std::move(*sharing);
    made->share_ = share;
    if (auto s = check(options, share, parameters.table().units.size()); !s) {
        return std::move(s).error();
    }
    const sim::DataParallelPlan& plan = options.plan;
    Arrangement all = arrange(parameters.table(), share,
                              {plan.units, plan.units ? Index{plan.wrapped} : Index{plan.buckets}},
                              made->groups_.dense.part().parts, made->groups_.expert.part().parts);
    made->portions_ = std::move(all.portions);
    if (auto s = made->split(std::move(all.segments)); !s) return std::move(s).error();
    if (plan.gather_under && options.layout.shard == sim::Shard::all) {
        made->queue_ = std::make_unique<GatherQueue>();
    }
    return made;
}

template <class Scalar>
std::unique_ptr<DataParallel<Scalar>> DataParallel<Scalar>::make(Kernels<Scalar>& kernels,
                                                                 Parameters<Scalar>& parameters,
                                                                 const OptimizerOptions& options) {
    DataParallelOptions alone;
    alone.optimizer = options;
    std::unique_ptr<DataParallel> made(
        new DataParallel(kernels, parameters, nullptr, std::move(alone)));
    std::vector<Segment> segments = parameters.segments();
    made->portions_ = {{0, 0, static_cast<Index>(segments.size())}};
    // nothing is kept in files, so nothing fails
    [[maybe_unused]] const Status status = made->split(std::move(segments));
    return made;
}

template <class Scalar>
Status DataParallel<Scalar>::split(std::vector<Segment> segments) {
    std::vector<Index> parts;
    for (std::size_t s = 0; s < segments.size(); ++s) {
        parts.push_back(groups_.of(segments[s].holders).part().part);
        mirror_order_.push_back(static_cast<Index>(s));
    }
    const Buffer<Scalar> before = parameters_->arrange(std::move(segments), *memory_);
    const std::vector<Segment>& all = parameters_->segments();
    const auto key = [&](Index s) {
        const Segment& segment = all[static_cast<std::size_t>(s)];
        return std::pair(segment.holders,
                         std::string_view(parameters_->table()[segment.parameters.front()].name));
    };
    if (share_.mirrored) {
        std::sort(mirror_order_.begin(), mirror_order_.end(),
                  [&](Index a, Index b) { return key(a) < key(b); });
    }
    auto made = Shards<Scalar>::make(*parameters_, std::move(parts), rule_of(options_), *memory_);
    if (!made) return std::move(made).error();
    shards_ = std::move(*made);
    uses_.resize(portions_.size());
    reduced_.resize(portions_.size());
    if (!before.empty()) fill_from(before);
    return sim::Done{};
}

template <class Scalar>
void DataParallel<Scalar>::fill_from(const Buffer<Scalar>& values) {
    shards_->fill([&](Index i, Index begin, Index end, Scalar* out) {
        const Scalar* from = values.data() + parameters_->table()[i].offset;
        std::copy(from + begin, from + end, out);
    });
}

template <class Scalar>
void DataParallel<Scalar>::start(std::uint64_t seed) {
    shards_->fill([&](Index i, Index begin, Index end, Scalar* out) {
        start_values(parameters_->table()[i], seed, begin, end, out);
    });
}

// --- gathering ----------------------------------------------------------------------------------

template <class Scalar>
Index DataParallel<Scalar>::portion_of(Index chunk, Index wrap_unit) const {
    const auto first = std::find_if(portions_.begin(), portions_.end(),
                                    [&](const Portion& p) { return p.chunk == chunk; });
    return first - portions_.begin() + wrap_unit;
}

template <class Scalar>
template <class F>
void DataParallel<Scalar>::each_segment(Index p, F&& f) const {
    for (Index s = portion(p).first_segment; s < portion(p).first_segment + portion(p).segments;
         ++s) {
        f(s);
    }
}

template <class Scalar>
template <class F>
void DataParallel<Scalar>::each_use(Index p, F&& f) {
    f(p);
    for (const Index other : portion(p).reads) {
        f(other);
    }
}

template <class Scalar>
Status DataParallel<Scalar>::gather_segment(Index s) {
    const Segment& segment = shards_->segment(s);
    Communicator* group = groups_.of(segment.holders).parts;
    if (group == nullptr) return sim::Done{};
    const auto gather = [&](auto* all) {
        const auto piece = static_cast<std::size_t>(segment.piece());
        const auto room = static_cast<std::size_t>(segment.room());
        return group->all_gather(view(std::span(all + shards_->offset(s), piece)),
                                 view(std::span(all, room)));
    };
    return parameters_->storage() == Storage::bf16 ? gather(parameters_->packed(s))
                                                   : gather(parameters_->values(s));
}

template <class Scalar>
Status DataParallel<Scalar>::gather(Index p) {
    Status status = sim::Done{};
    each_segment(p, [&](Index s) {
        if (!status || !shards_->gathers(s)) return;
        shards_->put_into_whole(s);
        status = gather_segment(s);
    });
    return status;
}

template <class Scalar>
Status DataParallel<Scalar>::start_gather(Index p) {
    Status status = sim::Done{};
    each_use(p, [&](Index q) {
        Use& use = uses_[static_cast<std::size_t>(q)];
        if (use.count++ > 0 || !status) return;
        each_segment(q, [&](Index s) {
            if (shards_->gathers(s)) parameters_->hold_values(s, sim::TensorKind::gathered_weights);
        });
        if (queue_) {
            use.ticket = queue_->add([this, q] { return gather(q); });
        } else {
            status = gather(q);
        }
    });
    return status;
}

template <class Scalar>
bool DataParallel<Scalar>::is_gathered(Index p) {
    bool all = true;
    each_use(p, [&](Index q) { all = all && uses_[static_cast<std::size_t>(q)].count > 0; });
    return all;
}

template <class Scalar>
Status DataParallel<Scalar>::finish_gather(Index p) {
    Status status = sim::Done{};
    if (!queue_) return status;
    each_use(p, [&](Index q) {
        if (status) status = queue_->wait(uses_[static_cast<std::size_t>(q)].ticket);
    });
    return status;
}

template <class Scalar>
void DataParallel<Scalar>::release(Index p) {
    each_use(p, [&](Index q) {
        if (--uses_[static_cast<std::size_t>(q)].count > 0) return;
        each_segment(q, [&](Index s) {
            if (shards_->gathers(s)) parameters_->drop_values(s);
        });
    });
}

template <class Scalar>
Status DataParallel<Scalar>::wait_for_gathers() {
    if (queue_) return queue_->wait_for_all();
    return sim::Done{};
}

template <class Scalar>
Status DataParallel<Scalar>::gather_parameters(Index p) {
    Status status = sim::Done{};
    each_segment(p, [&](Index s) {
        if (status && !shards_->gathers(s)) status = gather_segment(s);
    });
    return status;
}

// --- reduction ----------------------------------------------------------------------------------

template <class Scalar>
std::span<Scalar> DataParallel<Scalar>::piece_gradients(Index s) {
    return {shards_->gradients(s), static_cast<std::size_t>(shards_->segment(s).piece())};
}

/// Whether an expert has gradients is its ranks' own affair: it depends on their tokens. Dense
/// parameters have them on all ranks or on none.
template <class Scalar>
bool DataParallel<Scalar>::has_new_gradients(Index p) const {
    bool any = false;
    each_segment(p, [&](Index s) {
        any = any ||
              (shards_->segment(s).holders == Holders::dense && parameters_->holds_gradients(s));
    });
    return any;
}

template <class Scalar>
Status DataParallel<Scalar>::reduce_segment(Index s) {
    const Segment& segment = shards_->segment(s);
    const Sharers& sharers = groups_.of(segment.holders);
    if (shard() == sim::Shard::none) {
        if (sharers.copies == nullptr) return sim::Done{};
        return sharers.copies->all_reduce(view(piece_gradients(s)), ReduceOp::sum);
    }
    if (sharers.parts == nullptr) return sim::Done{};
    parameters_->hold_gradients(s);
    Scalar* all = parameters_->gradients(s);
    const auto piece = static_cast<std::size_t>(segment.piece());
    Scalar* own = all + shards_->offset(s);
    auto status = sharers.parts->reduce_scatter(
        view(std::span(all, static_cast<std::size_t>(segment.room()))), view(std::span(own, piece)),
        ReduceOp::sum);
    if (!status || !shards_->splits_gradients(s)) return status;
    kernels_->add(segment.piece(), own, shards_->gradients(s));
    parameters_->drop_gradients(s);
    return sim::Done{};
}

template <class Scalar>
Status DataParallel<Scalar>::reduce(Index p) {
    const bool every_pass = shard() >= sim::Shard::optimizer_gradients;
    if (every_pass ? !has_new_gradients(p) : reduced_[static_cast<std::size_t>(p)]) {
        return sim::Done{};
    }
    if (auto s = wait_for_gathers(); !s) return s;
    reduced_[static_cast<std::size_t>(p)] = true;
    Status status = sim::Done{};
    each_segment(p, [&](Index s) {
        if (status) status = reduce_segment(s);
    });
    return status;
}

template <class Scalar>
Status DataParallel<Scalar>::add_copies() {
    if (shard() == sim::Shard::none) return sim::Done{};
    for (const Holders holders : {Holders::dense, Holders::expert}) {
        Communicator* copies = groups_.of(holders).copies;
        if (copies == nullptr) continue;
        Buffer<Scalar>& split = shards_->split_gradients(holders);
        if (!split.empty()) {
            const std::span all(split.data(), static_cast<std::size_t>(split.size()));
            if (auto s = copies->all_reduce(view(all), ReduceOp::sum); !s) return s;
        }
        for (Index s = 0; s < shards_->segments(); ++s) {
            if (shards_->segment(s).holders != holders || shards_->splits_gradients(s)) continue;
            if (auto r = copies->all_reduce(view(piece_gradients(s)), ReduceOp::sum); !r) return r;
        }
    }
    return sim::Done{};
}

/// Where tensor-parallel ranks have gradients of the same elements: of tokens, all of them, of
/// repeated rows those with the same heads, each in a slot of its own.
template <class Scalar>
auto DataParallel<Scalar>::alike_over_tp() -> std::vector<Alike> {
    std::vector<Alike> out;
    for (Index s = 0; s < shards_->segments(); ++s) {
        for (const Stretch& e : shards_->stretches(s)) {
            const Parameter& p = parameters_->table()[e.parameter];
            if (!p.tokens_split && p.repeats == 1) continue;
            const Index skipped = std::clamp<Index>(p.repeated_row * p.columns - e.first, 0,
                                                    p.repeats > 1 ? e.end - e.begin : 0);
            const auto size = static_cast<std::size_t>(e.end - e.begin - skipped);
            if (size == 0) continue;
            out.push_back(
                {{shards_->gradients(s) + e.begin + skipped, size},
                 static_cast<std::size_t>(p.repeats > 1 ? share_.tp.parts / p.repeats : 1),
                 static_cast<std::size_t>(p.repeats > 1 ? share_.tp.part / p.repeats : 0)});
        }
    }
    return out;
}

template <class Scalar>
Status DataParallel<Scalar>::add_tokens() {
    if (groups_.tp == nullptr) return sim::Done{};
    const std::vector<Alike> places = alike_over_tp();
    std::size_t count = 0;
    for (const Alike& place : places) {
        count += place.slots * place.values.size();
    }
    if (count == 0) return sim::Done{};
    const auto bytes = static_cast<std::int64_t>(count * sizeof(Scalar));
    memory_->add(sim::TensorKind::buckets, bytes);
    std::vector<Scalar> bucket(count);
    const auto each = [&](auto&& f) {
        Scalar* at = bucket.data();
        for (const Alike& place : places) {
            f(place.values, at + place.slot * place.values.size());
            at += place.slots * place.values.size();
        }
    };
    each([](std::span<Scalar> own, Scalar* slot) { std::copy(own.begin(), own.end(), slot); });
    auto status = groups_.tp->all_reduce(view(bucket), ReduceOp::sum);
    each([](std::span<Scalar> own, const Scalar* slot) {
        std::copy_n(slot, own.size(), own.begin());
    });
    memory_->remove(sim::TensorKind::buckets, bytes);
    return status;
}

template <class Scalar>
Status DataParallel<Scalar>::add_stages() {
    for (const Index s : mirror_order_) {
        Communicator* both = groups_.mirror;
        if (shards_->segment(s).on_two_stages) both = groups_.table;
        if (both == nullptr) continue;
        if (auto r = both->all_reduce(view(piece_gradients(s)), ReduceOp::sum); !r) return r;
    }
    return sim::Done{};
}

template <class Scalar>
Status DataParallel<Scalar>::finish_reduction() {
    for (Index p = 0; p < portions(); ++p) {
        if (auto s = reduce(p); !s) return s;
    }
    if (auto s = wait_for_gathers(); !s) return s;
    if (auto s = add_copies(); !s) return s;
    if (auto s = add_tokens(); !s) return s;
    return add_stages();
}

template class DataParallel<float>;
template class DataParallel<double>;

} // namespace shardplan::exec
