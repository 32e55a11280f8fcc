#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "executor/comm/layout_groups.hpp"
#include "executor/kernels/tensor.hpp"
#include "executor/model/share.hpp"

namespace shardplan::exec {

/// What values are sent as.
enum class Sent : std::uint8_t {
    stored, ///< activations and their gradients: in 16 bits where activations wait in 16 bits
    exact,  ///< as they are
};

/// Exchanges with the ranks that hold the rest of a layer. The first error is kept; everything
/// after it is left out, so that buffers keep what they have. What is sent in 16 bits is rounded
/// where it lies, and sums are rounded after every step of the algorithm.
class Links {
public:
    /// `storage`: how activations wait between operators.
    Links(const RankShare& share, const LayoutGroups* groups, Storage storage)
        : share_(&share), groups_(groups), storage_(storage) {}

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
    [[nodiscard]] bool packs(Sent as = Sent::stored) const {
        return as == Sent::stored && storage_ == Storage::bf16 && std::is_floating_point_v<T>;
    }

    template <class T>
    void all_reduce(sim::Group group, T* data, Index count, Sent as = Sent::stored,
                    ReduceOp op = ReduceOp::sum) {
        if (failed()) return;
        const auto add = [&](auto* values) {
            keep([&] { return of(group).all_reduce(view(span_of(values, count)), op); });
        };
        if (!packs<T>(as)) return add(data);
        Bf16* packed = packed_at(data);
        pack_in_place(data, count, packed);
        add(packed);
        unpack_in_place(packed, count, data);
    }
    /// `own`: `count` elements, may lie at their place in `all`.
    template <class T>
    void all_gather(sim::Group group, const T* own, Index count, T* all, Sent as = Sent::stored) {
        if (failed()) return;
        Communicator& c = of(group);
        const Index whole = count * c.size();
        const auto gather = [&](const auto* part, auto* values) {
            keep([&] {
                return c.all_gather(const_view(span_of(part, count)), view(span_of(values, whole)));
            });
        };
        if constexpr (std::is_floating_point_v<T>) {
            if (packs<T>(as)) {
                Bf16* packed = packed_at(all);
                Bf16* place = packed + c.rank() * count;
                pack_in_place(own, count, place);
                gather(place, packed);
                return unpack_in_place(packed, whole, all);
            }
        }
        gather(own, all);
    }
    /// `all` is used up.
    template <class T>
    void reduce_scatter(sim::Group group, T* all, T* own, Index count, Sent as = Sent::stored) {
        if (failed()) return;
        Communicator& c = of(group);
        const Index whole = count * c.size();
        const auto add = [&](auto* values, auto* part) {
            keep([&] {
                return c.reduce_scatter(view(span_of(values, whole)), view(span_of(part, count)),
                                        ReduceOp::sum);
            });
        };
        if (!packs<T>(as)) return add(all, own);
        Bf16* packed = packed_at(all);
        Bf16* place = packed + c.rank() * count;
        pack_in_place(all, whole, packed);
        add(packed, place);
        unpack_in_place(place, count, own);
    }
    /// `count` elements in all, as many to each rank.
    template <class T>
    void all_to_all(sim::Group group, const T* in, T* out, Index count) {
        if (failed()) return;
        const auto exchange = [&](const auto* go, auto* come) {
            keep([&] {
                return of(group).all_to_all(const_view(span_of(go, count)),
                                            view(span_of(come, count)));
            });
        };
        if constexpr (std::is_floating_point_v<T>) {
            if (packs<T>()) {
                Bf16* come = packed_at(out); // two halves of the result's room
                Bf16* go = come + count;
                pack_in_place(in, count, go);
                exchange(go, come);
                return unpack_in_place(come, count, out);
            }
        }
        exchange(in, out);
    }
    /// `in` is used up.
    template <class T>
    void all_to_all_v(sim::Group group, T* in, std::span<const Index> counts_in, T* out,
                      std::span<const Index> counts_out, Sent as = Sent::stored) {
        if (failed()) return;
        const Index count_in = sum(counts_in);
        const Index count_out = sum(counts_out);
        const auto exchange = [&](auto* go, auto* come) {
            keep([&] {
                return of(group).all_to_all_v(view(span_of(go, count_in)), counts_in,
                                              view(span_of(come, count_out)), counts_out);
            });
        };
        if (!packs<T>(as)) return exchange(in, out);
        Bf16* packed = packed_at(out);
        pack_in_place(in, count_in, packed_at(in));
        exchange(packed_at(in), packed);
        unpack_in_place(packed, count_out, out);
    }
    /// Parts of `all`, one per rank in order, each known to its rank, become known to all.
    template <class T>
    void share_parts(sim::Group group, T* all, std::span<const Index> counts,
                     Sent as = Sent::stored) {
        if (failed()) return;
        if (!packs<T>(as)) return broadcast_parts(group, all, counts);
        Bf16* packed = packed_at(all);
        const auto own = static_cast<std::size_t>(of(group).rank());
        const Index before = sum(counts.first(own));
        pack_in_place(all + before, counts[own], packed + before);
        broadcast_parts(group, packed, counts);
        unpack_in_place(packed, sum(counts), all);
    }
    /// The reverse: adds up the parts, each where its rank is. The others are used up.
    template <class T>
    void sum_parts(sim::Group group, T* all, std::span<const Index> counts,
                   Sent as = Sent::stored) {
        if (failed()) return;
        if (!packs<T>(as)) return reduce_parts(group, all, counts);
        Bf16* packed = packed_at(all);
        const auto own = static_cast<std::size_t>(of(group).rank());
        const Index before = sum(counts.first(own));
        pack_in_place(all, sum(counts), packed);
        reduce_parts(group, packed, counts);
        unpack_in_place(packed + before, counts[own], all + before);
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
    /// Half the room of values, from the front: what they are in 16 bits.
    template <class T>
    static Bf16* packed_at(T* values) {
        return reinterpret_cast<Bf16*>(values);
    }
    static Index sum(std::span<const Index> counts);
    template <class T>
    void broadcast_parts(sim::Group group, T* all, std::span<const Index> counts) {
        for (std::size_t r = 0; r < counts.size(); ++r) {
            const View part = view(span_of(all, counts[r]));
            keep([&] { return of(group).broadcast(part, static_cast<int>(r)); });
            all += counts[r];
        }
    }
    template <class T>
    void reduce_parts(sim::Group group, T* all, std::span<const Index> counts) {
        for (std::size_t r = 0; r < counts.size(); ++r) {
            const View part = view(span_of(all, counts[r]));
            keep([&] { return of(group).reduce(part, part, ReduceOp::sum, static_cast<int>(r)); });
            all += counts[r];
        }
    }
    [[nodiscard]] Communicator& of(sim::Group group) const { return (*groups_)[group]; }
    template <class F>
    void keep(F&& exchange) {
        if (status_) status_ = exchange();
    }

    const RankShare* share_;
    const LayoutGroups* groups_;
    Storage storage_;
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
