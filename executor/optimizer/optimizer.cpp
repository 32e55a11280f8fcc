#include "executor/optimizer/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardplan::exec {

double RateSchedule::at(Index step) const {
    if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
    if (total == 0) return peak;
    if (step >= total) return floor;
    const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
    return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

template <class Scalar>
Optimizer<Scalar>::Optimizer(const OptimizerOptions& options, const ParameterTable& table)
    : options_(options), first_(table.count) {
    if (options.kind == OptimizerKind::adamw) second_.reset(table.count);
}

template <class Scalar>
sim::Result<StepReport> Optimizer<Scalar>::step(Kernels<Scalar>& kernels,
                                                Parameters<Scalar>& parameters, double rate) {
    const OptimizerOptions& o = options_;
    StepReport report;
    report.gradient_norm =
        std::sqrt(kernels.square_sum(parameters.table().count, parameters.gradients()));
    if (!std::isfinite(report.gradient_norm)) {
        return sim::Error{sim::ErrorCode::backend_failed, "step " + std::to_string(steps_ + 1),
                          "the norm of the gradients is not finite",
                          "lower the learning rate, or lengthen its warm-up"};
    }
    // the small term as in PyTorch and Megatron Core
    if (o.clip > 0.0) report.factor = std::min(1.0, o.clip / (report.gradient_norm + 1e-6));
    ++steps_;
    const auto factor = static_cast<Scalar>(report.factor);
    for (const Parameter& p : parameters.table().parameters) {
        const double decay = p.decays ? o.decay : 0.0;
        Scalar* values = parameters.values() + p.offset;
        const Scalar* gradient = parameters.gradients() + p.offset;
        Scalar* first = first_.data() + p.offset;
        if (o.kind == OptimizerKind::adamw) {
            kernels.adamw({rate, o.beta1, o.beta2, o.epsilon, decay, steps_}, p.count(), factor,
                          gradient, values, first, second_.data() + p.offset);
        } else {
            kernels.sgd(rate, o.momentum, decay, p.count(), factor, gradient, values, first);
        }
    }
    parameters.changed();
    parameters.clear_gradients();
    return report;
}

template class Optimizer<float>;
template class Optimizer<double>;

} // namespace shardplan::exec
