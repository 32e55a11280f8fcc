#include "executor/comm/exchange.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace shardplan::exec {

Error message_error(const CommCall& call, std::chrono::nanoseconds timeout, int rank, int peer,
                    bool is_send, std::int64_t bytes, const Outcome& outcome) {
    const std::string message =
        fmt::format("{} bytes {} rank {}", bytes, is_send ? "to" : "from", peer);
    Error error;
    error.code = ErrorCode::backend_failed;
    error.where = fmt::format("rank {}, {} on {}", rank, call.operation, call.group);
    if (!call.algorithm.empty()) error.where += fmt::format(" ({})", call.algorithm);
    if (outcome.state == Outcome::State::pending) {
        error.what = fmt::format("{} did not get through within {:g} s", message,
                                 std::chrono::duration<double>(timeout).count());
        error.hint = fmt::format(
            "see what rank {} waits for or printed last; allow more time if it is only slow", peer);
    } else {
        error.what = fmt::format("{} did not get through: {}", message, outcome.why);
        error.hint = fmt::format("see what rank {} reported first", peer);
    }
    return error;
}

Exchange::Started Exchange::start_send(int to, std::span<const std::byte> data) {
    Started started{nullptr, to, true, data.size()};
    if (data.empty()) return started;
    setting_->traffic.sent += static_cast<std::int64_t>(data.size());
    setting_->traffic.messages += 1;
    started.pending =
        setting_->endpoint.send(ranks_[static_cast<std::size_t>(to)], setting_->channel, data);
    return started;
}

Exchange::Started Exchange::start_receive(int from, std::span<std::byte> data) {
    Started started{nullptr, from, false, data.size()};
    if (data.empty()) return started;
    setting_->traffic.received += static_cast<std::int64_t>(data.size());
    started.pending =
        setting_->endpoint.receive(ranks_[static_cast<std::size_t>(from)], setting_->channel, data);
    return started;
}

Status Exchange::finish(Started& started) {
    if (started.pending == nullptr) return sim::Done{};
    const Outcome outcome = started.pending->wait_until(setting_->deadline);
    if (outcome.state == Outcome::State::done) {
        started.pending.reset();
        return sim::Done{};
    }
    const auto world = [&](int position) { return ranks_[static_cast<std::size_t>(position)]; };
    return message_error(setting_->call, setting_->timeout, world(rank_), world(started.peer),
                         started.is_send, static_cast<std::int64_t>(started.bytes), outcome);
}

Status Exchange::finish(std::vector<Started>& started) {
    for (Started& one : started) {
        if (Status status = finish(one); !status) return status;
    }
    started.clear();
    return sim::Done{};
}

Status Exchange::send(int to, std::span<const std::byte> data) {
    Started started = start_send(to, data);
    return finish(started);
}

Status Exchange::receive(int from, std::span<std::byte> data) {
    Started started = start_receive(from, data);
    return finish(started);
}

Status Exchange::send_receive(int to, std::span<const std::byte> out, int from,
                              std::span<std::byte> in) {
    Started receiving = start_receive(from, in);
    Started sending = start_send(to, out);
    if (Status status = finish(receiving); !status) return status;
    return finish(sending);
}

Status Exchange::signal(int to, int from) {
    const auto world = [&](int position) { return ranks_[static_cast<std::size_t>(position)]; };
    setting_->traffic.messages += 1;
    Started receiving{setting_->endpoint.receive(world(from), setting_->channel, {}), from, false,
                      0};
    Started sending{setting_->endpoint.send(world(to), setting_->channel, {}), to, true, 0};
    if (Status status = finish(receiving); !status) return status;
    return finish(sending);
}

Exchange Exchange::among(const std::vector<int>& positions) const {
    std::vector<int> ranks;
    ranks.reserve(positions.size());
    for (const int position : positions) {
        ranks.push_back(ranks_[static_cast<std::size_t>(position)]);
    }
    const auto self = std::find(positions.begin(), positions.end(), rank_);
    return {*setting_, std::move(ranks), static_cast<int>(self - positions.begin())};
}

} // namespace shardplan::exec
