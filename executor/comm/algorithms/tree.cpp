#include <algorithm>
#include <array>
#include <bit>
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

namespace {

/// Up to here a message goes up and down one binomial tree as a whole: cut in two it would take
/// as long.
constexpr std::size_t whole_up_to = 16 * 1024;

/// Neighbours of a rank in a tree; -1: none.
struct TreePlace {
    int parent = -1;
    std::array<int, 2> children = {-1, -1};
};

/// A binary tree of ranks in order: of rank 2^k x odd the children lie 2^(k - 1) to either side, so
/// that odd ranks are leaves. Rank 0 is the root, above the highest power of two.
TreePlace place_in_order(int rank, int n) {
    const auto below = [&](int middle, int step) { // the top of what begins at middle + step
        while (step > 0 && middle + step >= n)
            step >>= 1;
        return step > 0 ? middle + step : -1;
    };
    TreePlace place;
    if (rank == 0) {
        const auto top = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2;
        if (n > 1) place.children[0] = top;
        return place;
    }
    const int step = rank & -rank;
    const int above = (rank ^ step) | (step << 1);
    place.parent = above < n ? above : rank ^ step;
    if (step > 1) place.children = {rank - step / 2, below(rank, step / 2)};
    return place;
}

/// The same tree from the other end, or one rank further on where the number of ranks is odd, so
/// that whoever has children in the one is a leaf of the other.
TreePlace place_in_second(int rank, int n) {
    const bool even = n % 2 == 0;
    const auto turned = [&](int r) { return even ? n - 1 - r : (r + 1) % n; };
    TreePlace place = place_in_order(even ? n - 1 - rank : (rank + n - 1) % n, n);
    for (int* neighbour : {&place.parent, &place.children[0], &place.children[1]}) {
        if (*neighbour >= 0) *neighbour = turned(*neighbour);
    }
    return place;
}

/// Half of the data in each of two trees at once. All ranks go through segments and trees in the
/// same order, so that messages between two of them cannot be mistaken for one another.
class DoubleTree {
public:
    DoubleTree(Exchange& x, Reduction how, Bytes data) : x_(x), how_(how) {
        const Bounds bounds = even_bounds(data.size(), bytes_of(how.scalar), 2);
        halves_ = {data.first(bounds[1]), data.subspan(bounds[1])};
        places_ = {place_in_order(x.rank(), x.size()), place_in_second(x.rank(), x.size())};
    }
    Status run() {
        if (Status s = each([&](const TreePlace& at, Bytes part) { return add(at, part); }); !s) {
            return s;
        }
        if (Status s = x_.finish(sending_); !s) return s; // before the sums come down over them
        if (Status s = each([&](const TreePlace& at, Bytes part) { return spread(at, part); }); !s)
            return s;
        return x_.finish(sending_);
    }

private:
    template <class F>
    Status each(F&& step) {
        const std::size_t most = std::max(halves_[0].size(), halves_[1].size());
        for (std::size_t first = 0; first < most; first += segment_bytes) {
            for (std::size_t tree = 0; tree < 2; ++tree) {
                const Bytes half = halves_[tree];
                const std::size_t from = std::min(first, half.size());
                const Bytes part = half.subspan(from, std::min(segment_bytes, half.size() - from));
                if (Status s = step(places_[tree], part); !s) return s;
            }
        }
        return sim::Done{};
    }
    Status add(const TreePlace& at, Bytes part) {
        arrived_.resize(std::max(arrived_.size(), part.size()));
        for (const int child : at.children) {
            if (child < 0) continue;
            const Bytes arriving = Bytes(arrived_).first(part.size());
            if (Status s = x_.receive(child, arriving); !s) return s;
            combine(how_, part, part, arriving);
        }
        if (at.parent >= 0) sending_.push_back(x_.start_send(at.parent, part));
        return sim::Done{};
    }
    Status spread(const TreePlace& at, Bytes part) {
        if (at.parent >= 0) {
            if (Status s = x_.receive(at.parent, part); !s) return s;
        }
        for (const int child : at.children) {
            if (child >= 0) sending_.push_back(x_.start_send(child, part));
        }
        return sim::Done{};
    }

    Exchange& x_;
    Reduction how_;
    std::array<Bytes, 2> halves_;
    std::array<TreePlace, 2> places_;
    std::vector<std::byte> arrived_;
    std::vector<Exchange::Started> sending_;
};

} // namespace

Status tree_all_reduce(Exchange& x, Reduction how, Bytes data) {
    if (data.size() > whole_up_to) return DoubleTree(x, how, data).run();
    if (Status status = tree_reduce(x, how, data, data, 0); !status) return status;
    return tree_broadcast(x, data, 0);
}

} // namespace shardplan::exec
