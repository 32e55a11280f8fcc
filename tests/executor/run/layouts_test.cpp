#include <gtest/gtest.h>

#include "tests/executor/run/layout_runs.hpp"

namespace shardplan::test {
namespace {

TEST(Layouts, TMP) {
    sim::ModelSpec model = tiny_llama();
    model.parts[0].runs = {{0, 8}};
    TinyRun run{model, "dp1,mb1"};
    run.optimizer.clip = 0.0;
    const TinyOutcome one = train(run);
    for (const char* l : {"pp2", "pp4", "pp2,sched=gpipe", "pp4,sched=gpipe", "pp2,v2", "pp4,v2",
                          "pp2,v4", "pp2,sched=zb-h1", "pp4,sched=zb-h1", "pp2,sched=zb-h2",
                          "pp4,sched=zb-h2", "pp2,v2,sched=zb-v", "pp4,v2,sched=zb-v", "pp1,v2",
                          "dp2,pp2,rc=full", "dp2,pp2,rc=full:1", "pp3,rc=selective"}) {
        run.layout = std::string(l) + ",mb1";
        if (run.layout.find("dp") == std::string::npos) run.layout = "dp1," + run.layout;
        const TinyOutcome out = train(run);
        EXPECT_TRUE(out.status) << l << sim::to_text(out.status.error());
        if (!out.status) continue;
        double worst = 0;
        for (auto& r : out.steps)
            for (size_t i = 0; i < 3; ++i)
                worst = std::max(worst, std::abs(r[i].loss - one.steps[0][i].loss));
        EXPECT_LE(worst, 1e-12) << l;
    }
}

} // namespace
} // namespace shardplan::test
