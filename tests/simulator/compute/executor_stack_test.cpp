#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "simulator/compute/op_list.hpp"
#include "simulator/compute/op_time.hpp"
#include "simulator/estimate/collective_memo.hpp"
#include "simulator/estimate/unit_time.hpp"
#include "tests/support/builders.hpp"

/// What the executor's own stack does otherwise than others, and operators that instructions bound.
namespace shardplan::test {
namespace {

sim::Resolved in_32_bits() {
    sim::Resolved r;
    r.sequence = 256;
    r.sequence_mean_square = 256.0 * 256.0;
    r.global_batch = 4;
    r.compute = r.parameter = sim::Dtype::fp32;
    return r;
}

sim::ModelSpec gpt3() {
    sim::ModelSpec model = gpt3_175b();
    model.hidden_dropout = model.attention_dropout = 0.0;
    return model;
}

sim::OpList block(const sim::StackProfile& stack) {
    const sim::ModelSpec model = gpt3();
    sim::ShardingKey key;
    key.micro_batch = 2;
    return block_ops(model.block_kinds[0], sim::trunk_of(model)->hidden, model, in_32_bits(), stack,
                     key);
}

const sim::Op& named(const sim::OpList& ops, std::string_view name) {
    return *std::find_if(ops.begin(), ops.end(),
                         [&](const sim::Op& op) { return op.name == name; });
}

TEST(ExecutorStack, ResidualsThatBeginAProductHaveNoBackwardPass) {
    sim::StackProfile stack = generic_stack();
    const sim::OpList plain = block(stack);
    stack.tensors.residual_begins_product = true;
    const sim::OpList begun = block(stack);
    const sim::Op& residual = named(begun, "ffn_residual");
    const double bytes = 2.0 * 256.0 * static_cast<double>(12288) * 4.0;
    EXPECT_DOUBLE_EQ(residual.traffic_forward, 2.0 * bytes);
    EXPECT_DOUBLE_EQ(residual.traffic_backward, 0.0);
    EXPECT_EQ(residual.kernels_backward, 0);
    // a bias is written there too, except where the residual brings it along
    EXPECT_DOUBLE_EQ(named(begun, "mlp_up").traffic_forward,
                     named(plain, "mlp_up").traffic_forward + 4.0 * bytes);
    EXPECT_DOUBLE_EQ(named(begun, "mlp_down").traffic_forward,
                     named(plain, "mlp_down").traffic_forward);
}

TEST(ExecutorStack, TablesGetTheGradientsOfTheirRowsAlone) {
    sim::StackProfile stack = generic_stack();
    stack.tensors.table_rows_added = true;
    sim::ShardingKey key;
    key.micro_batch = 2;
    const sim::OpList ops = embedding_ops(gpt3(), in_32_bits(), stack, key);
    const double bytes = 2.0 * 256.0 * 12288.0 * 4.0;
    EXPECT_DOUBLE_EQ(ops[0].traffic_backward, 5.0 * bytes); // rows of both tables
}

/// Seconds of a block's passes on a device that is nothing but matrix units.
sim::UnitTime timed(const sim::OpList& ops) {
    sim::ComputeRates rates;
    rates.matrix.fill(1e12);
    rates.peak.fill(1e12);
    sim::UnitWork work;
    work.add(ops, rates);
    const sim::Paths paths{};
    sim::CollectiveMemo memo;
    return unit_time(work, rates, {}, lend(paths), memo, sim::CpKind::ring, true);
}

TEST(ExecutorStack, FullRecomputationEndsBeforeTheLastMap) {
    sim::StackProfile stack = generic_stack();
    const sim::UnitTime whole = timed(block(stack));
    EXPECT_EQ(whole.full_recompute, whole.forward);
    stack.tensors.recompute_without_output = true;
    const sim::OpList ops = block(stack);
    const sim::UnitTime shorter = timed(ops);
    const double last = named(ops, "mlp_down").flops_forward / 1e12;
    EXPECT_NEAR(shorter.full_recompute.gemm, whole.forward.gemm - last, 1e-9 * whole.forward.gemm);
    EXPECT_EQ(shorter.forward, whole.forward);
}

sim::Constant stated(double value) {
    sim::Constant c;
    c.value = value;
    c.source = "test";
    return c;
}

TEST(OperatorRates, BoundMemoryBoundWorkByWhatItComputes) {
    sim::Device device = a100_sxm_80gb();
    sim::StackProfile stack = generic_stack();
    stack.time.memory_efficiency.value = 1.0;
    const sim::ComputeRates memory = compute_rates(device, stack, in_32_bits());
    sim::OperatorRates own;
    for (sim::Constant* c :
         {&own.norm_forward, &own.norm_backward, &own.activation_forward, &own.activation_backward,
          &own.gate_forward, &own.gate_backward, &own.rope, &own.loss, &own.sums, &own.update}) {
        *c = stated(4e9);
    }
    own.gate_backward = stated(1e9);
    device.compute.operators = own;
    const sim::ComputeRates bound = compute_rates(device, stack, in_32_bits());
    EXPECT_DOUBLE_EQ(memory.update_rate, memory.memory_rate);
    EXPECT_DOUBLE_EQ(bound.update_rate, 4e9);
    sim::Op op;
    op.kind = sim::OpKind::activation;
    op.traffic_forward = 4e6;
    op.traffic_backward = 8e6;
    const double passes = bound.passes;
    EXPECT_DOUBLE_EQ(op_cost(op, bound).forward.elementwise, passes * 1e-3);
    EXPECT_DOUBLE_EQ(op_cost(op, bound).backward_input.elementwise, passes * 2e-3);
    op.gated = true;
    EXPECT_DOUBLE_EQ(op_cost(op, bound).backward_input.elementwise, passes * 8e-3);
    // what nobody measured on its own moves at the memory's rate
    op.gated = false;
    op.kind = sim::OpKind::router;
    EXPECT_DOUBLE_EQ(op_cost(op, bound).forward.elementwise,
                     op_cost(op, memory).forward.elementwise);
}

} // namespace
} // namespace shardplan::test
