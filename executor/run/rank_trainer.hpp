#pragma once

#include <memory>
#include <vector>

#include "executor/comm/layout_groups.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/optimizer.hpp"
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
    [[nodiscard]] std::array<std::int64_t, sim::group_count> sent() const override;

private:
    RankTrainer(Communicator& world, const TrainingPlan& plan, std::unique_ptr<LayoutGroups> groups,
                SampleStream samples, sim::Schedule schedule, std::unique_ptr<Model<Scalar>> model);

    Result<TrainStep> run_step();
    Status load_samples();
    Status run_task(const StageTask& task, TrainStep& out);
    Status do_task(const StageTask& task, TrainStep& out);
    Status add_losses(TrainStep& out);

    Communicator* world_;
    TrainingPlan plan_;
    SpanRecorder spans_; // before everything that may still tell it something
    std::unique_ptr<LayoutGroups> groups_;
    SampleStream samples_;
    sim::Schedule schedule_;
    std::vector<StageTask> program_;
    std::unique_ptr<Model<Scalar>> model_;
    Optimizer<Scalar> optimizer_;
    StagePasses<Scalar> passes_;
    StageMessages<Scalar> messages_;
    Index samples_read_ = 0;
};

} // namespace shardplan::exec
