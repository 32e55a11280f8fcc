#include <algorithm>
#include <cstring>
#include <numeric>

#include "executor/comm/algorithms.hpp"

namespace shardplan::exec {

namespace {

/// Receives one segment of every other rank's copy of a piece, and adds them in rank order.
Status gather_and_fold(Exchange& x, Reduction how, ConstBytes own, Bytes out,
                       std::vector<std::byte>& scratch) {
    std::vector<Exchange::Started> receiving;
    std::vector<const std::byte*> parts;
    scratch.resize(static_cast<std::size_t>(x.size() - 1) * own.size());
    for (int rank = 0; rank < x.size(); ++rank) {
        if (rank == x.rank()) {
            parts.push_back(own.data());
            continue;
        }
        const Bytes place = Bytes(scratch).subspan(receiving.size() * own.size(), own.size());
        receiving.push_back(x.start_receive(rank, place));
        parts.push_back(place.data());
    }
    if (Status status = x.finish(receiving); !status) return status;
    fold(how, out, parts);
    return sim::Done{};
}

} // namespace

Status direct_reduce(Exchange& x, Reduction how, ConstBytes in, const Bounds& bounds,
                     const std::vector<int>& owners, Bytes out) {
    std::size_t largest = 0;
    for (std::size_t j = 0; j < owners.size(); ++j) {
        largest = std::max(largest, bounds[j + 1] - bounds[j]);
    }
    const auto segment = [&](std::size_t j, std::size_t first) {
        const std::size_t from = std::min(bounds[j] + first, bounds[j + 1]);
        return in.subspan(from, std::min(segment_bytes, bounds[j + 1] - from));
    };
    std::vector<std::byte> scratch;
    for (std::size_t first = 0; first < largest; first += segment_bytes) {
        std::vector<Exchange::Started> sending;
        for (std::size_t j = 0; j < owners.size(); ++j) {
            if (owners[j] != x.rank())
                sending.push_back(x.start_send(owners[j], segment(j, first)));
        }
        for (std::size_t j = 0; j < owners.size(); ++j) {
            const ConstBytes own = segment(j, first);
            if (owners[j] != x.rank() || own.empty()) continue;
            Status status = gather_and_fold(x, how, own, out.subspan(first, own.size()), scratch);
            if (!status) return status;
        }
        if (Status status = x.finish(sending); !status) return status;
    }
    return sim::Done{};
}

Status parameter_server_all_reduce(Exchange& x, Reduction how, Bytes data, int servers) {
    const Bounds bounds = even_bounds(data.size(), bytes_of(how.scalar), servers);
    const auto piece = [&](int server) {
        const auto j = static_cast<std::size_t>(server);
        return data.subspan(bounds[j], bounds[j + 1] - bounds[j]);
    };
    std::vector<int> owners(static_cast<std::size_t>(servers));
    std::iota(owners.begin(), owners.end(), 0);
    const bool is_server = x.rank() < servers;
    Status status =
        direct_reduce(x, how, data, bounds, owners, is_server ? piece(x.rank()) : Bytes());
    if (!status) return status;
    std::vector<Exchange::Started> pulling;
    for (int server = 0; server < servers; ++server) {
        if (server != x.rank()) pulling.push_back(x.start_receive(server, piece(server)));
    }
    for (int rank = 0; is_server && rank < x.size(); ++rank) {
        if (rank != x.rank()) pulling.push_back(x.start_send(rank, piece(x.rank())));
    }
    return x.finish(pulling);
}

Status rank_order_all_reduce(Exchange& x, Reduction how, Bytes data) {
    const Bounds bounds = even_bounds(data.size(), bytes_of(how.scalar), x.size());
    std::vector<int> owners(static_cast<std::size_t>(x.size()));
    std::iota(owners.begin(), owners.end(), 0);
    const auto r = static_cast<std::size_t>(x.rank());
    const Bytes own = data.subspan(bounds[r], bounds[r + 1] - bounds[r]);
    if (Status status = direct_reduce(x, how, data, bounds, owners, own); !status) return status;
    return ring_all_gather(x, data, bounds);
}

Status pairwise_all_to_all(Exchange& x, ConstBytes in, const std::vector<std::size_t>& sizes_in,
                           Bytes out, const std::vector<std::size_t>& sizes_out) {
    std::vector<std::size_t> from(sizes_in.size());
    std::vector<std::size_t> into(sizes_out.size());
    std::exclusive_scan(sizes_in.begin(), sizes_in.end(), from.begin(), std::size_t{0});
    std::exclusive_scan(sizes_out.begin(), sizes_out.end(), into.begin(), std::size_t{0});
    const auto part_for = [&](int rank) {
        const auto i = static_cast<std::size_t>(rank);
        return in.subspan(from[i], sizes_in[i]);
    };
    const auto part_from = [&](int rank) {
        const auto i = static_cast<std::size_t>(rank);
        return out.subspan(into[i], sizes_out[i]);
    };
    const ConstBytes own = part_for(x.rank());
    if (!own.empty()) std::memcpy(part_from(x.rank()).data(), own.data(), own.size());
    for (int step = 1; step < x.size(); ++step) {
        const int to = x.neighbour(step);
        const int source = x.neighbour(-step);
        Status status = x.send_receive(to, part_for(to), source, part_from(source));
        if (!status) return status;
    }
    return sim::Done{};
}

Status barrier(Exchange& x) {
    for (int step = 1; step < x.size(); step <<= 1) {
        if (Status s = x.signal(x.neighbour(step), x.neighbour(-step)); !s) return s;
    }
    return sim::Done{};
}

} // namespace shardplan::exec
