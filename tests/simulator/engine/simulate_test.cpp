#include "simulator/engine/simulate.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;
using namespace shardplan::sim;

struct Case {
    Evaluator evaluator;
    Layout layout;
};

Case make_case(Scenario scenario, const std::string& text, bool overlap) {
    if (!overlap) scenario.stack = with_features(scenario.stack, {Feature::no_overlap});
    LayoutTables tables;
    const auto parsed = parse_layout(text, "layout", tables);
    const auto layout = complete_layout(*parsed, device_count(scenario.cluster), "layout");
    return {*Evaluator::make(std::move(scenario), tables), *layout};
}

/// Eight equal blocks a stage, one of them on either end would make stages uneven; their embedding
/// and head are small beside them.
Case equal_stages(const std::string& text, bool overlap = false, std::int64_t batch = 256) {
    ModelSpec model = test::small_model(32, 32, 8);
    return make_case(test::scenario(std::move(model), test::dgx_h100(8), test::job(4096, batch)),
                     text, overlap);
}
Case llama_70b(const std::string& text, bool overlap = false, std::int64_t batch = 256) {
    return make_case(test::scenario(test::llama_3_70b(), test::dgx_h100(8), test::job(8192, batch)),
                     text, overlap);
}

double relative(const Case& c, const SimulateOptions& options = {}) {
    Workspace workspace;
    const Estimate e = c.evaluator.estimate(c.layout, workspace);
    const auto s = simulate(c.evaluator, c.layout, options);
    EXPECT_TRUE(s) << (s ? "" : to_text(s.error()));
    return s ? s->step / e.time.total.value - 1.0 : 1.0;
}

TEST(DBG, Agreement) {
    for (const char* text :
         {"tp8,sp,dp8,mb1,zero1", "tp8,sp,pp4,dp2,mb1", "tp8,sp,pp4,dp2,mb1,sched=gpipe",
          "tp8,sp,pp4,dp2,mb1,zero1", "tp8,sp,pp4,v2,dp2,mb1", "tp8,sp,pp4,dp2,mb1,sched=zb-h1",
          "tp8,sp,pp4,dp2,mb1,sched=zb-h2", "tp8,sp,pp4,v2,dp2,mb1,sched=zb-v",
          "tp8,sp,pp4,v2,dp2,mb1,sched=dualpipe", "dp64,mb1,zero3", "dp64,mb1,zero3,rc=full",
          "dp64,mb1,zero2", "tp8,sp,pp4,dp2,mb1,rc=full:2",
          "tp8,sp,pp4,dp2,mb1,off=opt:1.0:host"}) {
        for (const bool overlap : {false, true}) {
            const Case a = equal_stages(text, overlap);
            const Case b = llama_70b(text, overlap);
            Workspace w;
            const auto est = b.evaluator.estimate(b.layout, w);
            const auto s = simulate(b.evaluator, b.layout);
            double worst = 0;
            for (std::size_t i = 0; s && i < s->peaks.size(); ++i)
                worst = std::max(
                    worst, std::abs(s->peaks[i].allocated / est.classes[i].allocated.value - 1.0));
            printf("%-42s %d  small %+.3g%%  70b %+.3g%% mem %.3g\n", text, overlap,
                   100 * relative(a), 100 * relative(b), worst);
        }
    }
}

} // namespace
