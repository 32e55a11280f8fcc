#include "executor/run/training_run.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <set>
#include <utility>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/comm/agree.hpp"
#include "executor/run/rank_facts.hpp"
#include "executor/run/run_records.hpp"
#include "executor/run/step_recorder.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::exec {

/// What one rank adds to a measurement; travels to rank 0 as text.
struct RankReport {
    sim::MeasuredRank rank;
    std::vector<sim::MeasuredTask> tasks;
    std::optional<sim::Timeline> timeline;
    double clock_error = 0.0;
};

void describe(sim::FieldVisitor& v, RankReport& x) {
    sim::field(v, {"rank", "rank", "What it held and sent.", true}, x.rank);
    sim::field(v, {"tasks", "tasks", "What its spans name."}, x.tasks);
    sim::field(v, {"timeline", "timeline", "Its last step."}, x.timeline);
    sim::field(v, {"clock_error", "clock error", "Seconds."}, x.clock_error);
}

namespace {

/// Longer timelines make files that nobody opens.
constexpr std::size_t most_spans = 200'000;

constexpr std::size_t fact_count = 5;

std::string today() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char text[32];
    const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return std::string(text, length);
}

std::int64_t sum_of(const std::array<std::int64_t, sim::tensor_kind_count>& bytes) {
    std::int64_t sum = 0;
    for (const std::int64_t b : bytes) {
        sum += b;
    }
    return sum;
}

sim::BytesByKind bytes_of(const std::array<std::int64_t, sim::tensor_kind_count>& bytes) {
    sim::BytesByKind out;
    for (std::size_t k = 0; k < sim::tensor_kind_count; ++k) {
        out.amounts[k] = sim::Bytes(static_cast<double>(bytes[k]));
    }
    return out;
}

/// One rank's part in one run.
class Run {
public:
    Run(Communicator& control_ranks, const TrainingPlan& plan, const RunNames& names,
        const RunControl& control, const RecordSink& out)
        : ranks_(control_ranks), plan_(plan), names_(names), control_(control), out_(out) {}

    Status prepare();
    /// Goes on where a checkpoint left off, if that is asked for and there is one.
    Status resume(Trainer& trainer);
    Result<RunEnd> train(Trainer& trainer);

private:
    Result<std::vector<StepFacts>> exchange(const StepFacts& own);
    /// One step with all that belongs to it.
    Status step(Trainer& trainer, RunEnd& end);
    /// After step `at`.
    Status save(Trainer& trainer, Index at);
    /// On rank 0.
    void say(const std::string& record) const {
        if (ranks_.rank() == 0) out_(record);
    }
    /// A measurement that holds the steps alone.
    [[nodiscard]] sim::Measurement measured_steps() const;
    [[nodiscard]] RankReport report(Trainer& trainer) const;
    Result<std::optional<sim::Measurement>> measure(Trainer& trainer);

    Communicator& ranks_;
    const TrainingPlan& plan_;
    const RunNames& names_;
    const RunControl& control_;
    const RecordSink& out_;

    StepRecorder recorder_;
    Index begins_after_ = 0; ///< step of the checkpoint; 0: from the beginning
    Index saved_ = -1;       ///< step of the last checkpoint
    std::string date_ = today();
    std::vector<std::string> hosts_;
    ClockOffset clock_;
    std::optional<sim::NoiseProbe> noise_;
    std::vector<sim::MeasuredStep> steps_;
    std::vector<sim::SecondsByKind> kinds_; ///< of each step, this rank
    std::array<std::int64_t, sim::group_count> sent_before_{};
};

Status Run::prepare() {
    auto hosts = gather_texts(ranks_, host_name());
    if (!hosts) return hosts.error();
    hosts_ = std::move(*hosts);
    if (!control_.measure) return sim::Done{};
    const auto clock = clock_against_first(ranks_, hosts_);
    if (!clock) return clock.error();
    clock_ = *clock;
    if (control_.probe_seconds <= 0.0) return sim::Done{};
    const auto noise = probe_noise(ranks_, control_.probe_seconds);
    if (!noise) return noise.error();
    noise_ = *noise;
    return sim::Done{};
}

Result<std::vector<StepFacts>> Run::exchange(const StepFacts& own) {
    const std::vector<double> mine = {own.stop, own.seconds, own.communication, own.held, own.peak};
    std::vector<double> all(fact_count * static_cast<std::size_t>(ranks_.size()));
    if (Status status = ranks_.all_gather(const_view(mine), view(all)); !status) {
        return status.error();
    }
    std::vector<StepFacts> out;
    for (std::size_t at = 0; at < all.size(); at += fact_count) {
        out.push_back({all[at], all[at + 1], all[at + 2], all[at + 3], all[at + 4]});
    }
    return out;
}

sim::Measurement Run::measured_steps() const {
    sim::Measurement m;
    m.steps = steps_;
    m.settling = steps_.size() > 1 ? 1 : 0;
    return m;
}

RankReport Run::report(Trainer& trainer) const {
    RankReport out;
    sim::MeasuredRank& rank = out.rank;
    rank.rank = ranks_.rank();
    rank.stage = sim::coordinates_of(plan_.layout, ranks_.rank()).pp;
    rank.host = hosts_[static_cast<std::size_t>(ranks_.rank())];
    const RankMemory memory = trainer.memory();
    rank.held = bytes_of(memory.now);
    rank.at_peak = bytes_of(memory.peak);
    rank.peak_phase = memory.peak_phase;
    for (std::size_t p = 0; p < sim::phase_count; ++p) {
        if (sum_of(memory.phases[p]) > 0) {
            rank.phases[std::string(name_of(static_cast<sim::Phase>(p)))] =
                bytes_of(memory.phases[p]);
        }
    }
    rank.offloaded_host = sim::Bytes(static_cast<double>(memory.host));
    rank.offloaded_disk = sim::Bytes(static_cast<double>(memory.disk));
    rank.process = sim::Bytes(static_cast<double>(peak_resident_bytes()));
    const auto sent = trainer.sent();
    const auto counted = static_cast<double>(std::max<std::size_t>(steps_.size(), 1));
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        const std::int64_t bytes = sent[g] - sent_before_[g];
        if (bytes == 0) continue;
        rank.sent[std::string(name_of(static_cast<sim::Group>(g)))] =
            sim::Bytes(static_cast<double>(bytes) / counted);
    }
    out.clock_error = clock_.error;
    return out;
}

Result<std::optional<sim::Measurement>> Run::measure(Trainer& trainer) {
    sim::Measurement m = measured_steps();
    RankReport own = report(trainer);
    if (const auto median = sim::median_step(m)) own.rank.seconds = kinds_[*median];
    if (control_.timeline && !steps_.empty()) {
        // The first rank to begin is at 0 on the clock of rank 0.
        std::vector<double> begin = {-(recorder_.began() + recorder_.offset() + clock_.seconds)};
        if (Status status = ranks_.all_reduce(view(begin), ReduceOp::max); !status) {
            return status.error();
        }
        const double zero = -begin[0] - recorder_.offset() - clock_.seconds;
        RankTimeline timeline = timeline_of(recorder_.spans(), ranks_.rank(), own.rank.stage, zero,
                                            most_spans / static_cast<std::size_t>(ranks_.size()));
        own.tasks = std::move(timeline.tasks);
        own.timeline = std::move(timeline.timeline);
    }
    const auto texts = gather_texts(ranks_, sim::write_described(own, sim::Indent::compact));
    if (!texts) return texts.error();
    if (ranks_.rank() != 0) return std::optional<sim::Measurement>{};

    m.plan_hash = names_.plan_hash;
    m.plan = names_.plan;
    m.model = names_.model;
    m.layout = names_.layout;
    m.program = names_.program;
    m.backend = names_.backend;
    m.date = date_;
    m.ranks = ranks_.size();
    m.threads_per_rank = plan_.threads;
    const std::set<std::string> hosts(hosts_.begin(), hosts_.end());
    m.hosts.assign(hosts.begin(), hosts.end());
    m.versions = names_.versions;
    m.clock = "steady clock of each machine";
    m.noise = noise_;
    std::vector<RankTimeline> timelines;
    double clock_error = 0.0;
    for (const std::string& text : *texts) {
        auto rank = sim::read_described<RankReport>(text, "report of a rank");
        if (!rank) return rank.error();
        m.per_rank.push_back(std::move(rank->rank));
        clock_error = std::max(clock_error, rank->clock_error);
        if (rank->timeline) timelines.push_back({std::move(rank->tasks), *rank->timeline});
    }
    if (!timelines.empty()) {
        RankTimeline all = join(timelines, sim::nanoseconds(clock_error));
        m.timeline_step = steps_.back().step;
        m.tasks = std::move(all.tasks);
        m.timeline = std::move(all.timeline);
    }
    return std::optional<sim::Measurement>(std::move(m));
}

Status Run::resume(Trainer& trainer) {
    // Rank 0 looks: another rank might see a folder that is being made.
    std::vector<std::int64_t> found = {0};
    if (control_.resume && ranks_.rank() == 0) {
        found[0] = static_cast<std::int64_t>(list_checkpoints(control_.save).size());
    }
    if (Status status = ranks_.broadcast(view(found), 0); !status) return status;
    if (found[0] == 0) return sim::Done{};
    const auto state = trainer.state();
    const auto meta = load_checkpoint(ranks_, control_.save, state);
    if (!meta) return meta.error();
    const auto samples = meta->numbers.find("samples_read");
    if (samples == meta->numbers.end()) {
        return Error{ErrorCode::bad_input, control_.save,
                     "the checkpoint does not say how many samples were read",
                     "resume from one that shardplan-run-cpu saved"};
    }
    if (Status status = trainer.resume(meta->step, samples->second); !status) return status;
    begins_after_ = meta->step;
    saved_ = meta->step;
    return sim::Done{};
}

Status Run::save(Trainer& trainer, Index at) {
    if (saved_ == at) return sim::Done{};
    CheckpointMeta meta;
    meta.step = at;
    meta.numbers["samples_read"] = trainer.samples_read();
    meta.texts = {{"layout", names_.layout},
                  {"model", names_.model},
                  {"plan_hash", names_.plan_hash},
                  {"program", names_.program}};
    const auto state = trainer.state();
    const auto path = save_checkpoint(ranks_, control_.save, state, meta);
    if (!path) return path.error();
    saved_ = at;
    say(save_record(at, *path));
    return sim::Done{};
}

Status Run::step(Trainer& trainer, RunEnd& end) {
    recorder_.begin_step();
    const auto step = trainer.step();
    if (!step) return step.error();
    const StepSpans spans = recorder_.end_step();
    const RankMemory memory = trainer.memory();
    StepFacts own{0.0, spans.length, spans.communication(), static_cast<double>(sum_of(memory.now)),
                  static_cast<double>(sum_of(memory.peak))};
    if (control_.stop && control_.stop()) own.stop = 1.0;
    const auto all = exchange(own);
    if (!all) return all.error();
    ++end.steps;
    end.step = step->step;
    steps_.push_back(
        {step->step, step->loss, sim::Seconds(largest(*all, &StepFacts::seconds)), step->tokens});
    kinds_.push_back(spans.seconds);
    say(step_record(*step, *all));
    // A stop that comes with the last step changes nothing.
    end.stopped = largest(*all, &StepFacts::stop) > 0.0 && end.step < control_.steps;
    const auto due = [&](Index every) { return every > 0 && end.step % every == 0; };
    if (due(control_.hash_every)) {
        if (Status status = trainer.check_replicas(); !status) return status;
    }
    if (!control_.save.empty() && due(control_.save_every)) return save(trainer, end.step);
    return sim::Done{};
}

Result<RunEnd> Run::train(Trainer& trainer) {
    trainer.set_spans(recorder_.sink());
    say(start_record(names_, plan_, control_, {hosts_, date_, begins_after_}));
    RunEnd end;
    end.step = begins_after_;
    sent_before_ = trainer.sent();
    while (end.step < control_.steps && !end.stopped) {
        if (Status status = step(trainer, end); !status) return status.error();
    }
    if (!control_.save.empty()) {
        if (Status status = save(trainer, end.step); !status) return status.error();
    }
    if (control_.measure) {
        auto measured = measure(trainer);
        if (!measured) return measured.error();
        end.measurement = std::move(*measured);
    }
    say(end_record(end, measured_steps()));
    return end;
}

} // namespace

Result<RunEnd> run_training(Communicator& world, const TrainingPlan& plan, const RunNames& names,
                            const RunControl& control, const MakeTrainer& make,
                            const RecordSink& out) {
    auto ranks = world.split(0, world.rank(), "run");
    if (!ranks) return ranks.error();
    Run run(**ranks, plan, names, control, out);
    if (Status status = run.prepare(); !status) return status.error();
    auto trainer = make(world);
    if (!trainer) return trainer.error();
    if (Status status = run.resume(**trainer); !status) return status.error();
    return run.train(**trainer);
}

} // namespace shardplan::exec
