#include "executor/run/rank_facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "executor/run/step_recorder.hpp"

namespace shardplan::exec {
namespace {

/// POSIX's own bound on names of machines, with the zero at the end.
constexpr std::size_t host_bytes = 256;

/// A chain of additions and products, none of which can begin before the one before it.
double chain(std::int64_t length) {
    // a beginning that the compiler does not know: from 1 every link gives 1 again
    auto x = static_cast<double>(length);
    for (std::int64_t i = 0; i < length; ++i) {
        x = x * 0.999999 + 1e-6;
    }
    return x;
}

double timed_chain(std::int64_t length) {
    const double begin = steady_seconds();
    // read and kept in between, or the compiler may compute ahead of the first look at the clock
    const volatile std::int64_t links = length;
    [[maybe_unused]] const volatile double kept = chain(links); // so that it is computed
    return steady_seconds() - begin;
}

} // namespace

std::string host_name() {
    std::array<char, host_bytes> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
}

Result<ClockOffset> clock_against_first(Communicator& ranks,
                                        const std::vector<std::string>& hosts) {
    constexpr int rounds = 32;
    ClockOffset out;
    for (int r = 1; r < ranks.size(); ++r) {
        if (hosts[static_cast<std::size_t>(r)] == hosts[0]) continue;
        if (ranks.rank() != 0 && ranks.rank() != r) continue;
        double fastest = std::numeric_limits<double>::infinity();
        for (int round = 0; round < rounds; ++round) {
            std::vector<double> time = {0.0};
            if (ranks.rank() == 0) {
                if (Status status = ranks.receive(view(time), r); !status) return status.error();
                time[0] = steady_seconds();
                if (Status status = ranks.send(const_view(time), r); !status) {
                    return status.error();
                }
                continue;
            }
            const double sent = steady_seconds();
            if (Status status = ranks.send(const_view(time), 0); !status) return status.error();
            if (Status status = ranks.receive(view(time), 0); !status) return status.error();
            const double trip = steady_seconds() - sent;
            if (trip < fastest) {
                fastest = trip;
                out = {time[0] - (sent + trip / 2.0), trip / 2.0};
            }
        }
    }
    return out;
}

Result<sim::NoiseProbe> probe_noise(Communicator& ranks, double seconds) {
    constexpr std::int64_t repeats = 50;
    constexpr std::int64_t trial = 100'000;
    double once = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
        once = std::min(once, timed_chain(trial));
    }
    const double wanted = seconds / static_cast<double>(repeats);
    const auto length = static_cast<std::int64_t>(std::max(1.0, wanted / std::max(once, 1e-9)) *
                                                  static_cast<double>(trial));
    if (Status status = ranks.barrier(); !status) return status.error();
    std::vector<double> times;
    for (std::int64_t i = 0; i < repeats; ++i) {
        times.push_back(timed_chain(length));
    }
    std::sort(times.begin(), times.end());
    const double median = times[repeats / 2];
    const std::vector<double> own = {median,
                                     (times[repeats * 9 / 10] - times[repeats / 10]) / median};
    std::vector<double> all(2 * static_cast<std::size_t>(ranks.size()));
    if (Status status = ranks.all_gather(const_view(own), view(all)); !status) {
        return status.error();
    }
    sim::NoiseProbe out{repeats, sim::Seconds(all[0]), all[1]};
    for (std::size_t r = 1; 2 * r < all.size(); ++r) {
        if (all[2 * r + 1] > out.spread) {
            out = {repeats, sim::Seconds(all[2 * r]), all[2 * r + 1]};
        }
    }
    return out;
}

long allowed_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

std::int64_t peak_resident_bytes() {
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    constexpr std::int64_t kib = 1024;
    return usage.ru_maxrss * kib;
}

} // namespace shardplan::exec
