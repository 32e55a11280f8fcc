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
    "cp4:a2a,dp1,mb1",
    "tp2,sp,cp2:a2a,dp1,mb1",
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
    "dp1,mb1,off=act:1.0:host",
    "dp2,mb1,rc=selective,off=act:0.5:nvme",
    "tp2,sp,dp2,mb1,rc=full,zero1,off=act:1.0:host",
    "pp2,dp2,mb1,sched=zb-h1,zero3,off=act:0.4:host",
    "pp2,v2,dp1,mb1,sched=dualpipe,off=act:1.0:host",
    "dp1,mb1,zero3,off=par:1.0:host",
    "pp2,dp1,mb1,zero3,off=par:0.3:nvme",
    "dp2,mb1,zero3,off=par:0.5:host,off=opt:1.0:host,off=act:0.7:host",
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
    "ep2,dp2,mb1,off=act:1.0:host",
    "ep2,dp1,tp2,etp1,mb1,zero3,off=par:1.0:host",
};

/// Three ranks hold the same experts, in shard groups of two; of twelve samples a step.
inline constexpr const char* odd_holders[] = {"ep2,dp6,mb1,zero3:2", "ep2,dp6,mb1,zero2:2",
                                              "ep2,dp6,mb1,zero1:2",
                                              "tp2,sp,ep4,dp6,mb1,etp1,zero3:2"};

/// Of every kind some: for models beside the plain ones.
inline constexpr const char* some_layouts[] = {
    "dp2,mb1,zero3",
    "tp2,dp2,mb1,zero1",
    "tp4,sp,dp1,mb1",
    "cp2,dp2,mb1,zero2",
    "cp2:allgather,tp2,dp1,mb1",
    "cp4:a2a,dp1,mb1",
    "cp2:a2a,tp2,sp,dp1,mb1",
    "pp2,dp1,mb1",
    "pp2,v2,tp2,sp,dp1,mb1",
    "pp2,dp2,mb1,zero3,sched=zb-h1",
    "pp2,v2,dp2,mb1,sched=zb-v,zero2",
    "pp2,v2,tp2,dp1,mb1,sched=dualpipe",
    "dp2,mb1,rc=selective",
    "tp2,sp,dp1,mb1,rc=full",
    "pp2,dp1,mb1,rc=full:1",
    "dp2,mb1,zero1,off=opt:1.0:host",
    "dp1,mb1,off=act:0.6:host",
    "dp2,mb1,zero3,off=par:1.0:host",
};
inline constexpr const char* some_expert_layouts[] = {
    "ep2,dp2,mb1",
    "ep2,dp2,pp2,mb1,zero3",
    "tp2,ep2,etp1,dp1,mb1",
    "tp2,sp,ep2,dp2,mb1,zero1",
    "cp2,ep2,dp1,mb1",
    "pp2,v2,ep2,dp2,mb1,sched=dualpipe",
    "ep2,dp2,mb1,rc=full,off=act:1.0:host",
};

/// How near losses, balance losses and gradient norms have to be.
struct Allowed {
    double loss = 0.0;
    double norm = 0.0;
};

inline void expect_steps_of_one_rank(const sim::ModelSpec& model,
                                     std::span<const char* const> layouts,
                                     exec::Arithmetic arithmetic, exec::Index steps,
                                     Allowed allowed, exec::Index batch = 8, double rate = 3e-3) {
    TinyRun run{model, "dp1,mb1", arithmetic, steps, batch};
    run.rate = rate;
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

/// At larger rates the gradients of blocks with norms behind their halves swing from step to step,
/// and what rounding makes different grows with each.
constexpr double steady_rate = 3e-4;

/// The models that have what plain ones have not.
inline void expect_special_models(exec::Arithmetic arithmetic, exec::Index steps, Allowed allowed) {
    for (const sim::ModelSpec& model :
         {mixed(tiny_qwen3()), deeper(tiny_olmo2()), deeper(tiny_dropping()),
          mixed(tiny_deepseek()), deeper(tiny_qwen2_moe()), deeper(tiny_parallel(true)),
          deeper(tiny_parallel(false)), deeper(tiny_gpt_oss())}) {
        expect_steps_of_one_rank(model, some_layouts, arithmetic, steps, allowed, 8, steady_rate);
    }
    for (const sim::ModelSpec& model :
         {mixed(tiny_deepseek()), deeper(tiny_qwen2_moe()), deeper(tiny_gpt_oss())}) {
        expect_steps_of_one_rank(model, some_expert_layouts, arithmetic, steps, allowed, 8,
                                 steady_rate);
    }
}

} // namespace shardplan::test
