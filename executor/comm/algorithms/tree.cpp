#include <algorithm>
#include <cstring>

#include "executor/comm/algorithms.hpp"

namespace shardplan::exec {

// Places count from the root. The parent of a place is the place without its lowest bit; its
// children are the places with one more bit below that.

Status tree_broadcast(Exchange& x, Bytes data, int root) {
    const int n = x.size();
    const int place = (x.rank() - root + n) % n;
    const auto rank_at = [&](int p) { return (p + root) % n; };
    int lowest = 1;
    while (lowest < n && (place & lowest) == 0) {
        lowest <<= 1;
    }
    std::vector<Exchange::Started> sending;
    for (std::size_t first = 0; first < data.size(); first += segment_bytes) {
        const Bytes segment = data.subspan(first, std::min(segment_bytes, data.size() - first));
        if (place != 0) {
            Status status = x.receive(rank_at(place - lowest), segment);
            if (!status) return status;
        }
        for (int bit = lowest >> 1; bit > 0; bit >>= 1) { // the largest subtree first
            if (place + bit < n) sending.push_back(x.start_send(rank_at(place + bit), segment));
        }
    }
    return x.finish(sending);
}

Status tree_reduce(Exchange& x, Reduction how, ConstBytes in, Bytes out, int root) {
    const int n = x.size();
    const int place = (x.rank() - root + n) % n;
    const auto rank_at = [&](int p) { return (p + root) % n; };
    const std::size_t scratch_bytes = std::min(segment_bytes, in.size());
    std::vector<std::byte> arrived(scratch_bytes);
    std::vector<std::byte> summed(place == 0 ? 0 : scratch_bytes);
    for (std::size_t first = 0; first < in.size(); first += segment_bytes) {
        ConstBytes sum = in.subspan(first, std::min(segment_bytes, in.size() - first));
        const Bytes target =
            place == 0 ? out.subspan(first, sum.size()) : Bytes(summed).first(sum.size());
        int bit = 1;
        for (; bit < n && (place & bit) == 0; bit <<= 1) {
            if (place + bit >= n) continue;
            const Bytes arriving = Bytes(arrived).first(sum.size());
            if (Status status = x.receive(rank_at(place + bit), arriving); !status) return status;
            combine(how, target, sum, arriving);
            sum = target;
        }
        if (place != 0) {
            if (Status status = x.send(rank_at(place - bit), sum); !status) return status;
        } else if (n == 1) {
            std::memmove(target.data(), sum.data(), sum.size());
        }
    }
    return sim::Done{};
}

Status tree_all_reduce(Exchange& x, Reduction how, Bytes data) {
    if (Status status = tree_reduce(x, how, data, data, 0); !status) return status;
    return tree_broadcast(x, data, 0);
}

} // namespace shardplan::exec
