#pragma once

#include <span>
#include <utility>

#include "executor/comm/layout_groups.hpp"
#include "executor/kernels/tensor.hpp"
#include "executor/model/share.hpp"

namespace shardplan::exec {

/// Exchanges with the ranks that hold the rest of a layer. The first error is kept; everything
/// after it is left out, so that buffers keep what they have.
class Links {
public:
    Links(const RankShare& share, const LayoutGroups* groups) : share_(&share), groups_(groups) {}

    [[nodiscard]] const RankShare& share() const { return *share_; }
    [[nodiscard]] bool failed() const { return !status_; }
    [[nodiscard]] const Status& status() const { return status_; }
    /// What went wrong elsewhere: nothing is exchanged any more.
    void fail(Error error) {
        if (status_) status_ = std::move(error);
    }
    /// Tokens are alike on the ranks that split an expert, which are those that split the rest.
    [[nodiscard]] bool experts_split_as_rest() const;

    template <class T>
    void all_reduce(sim::Group group, T* data, Index count, ReduceOp op = ReduceOp::sum) {
        keep([&] { return of(group).all_reduce(view(span_of(data, count)), op); });
    }
    /// `own`: `count` elements, may lie in `all`.
    template <class T>
    void all_gather(sim::Group group, const T* own, Index count, T* all) {
        keep([&] {
            Communicator& c = of(group);
            return c.all_gather(const_view(span_of(own, count)),
                                view(span_of(all, count * c.size())));
        });
    }
    template <class T>
    void reduce_scatter(sim::Group group, const T* all, T* own, Index count) {
        keep([&] {
            Communicator& c = of(group);
            return c.reduce_scatter(const_view(span_of(all, count * c.size())),
                                    view(span_of(own, count)), ReduceOp::sum);
        });
    }
    /// `count` elements in all, as many to each rank.
    template <class T>
    void all_to_all(sim::Group group, const T* in, T* out, Index count) {
        keep([&] {
            return of(group).all_to_all(const_view(span_of(in, count)), view(span_of(out, count)));
        });
    }
    template <class T>
    void all_to_all_v(sim::Group group, const T* in, std::span<const Index> counts_in, T* out,
                      std::span<const Index> counts_out) {
        keep([&] {
            return of(group).all_to_all_v(const_view(span_of(in, sum(counts_in))), counts_in,
                                          view(span_of(out, sum(counts_out))), counts_out);
        });
    }
    /// Parts of `all`, one per rank in order, each known to its rank, become known to all.
    template <class T>
    void share_parts(sim::Group group, T* all, std::span<const Index> counts) {
        Index at = 0;
        for (std::size_t r = 0; r < counts.size(); ++r) {
            keep([&] {
                return of(group).broadcast(view(span_of(all + at, counts[r])), static_cast<int>(r));
            });
            at += counts[r];
        }
    }
    /// The reverse: adds up the parts, each where its rank is.
    template <class T>
    void sum_parts(sim::Group group, T* all, std::span<const Index> counts) {
        Index at = 0;
        for (std::size_t r = 0; r < counts.size(); ++r) {
            const View part = view(span_of(all + at, counts[r]));
            keep([&] { return of(group).reduce(part, part, ReduceOp::sum, static_cast<int>(r)); });
            at += counts[r];
        }
    }
    /// Messages to the next rank of a ring and from the one before, begun and awaited.
    template <class T>
    void start_turn(sim::Group group, const T* out, T* in, Index count, int tag, Request& sent,
                    Request& received) {
        keep([&]() -> Status {
            Communicator& c = of(group);
            auto send =
                c.start_send(const_view(span_of(out, count)), (c.rank() + 1) % c.size(), tag);
            if (!send) return send.error();
            sent = std::move(*send);
            auto receive = c.start_receive(view(span_of(in, count)),
                                           (c.rank() + c.size() - 1) % c.size(), tag);
            if (!receive) return receive.error();
            received = std::move(*receive);
            return sim::Done{};
        });
    }
    void finish_turn(sim::Group group, Request& sent, Request& received) {
        keep([&] { return of(group).wait(received); });
        keep([&] { return of(group).wait(sent); });
    }

private:
    template <class T>
    static std::span<T> span_of(T* data, Index count) {
        return {data, static_cast<std::size_t>(count)};
    }
    static Index sum(std::span<const Index> counts);
    [[nodiscard]] Communicator& of(sim::Group group) const { return (*groups_)[group]; }
    template <class F>
    void keep(F&& exchange) {
        if (status_) status_ = exchange();
    }

    const RankShare* share_;
    const LayoutGroups* groups_;
    Status status_ = sim::Done{};
};

/// With sequence parallelism the rows of all tensor-parallel ranks, else those of this one.
template <class S>
Reading<S> gathered_rows(Links& links, Arena& arena, const Tensor<S>& own, Index own_count) {
    if (!links.share().sp) return own.read();
    const Index count = own_count * links.share().tp.parts;
    if (own.packed() != nullptr) {
        Scratch<Bf16> all(arena, count);
        links.all_gather(sim::Group::tp, own.packed(), own_count, all.data());
        return {arena, all.data(), count};
    }
    Scratch<S> all(arena, count);
    const Reading<S> values = own.read();
    links.all_gather(sim::Group::tp, static_cast<const S*>(values), own_count, all.data());
    return Reading<S>(std::move(all));
}

} // namespace shardplan::exec
