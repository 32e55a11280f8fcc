#include <algorithm>

#include "executor/run/sweep_cases.hpp"

namespace shardplan::exec {

namespace {

constexpr std::int64_t element = sizeof(float);
/// For orders of magnitude only.
constexpr double rough_message = 2e-5;
constexpr double rough_bytes = 2e9;

using Work = std::function<Status(Communicator&, float* memory, std::int64_t count)>;

struct Timed {
    std::string_view name; ///< of sim::Collective
    std::int64_t buffers;  ///< of the size that is recorded
    Work work;
};

View part(float* at, std::int64_t count) { return {at, count, Scalar::fp32}; }

/// Sizes are recorded as nccl-tests does: the whole buffer, of all-gather and reduce-scatter that
/// of all ranks, of all-to-all what one rank sends in all.
std::vector<Timed> collectives() {
    return {
        {"all_reduce", 1,
         [](Communicator& c, float* x, std::int64_t n) {
             return c.all_reduce(part(x, n), ReduceOp::sum);
         }},
        {"all_gather", 1,
         [](Communicator& c, float* x, std::int64_t n) {
             const std::int64_t own = n / c.size();
             return c.all_gather(part(x + c.rank() * own, own), part(x, own * c.size()));
         }},
        {"reduce_scatter", 2,
         [](Communicator& c, float* x, std::int64_t n) {
             const std::int64_t own = n / c.size();
             return c.reduce_scatter(part(x, own * c.size()), part(x + n, own), ReduceOp::sum);
         }},
        {"broadcast", 1,
         [](Communicator& c, float* x, std::int64_t n) { return c.broadcast(part(x, n), 0); }},
        {"all_to_all", 2,
         [](Communicator& c, float* x, std::int64_t n) {
             const std::int64_t whole = n / c.size() * c.size();
             return c.all_to_all(part(x, whole), part(x + n, whole));
         }},
    };
}

/// One message from rank 0 to rank 1.
Status message(Communicator& c, float* x, std::int64_t n) {
    return c.rank() == 0 ? c.send(part(x, n), 1) : c.receive(part(x, n), 0);
}

SweepCase case_of(Communicator& group, std::int64_t machines, const Timed& timed,
                  std::int64_t bytes) {
    const std::int64_t count = bytes / element;
    SweepCase out;
    out.kind = std::string(timed.name);
    out.together = Together::group;
    out.machines = machines;
    out.work = rough_message * group.size() + static_cast<double>(bytes) / rough_bytes;
    out.floats = timed.buffers * count;
    out.run = [&group, work = timed.work, count](float* memory) {
        return work(group, memory, count);
    };
    const std::int64_t ranks = group.size();
    out.describe = [bytes, ranks, machines](sim::JsonWriter& json, double /*seconds*/) {
        json.member("size_bytes", bytes).member("gpus", ranks);
        json.member("ranks_per_node", ranks / machines).member("nodes", machines);
    };
    return out;
}

} // namespace

std::vector<SweepCase> collective_cases(Communicator& group, std::int64_t machines,
                                        const SweepOptions& options) {
    std::vector<SweepCase> out;
    constexpr std::int64_t least = 1024;
    for (std::int64_t bytes = least; bytes <= options.most_bytes; bytes *= 4) {
        for (const Timed& timed : collectives()) {
            out.push_back(case_of(group, machines, timed, bytes));
        }
        if (group.size() == 2)
            out.push_back(case_of(group, machines, {"send_recv", 1, message}, bytes));
    }
    return out;
}

} // namespace shardplan::exec
