#include "executor/comm/message_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "executor/comm/algorithms.hpp"
#include "executor/comm/exchange.hpp"

namespace shardplan::exec {

namespace {

using sim::Algorithm;

/// Up to here a binomial tree: it takes fewer steps, and a ring moves fewer bytes. Chosen, not
/// measured: timings between threads of a busy machine did not tell the two apart near this size.
constexpr std::int64_t tree_up_to_bytes = 16 * 1024;

void copy_unless_there(Bytes to, ConstBytes from) {
    if (!from.empty() && to.data() != from.data()) {
        std::memmove(to.data(), from.data(), from.size());
    }
}

class MessageCommunicator final : public Communicator {
public:
    MessageCommunicator(std::shared_ptr<Endpoint> endpoint, std::vector<int> ranks, int rank,
                        std::uint32_t context, std::string name)
        : Communicator(ranks, rank, std::move(name)),
          endpoint_(std::move(endpoint)),
          library_(endpoint_->library_for(ranks, context)),
          context_(context) {}

    void stop(const std::string& reason) override { endpoint_->stop(reason); }

protected:
    std::unique_ptr<Pending> do_send(ConstBytes data, int to, int tag) override {
        return endpoint_->send(world_rank(to), {context_, tag}, data);
    }
    std::unique_ptr<Pending> do_receive(Bytes data, int from, int tag) override {
        return endpoint_->receive(world_rank(from), {context_, tag}, data);
    }
    Status do_all_reduce(const Call& call, View data, ReduceOp op) override;
    Status do_all_gather(const Call& call, ConstView own, View all) override;
    Status do_reduce_scatter(const Call& call, ConstView all, View own, ReduceOp op) override;
    Status do_broadcast(const Call& call, View data, int root) override;
    Status do_reduce(const Call& call, ConstView in, View out, ReduceOp op, int root) override;
    Status do_all_to_all_v(const Call& call, ConstView in, std::span<const std::int64_t> counts_in,
                           View out, std::span<const std::int64_t> counts_out) override;
    Status do_barrier(const Call& call) override {
        return over_messages(call, [](Exchange& x) { return exec::barrier(x); });
    }
    Result<std::unique_ptr<Communicator>> do_split(const Call& call, int colour, int key,
                                                   std::string name) override;
    [[nodiscard]] std::string_view algorithm_for(std::string_view operation,
                                                 std::int64_t bytes) const override;

private:
    [[nodiscard]] int world_rank(int member) const {
        return world_ranks()[static_cast<std::size_t>(member)];
    }
    [[nodiscard]] std::vector<int> tiers() const {
        return choice().tiers.empty() ? squarest(size()) : choice().tiers;
    }
    template <class F>
    Status over_messages(const Call& call, F&& steps) {
        const Exchange::Setting setting{*endpoint_,    {context_, collective_tag},
                                        call.seen,     call.timeout,
                                        call.deadline, traffic_};
        Exchange x(setting, world_ranks(), rank());
        return steps(x);
    }
    /// Waits for what the library started.
    Status by_library(const Call& call, std::unique_ptr<Pending> pending);

    std::shared_ptr<Endpoint> endpoint_;
    std::unique_ptr<GroupLibrary> library_;
    std::uint32_t context_;
};

std::string_view MessageCommunicator::algorithm_for(std::string_view operation,
                                                    std::int64_t bytes) const {
    const bool adds =
        operation == "all_reduce" || operation == "reduce" || operation == "reduce_scatter";
    const bool rooted = operation == "broadcast" || operation == "reduce";
    if (operation == "all_to_all") return "pairwise";
    if (operation == "barrier" || operation == "split") return "";
    if (adds && choice().rank_order) return "rank_order";
    if (choice().algorithm) {
        const Algorithm wanted = *choice().algorithm;
        const bool is_tiered = wanted == Algorithm::hierarchical || wanted == Algorithm::torus_2d;
        const bool does_it =
            operation == "all_reduce" || (rooted ? wanted == Algorithm::tree : is_tiered);
        return sim::name_of(does_it ? wanted : Algorithm::ring);
    }
    if (choice().library && library_ != nullptr && bytes <= library_->most_bytes())
        return "library";
    const bool by_tree = (rooted || operation == "all_reduce") && bytes <= tree_up_to_bytes;
    return sim::name_of(by_tree ? Algorithm::tree : Algorithm::ring);
}

Status MessageCommunicator::by_library(const Call& call, std::unique_ptr<Pending> pending) {
    traffic_.through_library += call.seen.bytes;
    const Outcome outcome = pending->wait_until(call.deadline);
    if (outcome.state == Outcome::State::done) return sim::Done{};
    Error error;
    error.code = ErrorCode::backend_failed;
    error.where = fmt::format("rank {}, {} on {} (library)", world_rank(rank()),
                              call.seen.operation, call.seen.group);
    error.what = outcome.state == Outcome::State::failed
                     ? outcome.why
                     : fmt::format("not all of ranks {} took part within {:g} s",
                                   fmt::join(world_ranks(), ", "),
                                   std::chrono::duration<double>(call.timeout).count());
    error.hint = "an algorithm of our own (ring) names the rank that is missing";
    return error;
}

Status MessageCommunicator::do_all_reduce(const Call& call, View data, ReduceOp op) {
    const Reduction how{data.scalar, op};
    const std::string_view algorithm = call.seen.algorithm;
    if (algorithm == "library") return by_library(call, library_->all_reduce(data, op));
    return over_messages(call, [&](Exchange& x) {
        if (algorithm == "rank_order") return rank_order_all_reduce(x, how, data.bytes());
        switch (*sim::enum_from<Algorithm>(algorithm)) {
            case Algorithm::tree:
                return tree_all_reduce(x, how, data.bytes());
            case Algorithm::hierarchical:
            case Algorithm::torus_2d:
                return tiered_all_reduce(x, how, data.bytes(), tiers());
            case Algorithm::halving_doubling:
                return halving_doubling_all_reduce(x, how, data.bytes());
            case Algorithm::parameter_server:
                return parameter_server_all_reduce(x, how, data.bytes(), choice().servers);
            default:
                return ring_all_reduce(x, how, data.bytes());
        }
    });
}

Status MessageCommunicator::do_all_gather(const Call& call, ConstView own, View all) {
    if (call.seen.algorithm == "library") return by_library(call, library_->all_gather(own, all));
    const std::size_t part = own.bytes().size();
    const Bytes data = all.bytes();
    copy_unless_there(data.subspan(static_cast<std::size_t>(rank()) * part, part), own.bytes());
    return over_messages(call, [&](Exchange& x) {
        if (call.seen.algorithm != "ring") return tiered_all_gather(x, data, tiers());
        return ring_all_gather(x, data, even_bounds(data.size(), bytes_of(all.scalar), size()));
    });
}

Status MessageCommunicator::do_reduce_scatter(const Call& call, ConstView all, View own,
                                              ReduceOp op) {
    const Reduction how{all.scalar, op};
    const std::string_view algorithm = call.seen.algorithm;
    if (algorithm == "library") return by_library(call, library_->reduce_scatter(all, own, op));
    const ConstBytes data = all.bytes();
    const Bounds bounds = even_bounds(data.size(), bytes_of(all.scalar), size());
    return over_messages(call, [&](Exchange& x) {
        if (algorithm == "rank_order") {
            std::vector<int> owners(static_cast<std::size_t>(size()));
            std::iota(owners.begin(), owners.end(), 0);
            return direct_reduce(x, how, data, bounds, owners, own.bytes());
        }
        if (algorithm != "ring") return tiered_reduce_scatter(x, how, data, own.bytes(), tiers());
        return ring_reduce_scatter(x, how, data, bounds, own.bytes());
    });
}

Status MessageCommunicator::do_broadcast(const Call& call, View data, int root) {
    if (call.seen.algorithm == "library") return by_library(call, library_->broadcast(data, root));
    return over_messages(call, [&](Exchange& x) {
        return call.seen.algorithm == "tree" ? tree_broadcast(x, data.bytes(), root)
                                             : chain_broadcast(x, data.bytes(), root);
    });
}

Status MessageCommunicator::do_reduce(const Call& call, ConstView in, View out, ReduceOp op,
                                      int root) {
    const Reduction how{in.scalar, op};
    const std::string_view algorithm = call.seen.algorithm;
    if (algorithm == "library") return by_library(call, library_->reduce(in, out, op, root));
    const Bytes result = rank() == root ? out.bytes() : Bytes();
    return over_messages(call, [&](Exchange& x) {
        if (algorithm == "rank_order") {
            return direct_reduce(x, how, in.bytes(), {0, in.bytes().size()}, {root}, result);
        }
        return algorithm == "tree" ? tree_reduce(x, how, in.bytes(), result, root)
                                   : chain_reduce(x, how, in.bytes(), result, root);
    });
}

Status MessageCommunicator::do_all_to_all_v(const Call& call, ConstView in,
                                            std::span<const std::int64_t> counts_in, View out,
                                            std::span<const std::int64_t> counts_out) {
    const auto sizes = [&](std::span<const std::int64_t> counts) {
        std::vector<std::size_t> bytes;
        for (const std::int64_t count : counts) {
            bytes.push_back(static_cast<std::size_t>(count) * bytes_of(in.scalar));
        }
        return bytes;
    };
    return over_messages(call, [&](Exchange& x) {
        return pairwise_all_to_all(x, in.bytes(), sizes(counts_in), out.bytes(), sizes(counts_out));
    });
}

Result<std::unique_ptr<Communicator>> MessageCommunicator::do_split(const Call& call, int colour,
                                                                    int key, std::string name) {
    struct Wish {
        int colour;
        int key;
        int rank;
        std::uint32_t last_context;
    };
    std::vector<Wish> wishes(static_cast<std::size_t>(size()));
    wishes[static_cast<std::size_t>(rank())] = {colour, key, rank(), endpoint_->last_context()};
    const Bytes data(reinterpret_cast<std::byte*>(wishes.data()), wishes.size() * sizeof(Wish));
    Status status = over_messages(call, [&](Exchange& x) {
        return ring_all_gather(x, data, even_bounds(data.size(), sizeof(Wish), size()));
    });
    if (!status) return status.error();

    // One above what any member has met, so no two members share it in another communicator. The
    // colours of one split may share it: they have no member in common.
    std::uint32_t context = 0;
    for (const Wish& wish : wishes) {
        context = std::max(context, wish.last_context + 1);
    }
    if (context > max_context) {
        return Error{ErrorCode::backend_failed,
                     fmt::format("rank {}, split of {}", world_rank(rank()), call.seen.group),
                     fmt::format("more than {} communicators one after the other", max_context),
                     "make them once and keep them"};
    }
    endpoint_->met(context);
    std::erase_if(wishes, [&](const Wish& wish) { return wish.colour != colour; });
    std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
        return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
    });
    std::vector<int> ranks;
    int self = 0;
    for (const Wish& wish : wishes) {
        if (wish.rank == rank()) self = static_cast<int>(ranks.size());
        ranks.push_back(world_rank(wish.rank));
    }
    return std::unique_ptr<Communicator>(std::make_unique<MessageCommunicator>(
        endpoint_, std::move(ranks), self, context, std::move(name)));
}

} // namespace

std::unique_ptr<Communicator> make_world(std::shared_ptr<Endpoint> endpoint) {
    std::vector<int> ranks(static_cast<std::size_t>(endpoint->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const int rank = endpoint->rank();
    return std::make_unique<MessageCommunicator>(std::move(endpoint), std::move(ranks), rank, 0U,
                                                 "world");
}

} // namespace shardplan::exec
