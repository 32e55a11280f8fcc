#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "tests/executor/gradient_check.hpp"

namespace shardplan::test {

using Values = std::vector<double>;

inline Values zeros(std::size_t count) { return Values(count, 0.0); }

class KernelGradients : public ::testing::Test {
protected:
    exec::CpuKernels<double> kernels{2};
};

} // namespace shardplan::test
