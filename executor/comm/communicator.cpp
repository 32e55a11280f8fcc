#include "executor/comm/communicator.hpp"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "executor/comm/exchange.hpp"

namespace shardplan::exec {

namespace {

std::int64_t size_in_bytes(ConstView data) {
    return static_cast<std::int64_t>(data.bytes().size());
}

std::int64_t sum_of(std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

} // namespace

template <class F>
Status Communicator::run(CommCall seen, F&& work) {
    if (broken_) return *broken_;
    if (hooks_.begin) hooks_.begin(seen);
    const Call call{seen, timeout_, std::chrono::steady_clock::now() + timeout_};
    Status status = work(call);
    if (!status) broken_ = status.error();
    if (hooks_.end) hooks_.end(seen, status.has_value());
    return status;
}

Error Communicator::refusal(std::string_view operation, std::string what, std::string hint) const {
    return {
        ErrorCode::bad_input,
        fmt::format("rank {}, {} on {}", ranks_[static_cast<std::size_t>(rank_)], operation, name_),
        std::move(what), std::move(hint)};
}

std::optional<Error> Communicator::check_peer(std::string_view operation, int peer) const {
    if (peer >= 0 && peer < size()) return std::nullopt;
    return refusal(operation, fmt::format("there is no rank {}", peer),
                   fmt::format("ranks are 0 to {}", size() - 1));
}

std::optional<Error> Communicator::check_message(std::string_view operation, ConstView data,
                                                 int peer, int tag) const {
    if (auto error = check_peer(operation, peer)) return error;
    if (peer == rank_) {
        return refusal(operation, "a rank does not send to itself", "copy instead");
    }
    if (tag < 0 || tag > max_tag) {
        return refusal(operation, fmt::format("tag {} is out of range", tag),
                       fmt::format("tags are 0 to {}", max_tag));
    }
    if (data.count < 0) {
        return refusal(operation, fmt::format("a count of {}", data.count), "0 or more");
    }
    return std::nullopt;
}

std::optional<Error> Communicator::check_parts(std::string_view operation, ConstView own,
                                               ConstView all) const {
    if (own.scalar != all.scalar) {
        return refusal(operation,
                       fmt::format("one buffer holds {}, the other {}", sim::name_of(own.scalar),
                                   sim::name_of(all.scalar)),
                       "the same type in both");
    }
    if (own.count >= 0 && all.count == own.count * size()) return std::nullopt;
    return refusal(
        operation,
        fmt::format("{} elements for {} ranks with {} each", all.count, size(), own.count),
        fmt::format("{} elements", own.count * size()));
}

CommCall Communicator::collective(std::string_view operation, ConstView data, int root) const {
    const std::int64_t bytes = size_in_bytes(data);
    return {operation, name_, algorithm_for(operation, bytes), bytes, root};
}

Status Communicator::set_choice(CollectiveChoice choice) {
    using sim::Algorithm;
    const auto is = [&](Algorithm a) { return choice.algorithm == a; };
    if (is(Algorithm::nvls) || is(Algorithm::nvls_tree) || is(Algorithm::pat) ||
        is(Algorithm::collnet_chain) || is(Algorithm::collnet_direct)) {
        return refusal("choice of algorithm",
                       fmt::format("{} is not done over messages between CPUs",
                                   sim::name_of(*choice.algorithm)),
                       "ring, tree, hierarchical, torus_2d, halving_doubling or parameter_server");
    }
    if (choice.servers < 1 || (is(Algorithm::parameter_server) && choice.servers > size())) {
        return refusal("choice of algorithm",
                       fmt::format("{} servers among {} ranks", choice.servers, size()),
                       fmt::format("1 to {}", size()));
    }
    std::int64_t product = 1;
    bool all_positive = true;
    for (const int members : choice.tiers) {
        product *= members;
        all_positive = all_positive && members > 0;
    }
    if (!choice.tiers.empty() && (!all_positive || product != size())) {
        return refusal(
            "choice of algorithm",
            fmt::format("tiers of {} do not make {} ranks", fmt::join(choice.tiers, " x "), size()),
            "members of each tier, innermost first; their product is the size");
    }
    if (is(Algorithm::torus_2d) && choice.tiers.size() > 2) {
        const int rows = choice.tiers.front();
        choice.tiers = {rows, size() / rows};
    }
    choice_ = std::move(choice);
    return sim::Done{};
}

// --- messages ------------------------------------------------------------------------------------

Result<Request> Communicator::start_send(ConstView data, int to, int tag) {
    if (auto error = check_message("send", data, to, tag)) return *error;
    if (broken_) return *broken_;
    Request request;
    request.is_send_ = true;
    request.peer_ = to;
    request.bytes_ = size_in_bytes(data);
    traffic_.sent += request.bytes_;
    traffic_.messages += 1;
    request.pending_ = do_send(data.bytes(), to, tag);
    return request;
}

Result<Request> Communicator::start_receive(View data, int from, int tag) {
    if (auto error = check_message("receive", data, from, tag)) return *error;
    if (broken_) return *broken_;
    Request request;
    request.peer_ = from;
    request.bytes_ = size_in_bytes(data);
    traffic_.received += request.bytes_;
    request.pending_ = do_receive(data.bytes(), from, tag);
    return request;
}

Status Communicator::settle(Request& request, Deadline deadline, bool& done) {
    done = true;
    if (request.pending_ == nullptr) return sim::Done{};
    const Outcome outcome = request.pending_->wait_until(deadline);
    if (outcome.state == Outcome::State::done) {
        request.pending_.reset();
        return sim::Done{};
    }
    done = false;
    const CommCall call{request.is_send_ ? "send" : "receive", name_, "", request.bytes_,
                        request.peer_};
    Error error = message_error(call, timeout_, ranks_[static_cast<std::size_t>(rank_)],
                                ranks_[static_cast<std::size_t>(request.peer_)], request.is_send_,
                                request.bytes_, outcome);
    if (outcome.state == Outcome::State::failed) broken_ = error;
    return error;
}

Status Communicator::wait(Request& request) {
    const CommCall seen{request.is_send_ ? "send" : "receive", name_, "", request.bytes_,
                        request.peer_};
    return run(seen, [&](const Call& call) {
        bool done = false;
        return settle(request, call.deadline, done);
    });
}

Result<bool> Communicator::test(Request& request) {
    if (broken_) return *broken_;
    bool done = false;
    Status status = settle(request, Deadline::min(), done);
    if (status || !broken_) return done;
    return status.error();
}

Status Communicator::send(ConstView data, int to, int tag) {
    Result<Request> request = start_send(data, to, tag);
    if (!request) return request.error();
    return wait(*request);
}

Status Communicator::receive(View data, int from, int tag) {
    Result<Request> request = start_receive(data, from, tag);
    if (!request) return request.error();
    return wait(*request);
}

// --- collectives
// -----------------------------------------------------------------------------------

Status Communicator::all_reduce(View data, ReduceOp op) {
    if (data.count < 0) {
        return refusal("all_reduce", fmt::format("a count of {}", data.count), "0 or more");
    }
    return run(collective("all_reduce", data),
               [&](const Call& call) { return do_all_reduce(call, data, op); });
}

Status Communicator::all_gather(ConstView own, View all) {
    if (auto error = check_parts("all_gather", own, all)) return *error;
    return run(collective("all_gather", all),
               [&](const Call& call) { return do_all_gather(call, own, all); });
}

Status Communicator::reduce_scatter(ConstView all, View own, ReduceOp op) {
    if (auto error = check_parts("reduce_scatter", own, all)) return *error;
    return run(collective("reduce_scatter", all),
               [&](const Call& call) { return do_reduce_scatter(call, all, own, op); });
}

Status Communicator::broadcast(View data, int root) {
    if (auto error = check_peer("broadcast", root)) return *error;
    return run(collective("broadcast", data, root),
               [&](const Call& call) { return do_broadcast(call, data, root); });
}

Status Communicator::reduce(ConstView in, View out, ReduceOp op, int root) {
    if (auto error = check_peer("reduce", root)) return *error;
    if (rank_ == root && (in.count != out.count || in.scalar != out.scalar)) {
        return refusal("reduce",
                       fmt::format("{} elements of {} in, {} of {} out", in.count,
                                   sim::name_of(in.scalar), out.count, sim::name_of(out.scalar)),
                       "the same of both on the root");
    }
    return run(collective("reduce", in, root),
               [&](const Call& call) { return do_reduce(call, in, out, op, root); });
}

Status Communicator::all_to_all(ConstView in, View out) {
    if (in.count % size() != 0) {
        return refusal("all_to_all", fmt::format("{} elements for {} ranks", in.count, size()),
                       "a multiple of the number of ranks, or all_to_all_v");
    }
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), in.count / size());
    return all_to_all_v(in, counts, out, counts);
}

Status Communicator::all_to_all_v(ConstView in, std::span<const std::int64_t> counts_in, View out,
                                  std::span<const std::int64_t> counts_out) {
    const auto ranks = static_cast<std::size_t>(size());
    const auto fits = [&](ConstView data, std::span<const std::int64_t> counts) {
        for (const std::int64_t count : counts) {
            if (count < 0) return false;
        }
        return counts.size() == ranks && sum_of(counts) == data.count;
    };
    if (!fits(in, counts_in) || !fits(out, counts_out) || in.scalar != out.scalar) {
        return refusal(
            "all_to_all",
            fmt::format("{} elements of {} in and {} of {} out do not go with counts of {} and {}",
                        in.count, sim::name_of(in.scalar), out.count, sim::name_of(out.scalar),
                        fmt::join(counts_in, "+"), fmt::join(counts_out, "+")),
            fmt::format("one type, {} counts of 0 or more that sum to the elements", size()));
    }
    const auto self = static_cast<std::size_t>(rank_);
    if (counts_in[self] != counts_out[self]) {
        return refusal("all_to_all",
                       fmt::format("this rank sends itself {} elements and expects {}",
                                   counts_in[self], counts_out[self]),
                       "the same count");
    }
    return run(collective("all_to_all", in), [&](const Call& call) {
        return do_all_to_all_v(call, in, counts_in, out, counts_out);
    });
}

Status Communicator::barrier() {
    return run(collective("barrier", ConstView{}),
               [&](const Call& call) { return do_barrier(call); });
}

Result<std::unique_ptr<Communicator>> Communicator::split(int colour, int key, std::string name) {
    std::unique_ptr<Communicator> part;
    Status status = run(collective("split", ConstView{}), [&](const Call& call) -> Status {
        auto made = do_split(call, colour, key, std::move(name));
        if (!made) return made.error();
        part = std::move(*made);
        return sim::Done{};
    });
    if (!status) return status.error();
    part->timeout_ = timeout_;
    part->hooks_ = hooks_;
    part->choice_ = choice_;
    // Tiers and servers are of this size, not the part's.
    part->choice_.tiers.clear();
    part->choice_.servers = std::min(choice_.servers, part->size());
    return part;
}

} // namespace shardplan::exec
