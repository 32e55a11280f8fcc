#pragma once

#include <memory>
#include <vector>

#include "executor/comm/layout_groups.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "executor/run/span_recorder.hpp"
#include "executor/run/stage_messages.hpp"
#include "executor/run/stage_passes.hpp"
#include "executor/run/stage_program.hpp"
#include "executor/run/trainer.hpp"

namespace shardplan::exec {

/// A Trainer that computes in Scalar.
template <class Scalar>
class RankTrainer final : public Trainer {
public:
    /// Of a plan that `check_training` accepts.
    static Result<std::unique_ptr<Trainer>> make(Communicator& world, const TrainingPlan& plan,
                                                 TokenSource data);

    Result<TrainStep> step() override;
    [[nodiscard]] const sim::Schedule& schedule() const override { return schedule_; }
    void set_spans(SpanSink sink) override;
    [[nodiscard]] RankMemory memory() const override;
    [[nodiscard]] std::vector<TensorPart> state() override;
    [[nodiscard]] Index samples_read() const override { return samples_read_; }
    Status resume(Index step, Index samples_read) override;
    Status check_replicas() override { return shared_->check_replicas(); }
    [[nodiscard]] std::array<std::int64_t, sim::group_count> sent() const override;

private:
    /// What it is made of, in the order in which one needs the other.
    struct Parts {
        std::unique_ptr<MemoryCount> memory;
        std::unique_ptr<LayoutGroups> groups;
        std::unique_ptr<Model<Scalar>> model;
        std::unique_ptr<DataParallel<Scalar>> shared;
    };
    RankTrainer(Communicator& world, const TrainingPlan& plan, Parts parts, SampleStream samples,
                sim::Schedule schedule, bool by_units);

    Result<TrainStep> run_step();
    Status load_samples();
    Status run_task(const StageTask& task, TrainStep& out);
    Status do_task(const StageTask& task, TrainStep& out);
    Status do_shared_task(const StageTask& task, TrainStep& out);
    Status gather(const StageTask& task);
    /// `makes_room`: something is given back next, which what is gathered anew waits for.
    Status start_ready_gathers(bool makes_room);
    Status finish_reduction();
    Status update(TrainStep& out);
    Status add_losses(TrainStep& out);
    void enter_phase(const StageTask& task);
    [[nodiscard]] Index portion_of(const StageTask& task) const;

    Communicator* world_;
    TrainingPlan plan_;
    SpanRecorder spans_; // before everything that may still tell it something
    std::unique_ptr<MemoryCount> memory_;
    std::unique_ptr<LayoutGroups> groups_;
    SampleStream samples_;
    sim::Schedule schedule_;
    std::vector<StageTask> program_;
    std::unique_ptr<Model<Scalar>> model_;
    std::unique_ptr<DataParallel<Scalar>> shared_;
    StagePasses<Scalar> passes_;
    StageMessages<Scalar> messages_;
    std::vector<const StageTask*> gathers_; ///< that run beside compute, in order
    std::size_t gathers_started_ = 0;
    bool by_units_ = false;  ///< gathered and reduced by wrap units, not by buckets
    std::vector<bool> done_; ///< by task: of this step
    bool reduced_ = false;   ///< all that the step adds up
    Index samples_read_ = 0;
    std::array<std::int64_t, sim::group_count> sent_before_{}; ///< while this was made
};

} // namespace shardplan::exec
