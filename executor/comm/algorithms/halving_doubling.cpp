#include <algorithm>
#include <bit>

#include "executor/comm/algorithms.hpp"

namespace shardplan::exec {

namespace {

/// The part of a buffer that a rank still works on, in elements.
struct Window {
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// Sends one window to the partner and adds what comes back to the other, segment by segment.
Status trade(Exchange& x, Reduction how, Bytes data, int partner, Window out, Window in) {
    const std::size_t element = bytes_of(how.scalar);
    const std::size_t step = segment_bytes / element;
    std::vector<std::byte> scratch(std::min(step, in.end - in.begin) * element);
    const auto segment = [&](Window w, std::size_t first) {
        const std::size_t from = std::min(w.begin + first, w.end);
        return data.subspan(from * element, std::min(step, w.end - from) * element);
    };
    const std::size_t longest = std::max(out.end - out.begin, in.end - in.begin);
    for (std::size_t first = 0; first < longest; first += step) {
        const Bytes own = segment(in, first);
        const Bytes arriving = Bytes(scratch).first(own.size());
        Status status = x.send_receive(partner, segment(out, first), partner, arriving);
        if (!status) return status;
        combine(how, own, own, arriving);
    }
    return sim::Done{};
}

/// Among a power of two of ranks.
Status halve_and_double(Exchange& x, Reduction how, Bytes data, int ranks) {
    const std::size_t element = bytes_of(how.scalar);
    Window own = {0, data.size() / element};
    std::vector<Window> larger;
    for (int bit = 1; bit < ranks; bit <<= 1) {
        const std::size_t middle = own.begin + (own.end - own.begin) / 2;
        const Window low = {own.begin, middle};
        const Window high = {middle, own.end};
        const bool keeps_high = (x.rank() & bit) != 0;
        larger.push_back(own);
        own = keeps_high ? high : low;
        Status status = trade(x, how, data, x.rank() ^ bit, keeps_high ? low : high, own);
        if (!status) return status;
    }
    for (int bit = ranks >> 1; bit > 0; bit >>= 1) {
        const Window both = larger.back();
        larger.pop_back();
        const Window other =
            own.begin == both.begin ? Window{own.end, both.end} : Window{both.begin, own.begin};
        const auto bytes = [&](Window w) {
            return data.subspan(w.begin * element, (w.end - w.begin) * element);
        };
        const int partner = x.rank() ^ bit;
        Status status = x.send_receive(partner, bytes(own), partner, bytes(other));
        if (!status) return status;
        own = both;
    }
    return sim::Done{};
}

} // namespace

Status halving_doubling_all_reduce(Exchange& x, Reduction how, Bytes data) {
    const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(x.size())));
    const std::size_t count = data.size() / bytes_of(how.scalar);
    const int beyond = x.rank() + power;
    if (x.rank() >= power) {
        const int partner = x.rank() - power;
        Status status = trade(x, how, data, partner, {0, count}, {0, 0});
        return status ? x.receive(partner, data) : status;
    }
    if (beyond < x.size()) {
        Status status = trade(x, how, data, beyond, {0, 0}, {0, count});
        if (!status) return status;
    }
    if (Status status = halve_and_double(x, how, data, power); !status) return status;
    return beyond < x.size() ? x.send(beyond, data) : Status(sim::Done{});
}

} // namespace shardplan::exec
