#pragma once

#include <span>

#include "tests/executor/run/layout_runs.hpp"

namespace shardplan::test {

/// Kinds of layouts and combinations; micro-batches of one sample, eight samples a step.
inline constexpr const char* dense_layouts[] = {
    "dp2,mb1",
    "dp4,mb1,zero1",
    "dp2,mb1,zero2",
    "dp4,mb1,zero2",
    "dp2,mb1,zero3",
    "dp4,mb1,zero3,prefetch2,wrap=2blocks",
    "dp4,mb1,zero3,noreshard",
    "dp4,mb1,zero3,wrap=model",
    "dp4,mb1,zero3:2",
    "dp4,mb1,zero1:2",
    "dp8,mb1,zero2:4",
    "tp2,dp1,mb1",
    "tp2,sp,dp1,mb1",
    "tp2,dp2,mb1,zero1",
    "tp4,dp1,mb1",
    "tp4,sp,dp2,mb1,zero1",
    "tp4,dp2,mb1,zero3",
    "pp2,tp4,dp1,mb1",
    "tp2,sp,dp2,mb1,zero3",
    "cp2,dp1,mb1",
    "cp2:a2a,dp1,mb1",
    "cp2:allgather,dp1,mb1",
    "cp4,dp1,mb1",
    "cp2,tp2,sp,dp2,mb1,zero2",
    "cp2,dp2,mb1,zero3",
    "pp2,dp1,mb1",
    "pp4,dp1,mb1,sched=gpipe",
    "pp4,dp1,mb1",
    "pp3,dp1,mb1,stages=1-2-1",
    "pp2,v2,dp1,mb1",
    "pp2,dp1,mb1,sched=zb-h1",
    "pp4,dp1,mb1,sched=zb-h2",
    "pp2,v2,dp1,mb1,sched=zb-v",
    "pp2,v2,dp1,mb1,sched=dualpipe",
    "pp4,v2,dp1,mb1,sched=dualpipe",
    "pp2,v2,dp2,mb1,sched=dualpipe,zero1",
    "pp2,v2,dp2,mb1,sched=zb-v,zero2",
    "pp2,v2,dp2,mb1,sched=dualpipe,zero2",
    "pp2,dp2,mb1,zero3",
    "pp2,dp2,mb1,zero3,sched=zb-h1",
    "pp2,v2,dp2,mb1,zero2",
    "pp2,tp2,sp,dp2,mb1,zero1",
    "pp2,tp2,cp2,dp1,mb1",
    "pp2,cp2,dp2,mb1,zero3",
    "dp2,mb1,rc=selective",
    "tp2,sp,dp1,mb1,rc=full",
    "pp2,dp1,mb1,rc=full:1",
    "cp2,dp1,mb1,rc=selective",
    "dp2,mb1,zero1,off=opt:1.0:host",
    "dp2,mb1,zero3,off=opt:0.5:host",
    "dp2,tp2,mb1,order=dp-tp-cp-ep-pp",
    "dp2,pp2,mb1,zero1,order=pp-tp-cp-ep-dp",
};

inline constexpr const char* expert_layouts[] = {
    "dp2,mb1",
    "ep2,dp2,mb1",
    "ep4,dp4,mb1,zero1",
    "ep2,dp4,mb1,zero1",
    "ep2,dp2,mb1,zero3",
    "tp2,dp1,mb1",
    "tp2,sp,dp1,mb1",
    "tp2,ep2,etp1,dp1,mb1",
    "tp2,sp,ep2,dp2,mb1,zero1",
    "tp2,sp,ep2,etp1,dp2,mb1,zero1",
    "cp2,dp1,mb1",
    "cp2,ep2,dp1,mb1",
    "ep2,dp2,pp2,mb1",
    "ep2,dp2,pp2,mb1,zero3",
    "pp2,v2,dp1,mb1,sched=zb-v",
    "pp2,v2,ep2,dp2,mb1,sched=dualpipe",
    "ep2,dp2,mb1,rc=full",
    "ep2,dp2,mb1,rc=selective",
};

/// How near losses, balance losses and gradient norms have to be.
struct Allowed {
    double loss = 0.0;
    double norm = 0.0;
};

inline void expect_steps_of_one_rank(const sim::ModelSpec& model,
                                     std::span<const char* const> layouts,
                                     exec::Arithmetic arithmetic, exec::Index steps,
                                     Allowed allowed) {
    TinyRun run{model, "dp1,mb1", arithmetic, steps};
    const TinyOutcome one = train(run);
    ASSERT_TRUE(one.status);
    for (const char* layout : layouts) {
        run.layout = layout;
        const TinyOutcome out = train(run);
        EXPECT_TRUE(out.status) << layout << ": " << sim::to_text(out.status.error());
        if (!out.status) continue;
        const Differences worst = differences(out, one);
        EXPECT_LE(worst.loss, allowed.loss) << layout;
        EXPECT_LE(worst.balance, allowed.norm) << layout;
        EXPECT_LE(worst.gradient_norm, allowed.norm) << layout;
    }
}

} // namespace shardplan::test
