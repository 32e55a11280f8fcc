#pragma once

#include "executor/kernels/kernels.hpp"

namespace shardplan::exec {

/// Learning rate over the steps: a linear rise to `peak`, then half a cosine down to `floor`, where
/// it stays. Source: Loshchilov and Hutter 2016 (arXiv 1608.03983), one cycle.
struct RateSchedule {
    double peak = 1e-3;
    double floor = 0.0;
    Index warmup = 0; ///< steps of the rise
    Index total = 0;  ///< step at which the floor is reached; 0: the peak is kept

    /// `step` is counted from 1.
    [[nodiscard]] double at(Index step) const;
};

enum class OptimizerKind : std::uint8_t { adamw, sgd };

struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double momentum = 0.9; ///< sgd
    double decay = 0.1;    ///< of matrices; biases and norms do not decay
    double clip = 1.0;     ///< largest norm of all gradients together; 0: not clipped
};

/// What a state of training is made of.
enum class StateKind : std::uint8_t {
    value,  ///< of the parameter, as it is updated
    first,  ///< moment, or velocity
    second, ///< moment
};

struct StepReport {
    double gradient_norm = 0.0; ///< before clipping
    double factor = 1.0;        ///< what clipping multiplied the gradients with
};

} // namespace shardplan::exec
