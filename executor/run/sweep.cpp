#include "executor/run/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "executor/comm/agree.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/check.hpp"
#include "executor/run/machine.hpp"
#include "executor/run/rank_facts.hpp"
#include "executor/run/sweep_cases.hpp"
#include "executor/run/sweep_samples.hpp"
#include "executor/run/sweep_turns.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::exec {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds that this thread has computed.
double thread_seconds() {
    std::timespec now{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0.0;
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Share of the budget for the first look at every case, which says how long the rounds will take.
constexpr double first_look = 0.3;
/// Cases between two probes.
constexpr std::size_t probe_every = 16;
/// Calls of one sample at most: a call that does nothing is timed in a loop of as many.
constexpr double most_calls = 4096.0;

/// The communicators of 2, 4, ... ranks, and of all.
struct Groups {
    std::vector<std::unique_ptr<Communicator>> parts;

    static Result<Groups> make(Communicator& world) {
        Groups out;
        for (int size = 2; size <= world.size(); size *= 2) {
            if (world.size() % size != 0) continue;
            auto part = world.split(world.rank() / size, world.rank(), "sweep");
            if (!part) return part.error();
            out.parts.push_back(std::move(*part));
        }
        const bool whole = !out.parts.empty() && out.parts.back()->size() == world.size();
        if (world.size() > 1 && !whole) {
            auto all = world.split(0, world.rank(), "sweep");
            if (!all) return all.error();
            out.parts.push_back(std::move(*all));
        }
        return out;
    }
};

class Sweep {
public:
    Sweep(Communicator& world, const SweepOptions& options)
        : world_(world),
          options_(options),
          start_(Clock::now()),
          kernels_(options.threads),
          probe_{probe_case(kernels_)} {}

    Status run();
    void report(std::ostream& out) const;

private:
    Status make_cases();
    Status look();
    void plan();
    Status rounds();
    /// False: time was up before its end, and it does not count.
    Result<bool> round();
    Result<bool> time_is_up();
    Result<double> time(const Entry& entry);
    Status prepare(const Entry& entry, bool runs);
    Result<double> time_calls(const Entry& entry, bool runs);
    /// Where ranks take turns, the system puts two of them on one core for a while although there
    /// are enough.
    [[nodiscard]] bool cpu_time() const {
        return options_.cpu_time || (turns_.count > 1 && options_.threads == 1);
    }
    float* place(const Entry& entry, std::int64_t call) {
        return memory_.data() + call % entry.places * entry.stride();
    }
    /// Of memory that calls go round in.
    [[nodiscard]] std::int64_t round_floats() const;
    void fill(std::int64_t floats);
    /// The largest of every rank's value.
    Status agree(std::vector<double>& values);
    [[nodiscard]] double left() const {
        return std::chrono::duration<double>(options_.budget).count() - seconds_since(start_);
    }
    [[nodiscard]] double least_sample(const Entry& entry) const;
    void begin_record(sim::JsonWriter& json, const Entry& entry, std::size_t number) const;

    Communicator& world_;
    const SweepOptions& options_;
    Clock::time_point start_;
    CpuKernels<float> kernels_;
    Groups groups_;
    Turns turns_;
    std::vector<Entry> entries_;
    Entry probe_;
    Buffer<float> memory_;
    double last_wall_ = 0.0; ///< of a call of what was timed last
    int repeats_ = 1;
    std::int64_t left_out_ = 0;
    MachineFacts machine_ = machine_facts();
};

/// Where ranks of a group share cores, a sample lasts several of the system's time slices.
double Sweep::least_sample(const Entry& entry) const {
    return entry.what.together == Together::group && turns_.count > 1 ? 0.02 : 0.003;
}

Status Sweep::agree(std::vector<double>& values) {
    if (world_.size() == 1) return sim::Done{};
    return world_.all_reduce(view(values), ReduceOp::max);
}

/// On how many machines the ranks are.
Result<std::int64_t> machines_of(Communicator& group) {
    const auto names = gather_texts(group, host_name());
    if (!names) return names.error();
    return static_cast<std::int64_t>(std::set<std::string>(names->begin(), names->end()).size());
}

Status Sweep::make_cases() {
    auto groups = Groups::make(world_);
    if (!groups) return groups.error();
    groups_ = std::move(*groups);
    const auto turns = turns_of(world_, options_.threads);
    if (!turns) return turns.error();
    turns_ = *turns;
    std::vector<SweepCase> cases = kernel_cases(kernels_, options_, world_.size() > 1);
    for (const auto& group : groups_.parts) {
        const auto machines = machines_of(*group);
        if (!machines) return machines.error();
        // recorded only where the groups of all ranks are spread alike, and each evenly
        std::vector<double> spread = {static_cast<double>(*machines),
                                      -static_cast<double>(*machines)};
        if (Status status = agree(spread); !status) return status;
        if (spread[0] != -spread[1] || group->size() % *machines != 0) continue;
        for (SweepCase& one : collective_cases(*group, *machines, options_)) {
            cases.push_back(std::move(one));
        }
    }
    std::stable_sort(cases.begin(), cases.end(),
                     [](const SweepCase& a, const SweepCase& b) { return a.work < b.work; });
    const std::int64_t round = round_floats();
    std::int64_t most = std::max(round, probe_.stride());
    for (SweepCase& one : cases) {
        Entry entry(std::move(one));
        if (!entry.what.warm && entry.what.floats > 0) {
            entry.places = std::max<std::int64_t>(1, round / entry.stride());
        }
        most = std::max(most, entry.stride());
        entries_.push_back(std::move(entry));
    }
    memory_.reset(most);
    return sim::Done{};
}

std::int64_t Sweep::round_floats() const {
    constexpr std::int64_t usual_cache = std::int64_t{32} << 20U;
    const std::int64_t out_of_cache = 2 * (machine_.cache > 0 ? machine_.cache : usual_cache);
    const std::int64_t bytes =
        options_.working_set > 0 ? std::min(options_.working_set, out_of_cache) : out_of_cache;
    return bytes / static_cast<std::int64_t>(sizeof(float));
}

/// What other cases left there may be too large or too small for numbers.
void Sweep::fill(std::int64_t floats) {
    constexpr std::int64_t period = 1021;
    static const std::vector<float> pattern = [] {
        std::vector<float> out(period);
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = static_cast<float>(i) * 1e-3F - 0.5F;
        }
        return out;
    }();
    for (std::int64_t at = 0; at < floats; at += period) {
        std::copy_n(pattern.data(), std::min(period, floats - at), memory_.data() + at);
    }
}

/// Seconds of one call, on this rank; of a group, until its last rank is done.
Result<double> Sweep::time(const Entry& entry) {
    const Together together = entry.what.together;
    if (together != Together::group && world_.size() > 1) {
        Result<double> own = 0.0;
        for (std::int64_t turn = 0; turn < turns_.count; ++turn) {
            if (together == Together::alone && turn > 0) break;
            const bool runs = together == Together::alone ? world_.rank() == 0 : turn == turns_.own;
            if (Status status = prepare(entry, runs); !status) return status.error();
            auto seconds = time_calls(entry, runs);
            if (!seconds) return seconds;
            if (runs) own = seconds;
        }
        return own;
    }
    if (Status status = prepare(entry, true); !status) return status.error();
    return time_calls(entry, true);
}

/// Fills memory and calls once, then waits for the others.
Status Sweep::prepare(const Entry& entry, bool runs) {
    if (runs) {
        fill(entry.touched());
        if (entry.calls > 1) {
            if (Status status = entry.what.run(place(entry, 0)); !status) return status;
        }
    }
    return world_.size() > 1 ? world_.barrier() : Status(sim::Done{});
}

Result<double> Sweep::time_calls(const Entry& entry, bool runs) {
    const bool own = cpu_time() && entry.what.together != Together::group;
    const double computed = thread_seconds();
    const Clock::time_point begin = Clock::now();
    for (std::int64_t i = 1; runs && i <= entry.calls; ++i) {
        if (Status status = entry.what.run(place(entry, i)); !status) return status.error();
    }
    const double wall = seconds_since(begin);
    const double seconds = own ? thread_seconds() - computed : wall;
    if (runs) last_wall_ = wall / static_cast<double>(entry.calls);
    return seconds / static_cast<double>(entry.calls);
}

/// Every case once, small ones first, until its share of the budget is used up; from then on only
/// the first of every kind that has none.
Status Sweep::look() {
    const double until = first_look * std::chrono::duration<double>(options_.budget).count();
    std::vector<Entry> seen;
    std::set<std::string> kinds;
    bool late = false;
    for (Entry& entry : entries_) {
        if (late && kinds.count(entry.what.kind) > 0) {
            ++left_out_;
            continue;
        }
        auto once = time(entry);
        if (!once) return once.error();
        std::vector<double> values = {*once, seconds_since(start_), last_wall_};
        if (Status status = agree(values); !status) return status;
        entry.estimate = std::max(values[0], 1e-9);
        entry.wall = std::max(values[2], entry.estimate);
        entry.calls = static_cast<std::int64_t>(
            std::clamp(std::ceil(least_sample(entry) / entry.estimate), 1.0, most_calls));
        late = values[1] > until;
        kinds.insert(entry.what.kind);
        seen.push_back(std::move(entry));
    }
    entries_ = std::move(seen);
    return sim::Done{};
}

/// Three rounds of as many cases as fit, then as many more rounds as asked for: large sizes tell
/// more than further repeats. The longest of a kind goes first, and three of each stay. Every rank
/// comes to the same plan.
void Sweep::plan() {
    constexpr std::size_t least_of_kind = 3;
    constexpr int least_rounds = 3;
    const double budget =
        (1.0 - first_look) * std::chrono::duration<double>(options_.budget).count();
    // besides the calls: filling memory, and meeting
    const auto cost = [this](const Entry& entry) {
        const double once = entry.round_seconds() + 1e-9 * static_cast<double>(entry.touched());
        const bool turns = entry.what.together == Together::all;
        return once * static_cast<double>(turns ? turns_.count : 1) + 1e-4;
    };
    const auto total = [&] {
        return std::accumulate(entries_.begin(), entries_.end(), 0.0,
                               [&](double sum, const Entry& e) { return sum + cost(e); });
    };
    const auto of_kind = [&](const Entry& entry) {
        return static_cast<std::size_t>(
            std::count_if(entries_.begin(), entries_.end(),
                          [&](const Entry& e) { return e.what.kind == entry.what.kind; }));
    };
    const int least = std::min(least_rounds, options_.repeats);
    while (total() * least > budget) {
        auto longest = entries_.end();
        for (auto it = entries_.begin(); it != entries_.end(); ++it) {
            if (of_kind(*it) <= least_of_kind) continue;
            if (longest == entries_.end() || cost(*it) > cost(*longest)) longest = it;
        }
        if (longest == entries_.end()) break;
        entries_.erase(longest);
        ++left_out_;
    }
    repeats_ =
        std::clamp(static_cast<int>(budget / std::max(total(), 1e-9)), least, options_.repeats);
}

/// By the clock of the rank that is furthest.
Result<bool> Sweep::time_is_up() {
    std::vector<double> values = {-left()};
    if (Status status = agree(values); !status) return status.error();
    return values[0] > 0.0;
}

/// Every case once more. Times of ranks that compute side by side are averaged, of a group the last
/// rank counts.
Result<bool> Sweep::round() {
    std::vector<double> mine;
    std::vector<double> probes;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (i % probe_every == 0) {
            // the first round counts however long it takes
            const auto up = time_is_up();
            if (!up) return up.error();
            if (*up && !probe_.samples.seconds.empty()) return false;
            auto probe = time(probe_);
            if (!probe) return probe.error();
            probes.push_back(*probe);
        }
        auto once = time(entries_[i]);
        if (!once) return once.error();
        mine.push_back(*once);
    }
    const std::size_t cases = mine.size();
    mine.insert(mine.end(), probes.begin(), probes.end());
    std::vector<double> all(mine.size() * static_cast<std::size_t>(world_.size()));
    if (Status status = world_.all_gather(const_view(mine), view(all)); !status) {
        return status.error();
    }
    const auto of_rank = [&](std::size_t rank, std::size_t i) {
        return all[rank * mine.size() + i];
    };
    const auto ranks = static_cast<std::size_t>(world_.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
        const Together together = i < cases ? entries_[i].what.together : Together::all;
        double most = 0.0;
        double sum = 0.0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            most = std::max(most, of_rank(rank, i));
            sum += of_rank(rank, i);
        }
        const double value = together == Together::alone   ? of_rank(0, i)
                             : together == Together::group ? most
                                                           : sum / static_cast<double>(ranks);
        (i < cases ? entries_[i].samples : probe_.samples).seconds.push_back(value);
    }
    return true;
}

Status Sweep::rounds() {
    probe_.calls = 8;
    for (int i = 0; i < repeats_; ++i) {
        const Clock::time_point begin = Clock::now();
        const auto whole = round();
        if (!whole) return whole.error();
        if (!*whole) break;
        // the next one would take as long
        std::vector<double> values = {seconds_since(begin) - left()};
        if (Status status = agree(values); !status) return status;
        if (values[0] > 0.0) break;
    }
    for (Entry& entry : entries_) {
        entry.samples.sort();
    }
    probe_.samples.sort();
    return sim::Done{};
}

Status Sweep::run() {
    if (Status status = make_cases(); !status) return status;
    if (Status status = look(); !status) return status;
    plan();
    return rounds();
}

/// What all records have in common.
void Sweep::begin_record(sim::JsonWriter& json, const Entry& entry, std::size_t number) const {
    const bool group = entry.what.together == Together::group;
    const bool kernel = entry.what.kind == "gemm" || entry.what.kind.starts_with("attention");
    json.begin_object();
    json.member("id", std::string("s") + std::to_string(number));
    json.member("source", "shardplan sweep");
    json.member(group ? "collective" : "op", entry.what.kind);
    json.member("device", options_.device);
    if (group) {
        json.member("system", machine_.cpu.empty() ? "this machine" : machine_.cpu);
        json.member("library", options_.backend).member("quality", "measured");
        const std::string network = entry.what.machines > 1 ? options_.network : "none";
        json.begin_object("fabric").member("kind", network).end_object();
        json.member("time_us", 1e6 * entry.samples.median());
        json.member("scorable", true);
    } else {
        json.member("dtype", "fp32")
            .member("impl", kernel && entry.what.kind != "gemm" ? "fa2" : "eigen");
        json.member("seconds", entry.samples.median());
        json.member("alone", entry.what.together == Together::alone);
        json.member("scorable", kernel);
    }
    json.member("ranks", world_.size()).member("spread", entry.samples.spread());
    json.member("samples", entry.samples.seconds.size());
}

void Sweep::report(std::ostream& out) const {
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object().begin_object("machine");
    json.member("cpu", machine_.cpu).member("cores", machine_.cores);
    json.member("memory_bytes", machine_.memory).member("compiler", machine_.compiler);
    json.member("working_set_bytes", round_floats() * static_cast<std::int64_t>(sizeof(float)));
    json.member("instructions", machine_.instructions).member("date", machine_.date);
    json.member("device", options_.device).member("backend", options_.backend);
    json.member("ranks", world_.size()).member("threads", options_.threads);
    json.member("processors", turns_.processors);
    json.member("nodes", turns_.nodes).member("machines", turns_.machines);
    json.member("clock", cpu_time() ? "cpu" : "wall").end_object();
    json.begin_object("probe").member("seconds", probe_.samples.median());
    json.member("p10", probe_.samples.at(0.1)).member("p90", probe_.samples.at(0.9));
    json.member("spread", probe_.samples.spread());
    json.member("samples", probe_.samples.seconds.size()).end_object();
    json.member("seconds", seconds_since(start_)).member("repeats", repeats_);
    json.member("left_out", left_out_).end_object();
    out << json.str() << '\n';
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        sim::JsonWriter line(sim::Indent::compact);
        begin_record(line, entries_[i], i + 1);
        entries_[i].what.describe(line, entries_[i].samples.median());
        out << line.end_object().str() << '\n';
    }
    out.flush();
}

Error bad_option(std::string_view name, std::string what, std::string hint) {
    return {ErrorCode::bad_input, "sweep: " + std::string(name), std::move(what), std::move(hint)};
}

std::optional<Error> check(const SweepOptions& o) {
    if (o.budget <= std::chrono::nanoseconds(0)) {
        return bad_option("budget", "there is no time to measure in", "give at least a second");
    }
    if (o.threads < 1 || o.threads > 1024) {
        return bad_option("threads", std::to_string(o.threads) + " threads cannot compute",
                          "give 1 to 1024");
    }
    if (o.repeats < 1) {
        return bad_option("repeats", std::to_string(o.repeats) + " rounds measure nothing",
                          "give 7, or at least 1");
    }
    if (o.most_bytes < 1024) {
        return bad_option("most_bytes", std::to_string(o.most_bytes) + " bytes are too few",
                          "give at least 1024");
    }
    if (o.cpu_time && o.threads > 1) {
        return bad_option("cpu_time", "the time of one thread says nothing of several",
                          "give one thread, or leave it out");
    }
    for (const SweepModel& model : o.models) {
        if (auto status = check_model(model.spec); !status) return status.error();
        if (model.sequence < 1 || model.micro_batch < 1) {
            return bad_option("models/" + model.spec.name,
                              "sequence and micro_batch must be at least 1", "raise them to 1");
        }
    }
    return std::nullopt;
}

} // namespace

Status run_sweep(Communicator& world, const SweepOptions& options, std::ostream& out) {
    if (auto error = check(options)) return *error;
    Sweep sweep(world, options);
    if (Status status = sweep.run(); !status) return status;
    if (world.rank() == 0) sweep.report(out);
    return sim::Done{};
}

} // namespace shardplan::exec
