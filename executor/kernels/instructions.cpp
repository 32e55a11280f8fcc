#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

std::string kernel_instructions() { return Eigen::SimdInstructionSetsInUse(); }

} // namespace shardplan::exec
