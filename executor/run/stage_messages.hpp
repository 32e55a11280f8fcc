#pragma once

#include <deque>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/run/stage_passes.hpp"
#include "executor/run/stage_program.hpp"
#include "simulator/schedule/schedule.hpp"

namespace shardplan::exec {

/// The boundary tensors of a rank's stage on their way: as they are stored, 16 bits where
/// activations are. Sends are never waited for before the step ends; receives are posted ahead.
template <class Scalar>
class StageMessages {
public:
    /// `stages`: the ranks of the same place in all stages, by stage. All outlive this.
    StageMessages(Communicator& stages, const sim::Schedule& schedule,
                  const std::vector<StageTask>& program, Model<Scalar>& model,
                  StagePasses<Scalar>& passes);

    Status start_step();
    /// Waits until the tensor of a receive is there, and gives it to its pass.
    Status receive(const StageTask& task);
    /// What a pass has left goes out.
    Status send(const StageTask& task);
    /// From one chunk of this rank to another.
    void hand_over(const StageTask& task);
    /// Lets messages under way go on, where a back end moves them only while it is called; drops
    /// what has arrived.
    Status progress();
    /// Waits for everything that has been sent.
    Status finish_step();

    /// Bytes of one message.
    [[nodiscard]] Index bytes() const;

private:
    /// Destroyed in the order that takes a message back before its buffer goes.
    struct Message {
        Scratch<Scalar> values;
        Scratch<Bf16> packed;
        Request request;
    };
    [[nodiscard]] Index count() const { return model_->boundary(); }
    [[nodiscard]] bool packs() const { return model_->options().storage == Storage::bf16; }
    [[nodiscard]] View view_of(Message& message) const;
    Status post(const StageTask& task);
    Status post_ahead();
    Status drop_sent();

    Communicator* stages_;
    const sim::Schedule* schedule_;
    Model<Scalar>* model_;
    StagePasses<Scalar>* passes_;
    std::vector<const StageTask*> receives_; ///< of a step, in order
    std::size_t posted_ = 0;
    std::deque<Message> coming_; ///< posted and not taken
    std::deque<Message> going_;
};

} // namespace shardplan::exec
