#include "executor/run/trainer.hpp"

#include <utility>

#include "executor/run/rank_trainer.hpp"
#include "executor/run/training_check.hpp"

namespace shardplan::exec {

Result<std::unique_ptr<Trainer>> Trainer::make(Communicator& world, const TrainingPlan& plan,
                                               TokenSource data) {
    if (auto s = check_training(plan, world.size()); !s) return std::move(s).error();
    if (plan.arithmetic == Arithmetic::fp64) {
        return RankTrainer<double>::make(world, plan, std::move(data));
    }
    return RankTrainer<float>::make(world, plan, std::move(data));
}

} // namespace shardplan::exec
