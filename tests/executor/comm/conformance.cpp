#include "tests/executor/comm/conformance.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "executor/comm/algorithms.hpp"

namespace shardplan::test {

namespace {

using exec::CollectiveChoice;
using exec::Communicator;
using exec::ReduceOp;
using exec::Scalar;
using exec::Status;
using sim::Algorithm;
using sim::Done;

#define RETURN_IF_FAILED(expression)                             \
    if (exec::Status failed_here = (expression); !failed_here) { \
        return failed_here;                                      \
    }

/// Elements of any type, written and read as doubles.
class Elements {
public:
    Elements(Scalar scalar, std::int64_t count)
        : scalar_(scalar), bytes_(static_cast<std::size_t>(count) * exec::bytes_of(scalar)) {}

    [[nodiscard]] std::int64_t count() const {
        return static_cast<std::int64_t>(bytes_.size() / exec::bytes_of(scalar_));
    }
    exec::View view() { return {bytes_.data(), count(), scalar_}; }
    exec::View part(std::int64_t first, std::int64_t count) {
        return {bytes_.data() + static_cast<std::size_t>(first) * exec::bytes_of(scalar_), count,
                scalar_};
    }
    void set(std::int64_t i, double value) {
        switch (scalar_) {
            case Scalar::fp64:
                return put(i, value);
            case Scalar::fp32:
                return put(i, static_cast<float>(value));
            case Scalar::bf16:
                return put(i, exec::to_bf16(static_cast<float>(value)));
            case Scalar::int32:
                return put(i, static_cast<std::int32_t>(value));
            case Scalar::int64:
                return put(i, static_cast<std::int64_t>(value));
            case Scalar::byte:
                return put(i, static_cast<std::uint8_t>(value));
        }
    }
    [[nodiscard]] double get(std::int64_t i) const {
        switch (scalar_) {
            case Scalar::fp64:
                return as<double>(i);
            case Scalar::fp32:
                return static_cast<double>(as<float>(i));
            case Scalar::bf16:
                return static_cast<double>(exec::to_float(as<exec::Bf16>(i)));
            case Scalar::int32:
                return as<std::int32_t>(i);
            case Scalar::int64:
                return static_cast<double>(as<std::int64_t>(i));
            case Scalar::byte:
                return as<std::uint8_t>(i);
        }
        return 0.0;
    }

private:
    template <class T>
    void put(std::int64_t i, T value) {
        std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
    template <class T>
    [[nodiscard]] T as(std::int64_t i) const {
        T value;
        std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
        return value;
    }

    Scalar scalar_;
    std::vector<std::byte> bytes_;
};

/// What rank r holds at i: 0 to 10, different on neighbouring ranks and elements.
double held(int rank, std::int64_t i) {
    return static_cast<double>((rank * 7 + i * 3 + i / 11) % 11);
}

double reduced(int ranks, std::int64_t i, ReduceOp op) {
    double value = held(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
        const double next = held(rank, i);
        value = op == ReduceOp::sum ? value + next : std::max(value, next);
    }
    return value;
}

/// One collective on one type and size.
struct Case {
    Communicator& all;
    std::string name;
    Scalar scalar;
    ReduceOp op;
    std::int64_t count;

    [[nodiscard]] Elements empty(std::int64_t elements) const { return {scalar, elements}; }
    [[nodiscard]] Elements filled(std::int64_t elements) const {
        Elements out(scalar, elements);
        for (std::int64_t i = 0; i < elements; ++i) {
            out.set(i, held(all.rank(), i));
        }
        return out;
    }
    template <class F>
    [[nodiscard]] Status compare(const char* operation, const Elements& got, F&& expected) const {
        for (std::int64_t i = 0; i < got.count(); ++i) {
            if (got.get(i) == expected(i)) continue;
            return exec::Error{
                exec::ErrorCode::backend_failed,
                std::string(operation) + " by " + name + " of " + std::to_string(got.count()) +
                    " " + std::string(sim::name_of(scalar)) + " on rank " +
                    std::to_string(all.rank()) + " of " + std::to_string(all.size()),
                "element " + std::to_string(i) + " is " + std::to_string(got.get(i)) +
                    " instead of " + std::to_string(expected(i)),
                ""};
        }
        return Done{};
    }
};

Status check_reductions(const Case& c) {
    const int n = c.all.size();
    Elements data = c.filled(c.count);
    RETURN_IF_FAILED(c.all.all_reduce(data.view(), c.op));
    const auto sum = [&](std::int64_t i) { return reduced(n, i, c.op); };
    RETURN_IF_FAILED(c.compare("all_reduce", data, sum));

    const std::int64_t first = c.all.rank() * c.count;
    const auto own_sum = [&](std::int64_t i) { return reduced(n, first + i, c.op); };
    Elements whole = c.filled(c.count * n);
    Elements own = c.empty(c.count);
    RETURN_IF_FAILED(c.all.reduce_scatter(whole.view(), own.view(), c.op));
    RETURN_IF_FAILED(c.compare("reduce_scatter", own, own_sum));
    RETURN_IF_FAILED(c.all.reduce_scatter(whole.view(), whole.part(first, c.count), c.op));
    Elements copy = c.empty(c.count);
    for (std::int64_t i = 0; i < c.count; ++i) {
        copy.set(i, whole.get(first + i));
    }
    RETURN_IF_FAILED(c.compare("reduce_scatter in place", copy, own_sum));

    for (const int root : {0, n - 1}) {
        const Elements before = c.filled(c.count);
        Elements in = before;
        Elements out = c.empty(c.count);
        RETURN_IF_FAILED(c.all.reduce(in.view(), out.view(), c.op, root));
        RETURN_IF_FAILED(c.compare("input of reduce", in, [&](auto i) { return before.get(i); }));
        if (c.all.rank() == root) RETURN_IF_FAILED(c.compare("reduce", out, sum));
        RETURN_IF_FAILED(c.all.reduce(in.view(), in.view(), c.op, root));
        if (c.all.rank() == root) RETURN_IF_FAILED(c.compare("reduce in place", in, sum));
    }
    return Done{};
}

Status check_copies(const Case& c) {
    const int n = c.all.size();
    Elements own = c.filled(c.count);
    Elements whole = c.empty(c.count * n);
    RETURN_IF_FAILED(c.all.all_gather(own.view(), whole.view()));
    const auto gathered = [&](std::int64_t i) {
        return held(static_cast<int>(i / c.count), i % c.count);
    };
    RETURN_IF_FAILED(c.compare("all_gather", whole, gathered));
    Elements in_place = c.empty(c.count * n);
    const exec::View place = in_place.part(c.all.rank() * c.count, c.count);
    if (c.count > 0) std::memcpy(place.data, own.view().data, own.view().bytes().size());
    RETURN_IF_FAILED(c.all.all_gather(place, in_place.view()));
    RETURN_IF_FAILED(c.compare("all_gather in place", in_place, gathered));

    for (const int root : {0, n / 2, n - 1}) {
        Elements data = c.filled(c.count);
        RETURN_IF_FAILED(c.all.broadcast(data.view(), root));
        RETURN_IF_FAILED(
            c.compare("broadcast", data, [&](std::int64_t i) { return held(root, i); }));
    }
    Elements out = c.empty(c.count * n);
    Elements in = c.filled(c.count * n);
    RETURN_IF_FAILED(c.all.all_to_all(in.view(), out.view()));
    return c.compare("all_to_all", out, [&](std::int64_t i) {
        return held(static_cast<int>(i / c.count), c.all.rank() * c.count + i % c.count);
    });
}

/// Rank a sends (a + 2 b) % 3 x count elements to rank b.
Status check_uneven_all_to_all(const Case& c) {
    const int n = c.all.size();
    const auto sent = [&](int from, int to) { return (from + 2 * to) % 3 * c.count; };
    std::vector<std::int64_t> counts_in;
    std::vector<std::int64_t> counts_out;
    std::vector<double> expected;
    for (int peer = 0; peer < n; ++peer) {
        counts_in.push_back(sent(c.all.rank(), peer));
        counts_out.push_back(sent(peer, c.all.rank()));
        std::int64_t before = 0;
        for (int to = 0; to < c.all.rank(); ++to) {
            before += sent(peer, to);
        }
        for (std::int64_t i = 0; i < counts_out.back(); ++i) {
            expected.push_back(held(peer, before + i));
        }
    }
    const auto total = [](const auto& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    Elements in = c.filled(total(counts_in));
    Elements out = c.empty(total(counts_out));
    RETURN_IF_FAILED(c.all.all_to_all_v(in.view(), counts_in, out.view(), counts_out));
    return c.compare("all_to_all_v", out,
                     [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
}

template <class T>
std::vector<T> random_values(int rank, std::size_t count) {
    std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
    std::uniform_real_distribution<double> values(-1.0, 1.0);
    std::vector<T> out(count);
    for (T& value : out) {
        const double x = values(random);
        if constexpr (std::is_same_v<T, exec::Bf16>) {
            value = exec::to_bf16(static_cast<float>(x));
        } else {
            value = static_cast<T>(x);
        }
    }
    return out;
}

template <class T>
std::vector<T> serial_sum(int ranks, std::size_t count) {
    std::vector<T> out(count);
    std::vector<double> in_double(count);
    std::vector<float> in_float(count);
    for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<T> values = random_values<T>(rank, count);
        for (std::size_t i = 0; i < count; ++i) {
            if constexpr (std::is_same_v<T, exec::Bf16>) {
                in_float[i] =
                    rank == 0 ? exec::to_float(values[i]) : in_float[i] + exec::to_float(values[i]);
                out[i] = exec::to_bf16(in_float[i]);
            } else {
                out[i] = rank == 0 ? values[i] : static_cast<T>(out[i] + values[i]);
            }
        }
    }
    return out;
}

exec::Error differs(const Communicator& all, const std::string& what) {
    return {exec::ErrorCode::backend_failed, "rank " + std::to_string(all.rank()), what, ""};
}

template <class T>
Status check_sums(Communicator& all, const NamedChoice& choice, std::size_t count) {
    std::vector<T> first = random_values<T>(all.rank(), count);
    std::vector<T> second = first;
    RETURN_IF_FAILED(all.all_reduce(exec::view(first), ReduceOp::sum));
    RETURN_IF_FAILED(all.all_reduce(exec::view(second), ReduceOp::sum));
    const auto equal = [](const std::vector<T>& a, const std::vector<T>& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
    };
    if (!equal(first, second)) return differs(all, choice.name + ": two runs differ");
    std::vector<T> of_root = first;
    RETURN_IF_FAILED(all.broadcast(exec::view(of_root), 0));
    if (!equal(first, of_root)) return differs(all, choice.name + ": ranks differ");
    if (choice.choice.rank_order && !equal(first, serial_sum<T>(all.size(), count))) {
        return differs(all, choice.name + ": not the serial sum");
    }
    return Done{};
}

} // namespace

std::vector<NamedChoice> choices_for(int ranks) {
    std::vector<NamedChoice> choices = {{"default", {}}};
    for (const Algorithm a : {Algorithm::ring, Algorithm::tree, Algorithm::hierarchical,
                              Algorithm::torus_2d, Algorithm::halving_doubling}) {
        choices.push_back({std::string(sim::name_of(a)), {.algorithm = a}});
    }
    for (const int servers : {1, (ranks + 1) / 2, ranks}) {
        choices.push_back({"parameter_server with " + std::to_string(servers),
                           {.algorithm = Algorithm::parameter_server, .servers = servers}});
    }
    choices.push_back({"rank_order", {.rank_order = true}});
    for (int side = 2; side < ranks; ++side) {
        if (ranks % side != 0) continue;
        choices.push_back({"hierarchical in units of " + std::to_string(side),
                           {.algorithm = Algorithm::hierarchical, .tiers = {side, ranks / side}}});
    }
    if (ranks == 8) {
        choices.push_back({"hierarchical in three tiers",
                           {.algorithm = Algorithm::hierarchical, .tiers = {2, 2, 2}}});
    }
    return choices;
}

Status check_collectives(Communicator& all, const NamedChoice& choice) {
    RETURN_IF_FAILED(all.set_choice(choice.choice));
    const auto check = [&](Scalar scalar, ReduceOp op, std::int64_t count) -> Status {
        const Case c{all, choice.name, scalar, op, count};
        RETURN_IF_FAILED(check_reductions(c));
        if (op == ReduceOp::max) return Done{};
        RETURN_IF_FAILED(check_copies(c));
        return check_uneven_all_to_all(c);
    };
    for (std::size_t s = 0; s < sim::EnumNames<Scalar>::names.size(); ++s) {
        const auto scalar = static_cast<Scalar>(s);
        for (const std::int64_t count : {0, 1, 13}) {
            RETURN_IF_FAILED(check(scalar, ReduceOp::sum, count));
        }
        RETURN_IF_FAILED(check(scalar, ReduceOp::max, 13));
    }
    RETURN_IF_FAILED(check(Scalar::fp32, ReduceOp::sum, 1024));
    RETURN_IF_FAILED(check(Scalar::fp64, ReduceOp::sum, 40009)); // 313 KiB, over a segment
    RETURN_IF_FAILED(all.barrier());
    return all.set_choice({});
}

Status check_messages(Communicator& all) {
    const int n = all.size();
    if (n == 1) return Done{};
    const int next = (all.rank() + 1) % n;
    const int before = (all.rank() + n - 1) % n;
    for (const std::int64_t count : {0, 1, 1000, 100000}) {
        // Two of one tag keep their order; the one of another tag is received first.
        const Case c{all, "messages", Scalar::int32, ReduceOp::sum, count};
        Elements a = c.filled(count);
        Elements b = c.filled(2 * count);
        Elements other = c.filled(count + 3);
        auto sending_a = all.start_send(a.view(), next, 5);
        auto sending_b = all.start_send(b.view(), next, 5);
        auto sending_other = all.start_send(other.view(), next, 6);
        Elements got_a = c.empty(count);
        Elements got_b = c.empty(2 * count);
        Elements got_other = c.empty(count + 3);
        RETURN_IF_FAILED(all.receive(got_other.view(), before, 6));
        auto receiving = all.start_receive(got_a.view(), before, 5);
        for (bool done = false; !done;) {
            const auto tested = all.test(*receiving);
            if (!tested) return tested.error();
            done = *tested;
        }
        RETURN_IF_FAILED(all.receive(got_b.view(), before, 5));
        RETURN_IF_FAILED(all.wait(*sending_a));
        RETURN_IF_FAILED(all.wait(*sending_b));
        RETURN_IF_FAILED(all.wait(*sending_other));
        const auto sent = [&](std::int64_t i) { return held(before, i); };
        RETURN_IF_FAILED(c.compare("first message", got_a, sent));
        RETURN_IF_FAILED(c.compare("second message", got_b, sent));
        RETURN_IF_FAILED(c.compare("message of another tag", got_other, sent));
    }
    return Done{};
}

Status check_splits(Communicator& all) {
    // Keys run backwards, so the order of ranks turns round.
    auto half = all.split(all.rank() % 2, -all.rank(), "half");
    if (!half) return half.error();
    auto quarter = (*half)->split((*half)->rank() / 2, 0, "quarter");
    if (!quarter) return quarter.error();
    auto again = all.split(0, 0, "again");
    if (!again) return again.error();
    for (Communicator* part : {half->get(), quarter->get(), again->get(), half->get()}) {
        std::vector<std::int64_t> who(static_cast<std::size_t>(part->size()));
        const std::vector<std::int64_t> self = {all.rank()};
        RETURN_IF_FAILED(part->all_gather(exec::const_view(self), exec::view(who)));
        for (std::size_t i = 0; i < who.size(); ++i) {
            if (who[i] != part->world_ranks()[i]) {
                return differs(all, part->name() + " reaches other ranks than it names");
            }
        }
    }
    const std::vector<int>& ranks = (*half)->world_ranks();
    if (!std::is_sorted(ranks.rbegin(), ranks.rend())) return differs(all, "keys are not heeded");
    return Done{};
}

Status check_determinism(Communicator& all) {
    for (const NamedChoice& choice : choices_for(all.size())) {
        RETURN_IF_FAILED(all.set_choice(choice.choice));
        for (const std::size_t count : {3U, 1009U}) {
            RETURN_IF_FAILED(check_sums<double>(all, choice, count));
            RETURN_IF_FAILED(check_sums<exec::Bf16>(all, choice, count));
        }
        RETURN_IF_FAILED(check_sums<float>(all, choice, 70001));
    }
    return all.set_choice({});
}

Status check_everything(Communicator& all) {
    RETURN_IF_FAILED(check_messages(all));
    RETURN_IF_FAILED(check_splits(all));
    for (const NamedChoice& choice : choices_for(all.size())) {
        RETURN_IF_FAILED(check_collectives(all, choice));
    }
    return check_determinism(all);
}

} // namespace shardplan::test
