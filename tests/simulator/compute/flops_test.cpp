#include "simulator/compute/flops.hpp"

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

Resolved resolved_for(MethodKind method) {
    Job job = test::job(8192, 8);
    job.method.kind = method;
    const auto resolved = resolve(test::scenario(test::llama_3_8b(), test::dgx_h100(1), job));
    EXPECT_TRUE(resolved) << to_text(resolved.error());
    return resolved->values;
}

// Llama-3-8B: 6 x 7 504 658 432 parameters of products and 12 x 32 x 4096 x 8192 per token.
TEST(Flops, AreSixPerParameterAndTwelvePerLayerWidthAndToken) {
    const double tokens = 8.0 * 8192.0;
    const double products = 8'030'261'248.0 - 128256.0 * 4096.0 - 65.0 * 4096.0;
    const double scores = 12.0 * 32.0 * 4096.0 * 8192.0;
    EXPECT_NEAR(model_flops_per_step(test::llama_3_8b(), resolved_for(MethodKind::full)).value(),
                tokens * (6.0 * products + scores), 1e6);
}

TEST(Flops, CountTheBlockTheMapAndTheHeadOfAModuleThatPredictsAFurtherToken) {
    ModelSpec model = test::llama_3_8b();
    Part part;
    part.name = "mtp";
    part.role = PartRole::mtp;
    part.hidden = 4096;
    part.runs = {{0, 1}};
    model.parts.push_back(part);
    const double tokens = 8.0 * 8192.0;
    const double matrices = 2.0 * 4096.0 * (4096.0 + 1024.0) + 3.0 * 4096.0 * 14336.0;
    const double scores = 12.0 * 4096.0 * 8192.0;
    const double ends = 2.0 * 4096.0 * 4096.0 + 128256.0 * 4096.0;
    const Resolved r = resolved_for(MethodKind::full);
    EXPECT_NEAR(
        (model_flops_per_step(model, r) - model_flops_per_step(test::llama_3_8b(), r)).value(),
        tokens * (6.0 * (matrices + ends) + scores), 1e7);
}

TEST(Flops, FrozenWeightsHaveNoGradient) {
    const double tokens = 8.0 * 8192.0;
    const double products = 8'030'261'248.0 - 128256.0 * 4096.0 - 65.0 * 4096.0;
    const double scores = 12.0 * 32.0 * 4096.0 * 8192.0;
    EXPECT_NEAR(model_flops_per_step(test::llama_3_8b(), resolved_for(MethodKind::lora)).value(),
                tokens * (4.0 * products + scores), 1e6);
}

} // namespace
} // namespace shardplan::sim
