#pragma once

#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {

inline sim::Scenario llama_8b(sim::StackProfile stack = megatron_core_stack()) {
    return scenario(llama_3_8b(), dgx_h100(2), job(8192, 64), std::move(stack));
}

/// A layout of a scenario and who estimates it.
struct Evaluated {
    sim::Evaluator evaluator;
    sim::Layout layout;
};
inline Evaluated evaluated(const sim::Scenario& scenario, std::string_view layout) {
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(layout, "layout", tables);
    EXPECT_TRUE(parsed) << sim::to_text(parsed.error());
    const auto complete =
        sim::complete_layout(*parsed, sim::device_count(scenario.cluster), "layout");
    EXPECT_TRUE(complete) << sim::to_text(complete.error());
    auto made = sim::Evaluator::make(scenario, tables);
    EXPECT_TRUE(made) << sim::to_text(made.error());
    return {std::move(*made), *complete};
}

/// What it estimates, be the layout legal or not.
inline sim::Estimate estimated(const sim::Scenario& scenario, std::string_view layout) {
    const Evaluated e = evaluated(scenario, layout);
    sim::Workspace workspace;
    return e.evaluator.estimate(e.layout, workspace);
}

} // namespace shardplan::test
