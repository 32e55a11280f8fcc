#include <algorithm>
#include <array>
#include <cstring>

#include "executor/comm/algorithms.hpp"

namespace shardplan::exec {

namespace {

std::size_t piece_bytes(const Bounds& bounds, int piece) {
    const auto i = static_cast<std::size_t>(piece);
    return bounds[i + 1] - bounds[i];
}

/// Bytes `first` to `first` + segment_bytes of a piece, less where it ends before.
template <class Span>
Span segment_of(Span data, const Bounds& bounds, int piece, std::size_t first) {
    const std::size_t size = piece_bytes(bounds, piece);
    const std::size_t from = std::min(first, size);
    return data.subspan(bounds[static_cast<std::size_t>(piece)] + from,
                        std::min(segment_bytes, size - from));
}

std::size_t largest_piece(const Bounds& bounds) {
    std::size_t largest = 0;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
        largest = std::max(largest, bounds[i + 1] - bounds[i]);
    }
    return largest;
}

} // namespace

Bounds even_bounds(std::size_t bytes, std::size_t element, int pieces) {
    const std::size_t count = bytes / element;
    const auto parts = static_cast<std::size_t>(pieces);
    Bounds bounds = {0};
    for (std::size_t i = 0; i < parts; ++i) {
        bounds.push_back(bounds.back() + (count / parts + (i < count % parts ? 1 : 0)) * element);
    }
    return bounds;
}

Status ring_reduce_scatter(Exchange& x, Reduction how, ConstBytes in, const Bounds& bounds,
                           Bytes out) {
    const int n = x.size();
    const std::size_t largest = largest_piece(bounds);
    const std::size_t own_begin = bounds[static_cast<std::size_t>(x.rank())];
    if (n == 1) {
        if (!out.empty()) std::memmove(out.data(), in.data() + own_begin, out.size());
        return sim::Done{};
    }
    std::array<std::vector<std::byte>, 2> scratch;
    for (auto& buffer : scratch) {
        buffer.resize(std::min(largest, segment_bytes));
    }
    for (std::size_t first = 0; first < largest; first += segment_bytes) {
        // What leaves in step s has passed s ranks before this one, each of which added its own.
        ConstBytes leaving = segment_of(in, bounds, x.neighbour(-1), first);
        for (int step = 0; step + 1 < n; ++step) {
            const int piece = x.neighbour(-2 - step);
            const ConstBytes own = segment_of(in, bounds, piece, first);
            const Bytes arriving =
                Bytes(scratch[static_cast<std::size_t>(step % 2)]).first(own.size());
            Status status = x.send_receive(x.neighbour(1), leaving, x.neighbour(-1), arriving);
            if (!status) return status;
            const bool is_last = step + 2 == n;
            const Bytes sum =
                is_last ? out.subspan(std::min(first, out.size()), own.size()) : arriving;
            combine(how, sum, arriving, own);
            leaving = arriving;
        }
    }
    return sim::Done{};
}

Status ring_all_gather(Exchange& x, Bytes data, const Bounds& bounds) {
    const auto piece = [&](int steps_back) {
        const auto i = static_cast<std::size_t>(x.neighbour(-steps_back));
        return data.subspan(bounds[i], bounds[i + 1] - bounds[i]);
    };
    for (int step = 0; step + 1 < x.size(); ++step) {
        Status status =
            x.send_receive(x.neighbour(1), piece(step), x.neighbour(-1), piece(step + 1));
        if (!status) return status;
    }
    return sim::Done{};
}

Status ring_all_reduce(Exchange& x, Reduction how, Bytes data) {
    const Bounds bounds = even_bounds(data.size(), bytes_of(how.scalar), x.size());
    const auto r = static_cast<std::size_t>(x.rank());
    const Bytes own = data.subspan(bounds[r], bounds[r + 1] - bounds[r]);
    if (Status status = ring_reduce_scatter(x, how, data, bounds, own); !status) return status;
    return ring_all_gather(x, data, bounds);
}

Status chain_broadcast(Exchange& x, Bytes data, int root) {
    const int place = (x.rank() - root + x.size()) % x.size();
    std::vector<Exchange::Started> sending;
    for (std::size_t first = 0; first < data.size(); first += segment_bytes) {
        const Bytes segment = data.subspan(first, std::min(segment_bytes, data.size() - first));
        if (place > 0) {
            if (Status status = x.receive(x.neighbour(-1), segment); !status) return status;
        }
        if (place + 1 < x.size()) sending.push_back(x.start_send(x.neighbour(1), segment));
    }
    return x.finish(sending);
}

Status chain_reduce(Exchange& x, Reduction how, ConstBytes in, Bytes out, int root) {
    const int place = (x.rank() - root + x.size()) % x.size();
    const bool is_end = place + 1 == x.size();
    std::array<std::vector<std::byte>, 2> scratch;
    std::array<Exchange::Started, 2> sending;
    for (std::size_t first = 0, k = 0; first < in.size(); first += segment_bytes, k ^= 1) {
        ConstBytes sum = in.subspan(first, std::min(segment_bytes, in.size() - first));
        if (!is_end) {
            if (Status status = x.finish(sending[k]); !status) return status;
            scratch[k].resize(std::max(scratch[k].size(), sum.size()));
            const Bytes arriving = Bytes(scratch[k]).first(sum.size());
            if (Status status = x.receive(x.neighbour(1), arriving); !status) return status;
            const Bytes target = place == 0 ? out.subspan(first, sum.size()) : arriving;
            combine(how, target, arriving, sum);
            sum = target;
        }
        if (place > 0) {
            if (Status status = x.finish(sending[k]); !status) return status;
            sending[k] = x.start_send(x.neighbour(-1), sum);
        } else if (is_end) {
            std::memmove(out.data() + first, sum.data(), sum.size()); // alone
        }
    }
    for (Exchange::Started& one : sending) {
        if (Status status = x.finish(one); !status) return status;
    }
    return sim::Done{};
}

} // namespace shardplan::exec
