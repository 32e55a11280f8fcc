#include <fmt/format.h>

#include "simulator/spec/legality_rules.hpp"

namespace shardplan::sim {

namespace {

using Case = LegalityCase;

const Capabilities& can(const Case& c) { return c.scenario.stack.capabilities; }

/// "megatron-core cannot run zero3".
void say_cannot(const Case& c, Refusal& r, std::string_view what,
                std::vector<std::string> nearest) {
    r.rule = fmt::format("{} cannot run {}", c.scenario.stack.name, what);
    r.nearest = std::move(nearest);
}

RecomputePlan plan_of(const Case& c) { return c.tables.recompute(c.layout.recompute); }

/// Chunks per stage a schedule is made for; 0 = any number above 1.
std::int64_t chunks_of(ScheduleKind kind) {
    switch (kind) {
        case ScheduleKind::interleaved:
            return 0;
        case ScheduleKind::zb_v:
        case ScheduleKind::dual_pipe:
            return 2;
        case ScheduleKind::gpipe:
        case ScheduleKind::one_f_one_b:
        case ScheduleKind::zb_h1:
        case ScheduleKind::zb_h2:
            return 1;
    }
    return 1;
}

bool schedule_chunks_broken(const Case& c) {
    if (c.layout.pp == 1) {
        return false; // the rule below
    }
    const std::int64_t wanted = chunks_of(c.layout.schedule);
    return wanted == 0 ? c.layout.chunks == 1 : c.layout.chunks != wanted;
}

void schedule_chunks_refuse(const Case& c, Refusal& r) {
    const std::string_view name = name_of(c.layout.schedule);
    const std::int64_t wanted = chunks_of(c.layout.schedule);
    r.rule = wanted == 0 ? fmt::format("sched={} needs more than one chunk per stage", name)
                         : fmt::format("sched={} has v {} and the layout has v {}", name, wanted,
                                       c.layout.chunks);
    r.numbers = {static_cast<double>(c.layout.chunks)};
    r.nearest = {fmt::format("v{}", wanted == 0 ? 2 : wanted),
                 fmt::format("sched={}", name_of(default_schedule(c.layout.chunks)))};
}

bool pipeline_only_broken(const Case& c) {
    return c.layout.pp == 1 &&
           (c.layout.chunks > 1 || c.layout.schedule != ScheduleKind::one_f_one_b);
}

void pipeline_only_refuse(const Case& c, Refusal& r) {
    if (c.layout.chunks > 1) {
        r.rule = fmt::format("v {} cuts pipeline stages, and pp is 1", c.layout.chunks);
        r.numbers = {static_cast<double>(c.layout.chunks)};
        r.nearest = {"v1", fmt::format("pp2,v{}", c.layout.chunks)};
    } else {
        r.rule = fmt::format("sched={} orders a pipeline, and pp is 1", name_of(c.layout.schedule));
        r.nearest = {"leave sched out"};
    }
}

bool interleaving_broken(const Case& c) {
    return c.layout.pp > 1 && c.layout.schedule == ScheduleKind::interleaved &&
           can(c).interleaving_needs_multiple &&
           micro_batches(c.resolved, c.layout) % c.layout.pp != 0;
}

void interleaving_refuse(const Case& c, Refusal& r) {
    const std::int64_t m = micro_batches(c.resolved, c.layout);
    r.rule = fmt::format("{} interleaves only if the {} micro-batches are a multiple of pp {}",
                         c.scenario.stack.name, m, c.layout.pp);
    r.numbers = {static_cast<double>(m), static_cast<double>(c.layout.pp)};
    r.nearest = {"v1"};
    for (std::int64_t mb = c.layout.micro_batch - 1; mb >= 1; --mb) {
        Layout other = c.layout;
        other.micro_batch = static_cast<std::uint32_t>(mb);
        const std::int64_t passes = micro_batches(c.resolved, other);
        if (passes > 0 && passes % c.layout.pp == 0) {
            r.nearest.push_back(fmt::format("mb{}", mb));
            break;
        }
    }
}

/// DualPipe feeds both ends of the pipeline: pairs of stages, and a micro-batch for each end of
/// each. Source: deepseek-ai/DualPipe asserts an even number of ranks and chunks >= 2 x ranks.
bool dual_pipe_broken(const Case& c) {
    return c.layout.schedule == ScheduleKind::dual_pipe &&
           (c.layout.pp % 2 != 0 || micro_batches(c.resolved, c.layout) < 2 * c.layout.pp);
}

void dual_pipe_refuse(const Case& c, Refusal& r) {
    const std::int64_t m = micro_batches(c.resolved, c.layout);
    r.rule = fmt::format(
        "sched=dualpipe needs an even pp and at least 2 x pp micro-batches, and the "
        "layout has pp {} and {} micro-batches",
        c.layout.pp, m);
    r.numbers = {static_cast<double>(c.layout.pp), static_cast<double>(m)};
    r.nearest = {"sched=zb-v,v2", "sched=1f1b,v1"};
}

bool offloads(const Layout& l) {
    return l.offload_optimizer != 0 || l.offload_parameters != 0 || l.offload_activations != 0;
}

bool tier_memory_broken(const Case& c) {
    return (c.layout.offload_tier == OffloadTier::host && !c.facts.host_memory_known) ||
           (c.layout.offload_tier == OffloadTier::nvme && !c.facts.nvme_known);
}

void zero3_only_refuse(const Case& c, Refusal& r) {
    const Layout& l = c.layout;
    std::string term = "noreshard";
    if (l.offload_parameters != 0) {
        term = "off=par";
    } else if (l.wrap != WrapUnit::block) {
        term = fmt::format("wrap={}", name_of(l.wrap));
    } else if (l.prefetch != Layout{}.prefetch) {
        term = fmt::format("prefetch{}", l.prefetch);
    }
    r.rule = fmt::format("{} acts on parameters that are split, and the layout has {}", term,
                         name_of(l.shard));
    r.nearest = {"zero3", "leave " + term + " out"};
}

std::vector<std::string> orders_to_write(const std::vector<std::string>& orders) {
    std::vector<std::string> out;
    for (const std::string& order : orders) {
        out.push_back(order == order_text(0) ? "leave order out" : "order=" + order);
    }
    return out;
}

std::int64_t longest_stage(const Case& c) {
    const std::int64_t pp = c.layout.pp;
    std::int64_t longest = (c.facts.layers + pp - 1) / pp;
    if (c.layout.stage_map != 0) {
        for (const std::int64_t layers : c.tables.stage_map(c.layout.stage_map).layers) {
            longest = std::max(longest, layers);
        }
    }
    return longest;
}

constexpr LegalityRule table[] = {
    {"stack-has-tp", "tp", [](const Case& c) { return c.layout.tp > 1 && !can(c).tensor_parallel; },
     [](const Case& c, Refusal& r) { say_cannot(c, r, "tensor parallelism", {"tp1"}); }},
    {"stack-has-sp", "sp", [](const Case& c) { return c.layout.sp && !can(c).sequence_parallel; },
     [](const Case& c, Refusal& r) { say_cannot(c, r, "sequence parallelism", {"leave sp out"}); }},
    {"stack-has-pp", "pp",
     [](const Case& c) { return c.layout.pp > 1 && !can(c).pipeline_parallel; },
     [](const Case& c, Refusal& r) { say_cannot(c, r, "pipeline parallelism", {"pp1"}); }},
    {"stack-has-cp", "cp",
     [](const Case& c) { return c.layout.cp > 1 && !contains(can(c).cp_kinds, c.layout.cp_kind); },
     [](const Case& c, Refusal& r) {
         std::vector<std::string> nearest =
             names_of(can(c).cp_kinds, fmt::format("cp{}:", c.layout.cp));
         nearest.emplace_back("cp1");
         say_cannot(c, r, fmt::format("context parallelism by {}", name_of(c.layout.cp_kind)),
                    std::move(nearest));
     }},
    {"stack-has-ep", "ep", [](const Case& c) { return c.layout.ep > 1 && !can(c).expert_parallel; },
     [](const Case& c, Refusal& r) { say_cannot(c, r, "expert parallelism", {"ep1"}); }},
    {"stack-has-etp", "etp",
     [](const Case& c) {
         return etp_of(c.layout) != c.layout.tp && !can(c).expert_tensor_parallel;
     },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, "a tensor degree of its own for experts", {"leave etp out"});
     }},
    {"stack-has-shard", "zero",
     [](const Case& c) { return !contains(can(c).shards, c.layout.shard); },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, name_of(c.layout.shard), names_of(can(c).shards));
     }},
    {"stack-has-hybrid-shard", "zero",
     [](const Case& c) {
         return c.layout.shard_group != 0 &&
                c.layout.shard_group < std::int64_t{c.layout.dp} * c.layout.cp &&
                !can(c).hybrid_shard;
     },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, "shard groups smaller than dp x cp",
                    {std::string(name_of(c.layout.shard))});
     }},
    {"shard-group-needs-shard", "zero",
     [](const Case& c) { return c.layout.shard == Shard::none && c.layout.shard_group != 0; },
     [](const Case& c, Refusal& r) {
         r.rule =
             fmt::format("a shard group of {} splits nothing under zero0", c.layout.shard_group);
         r.numbers = {static_cast<double>(c.layout.shard_group)};
         r.nearest = {fmt::format("zero3:{}", c.layout.shard_group)};
     }},
    {"stack-shards-with-pp", "zero",
     [](const Case& c) {
         return c.layout.pp > 1 && !can(c).shard_with_pipeline &&
                (c.layout.shard == Shard::optimizer_gradients || c.layout.shard == Shard::all);
     },
     [](const Case& c, Refusal& r) {
         std::vector<std::string> nearest;
         for (const Shard shard : {Shard::none, Shard::optimizer}) {
             if (contains(can(c).shards, shard)) {
                 nearest.emplace_back(name_of(shard));
             }
         }
         nearest.emplace_back("pp1");
         say_cannot(c, r,
                    fmt::format("{} together with pp {}", name_of(c.layout.shard), c.layout.pp),
                    std::move(nearest));
     }},
    {"stack-splits-context-with-pp", "cp",
     [](const Case& c) {
         return c.layout.pp > 1 && c.layout.cp > 1 && !can(c).context_with_pipeline;
     },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, fmt::format("cp {} together with pp {}", c.layout.cp, c.layout.pp),
                    {"cp1", "pp1"});
     }},
    {"term-needs-zero3", "zero",
     [](const Case& c) {
         const Layout& l = c.layout;
         return l.shard != Shard::all && (!l.reshard || l.prefetch != Layout{}.prefetch ||
                                          l.wrap != WrapUnit::block || l.offload_parameters != 0);
     },
     zero3_only_refuse},
    {"pipeline-only-terms", "v", pipeline_only_broken, pipeline_only_refuse},
    {"stack-has-schedule", "sched",
     [](const Case& c) {
         return c.layout.pp > 1 && !contains(can(c).schedules, c.layout.schedule);
     },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, fmt::format("schedule {}", name_of(c.layout.schedule)),
                    names_of(can(c).schedules, "sched="));
     }},
    {"schedule-fits-chunks", "sched", schedule_chunks_broken, schedule_chunks_refuse},
    {"interleaving-needs-multiple", "v", interleaving_broken, interleaving_refuse},
    {"dualpipe-needs-pairs", "sched", dual_pipe_broken, dual_pipe_refuse},
    {"stack-has-recompute", "rc",
     [](const Case& c) { return !contains(can(c).recompute, plan_of(c).kind); },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, fmt::format("{} recomputation", name_of(plan_of(c).kind)),
                    names_of(can(c).recompute, "rc="));
     }},
    {"stack-recomputes-part", "rc",
     [](const Case& c) { return plan_of(c).layers_per_stage != 0 && !can(c).partial_recompute; },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, "recomputation of some blocks of a stage only", {"rc=full"});
     }},
    {"recompute-within-stage", "rc",
     [](const Case& c) { return plan_of(c).layers_per_stage > longest_stage(c); },
     [](const Case& c, Refusal& r) {
         const std::int64_t blocks = plan_of(c).layers_per_stage;
         r.rule = fmt::format("rc=full:{} exceeds the {} blocks of the longest stage", blocks,
                              longest_stage(c));
         r.numbers = {static_cast<double>(blocks), static_cast<double>(longest_stage(c))};
         r.nearest = {fmt::format("rc=full:{}", longest_stage(c)), "rc=full"};
     }},
    {"stack-has-offload", "off",
     [](const Case& c) { return !contains(can(c).offload_tiers, c.layout.offload_tier); },
     [](const Case& c, Refusal& r) {
         std::vector<std::string> nearest;
         for (const OffloadTier tier : can(c).offload_tiers) {
             if (tier != OffloadTier::none) {
                 nearest.push_back(fmt::format("off=opt:1.0:{}", name_of(tier)));
             }
         }
         nearest.emplace_back("leave off out");
         say_cannot(c, r, fmt::format("offload to {}", name_of(c.layout.offload_tier)),
                    std::move(nearest));
     }},
    {"offload-names-tier", "off",
     [](const Case& c) {
         return offloads(c.layout) != (c.layout.offload_tier != OffloadTier::none);
     },
     [](const Case&, Refusal& r) {
         r.rule = "offload needs both a fraction and a tier";
         r.nearest = {"off=opt:1.0:host", "leave off out"};
     }},
    {"stack-offloads-part", "off",
     [](const Case& c) {
         const std::uint16_t share = c.layout.offload_optimizer;
         return share > 0 && share < offload_scale && !splits_offload(can(c), c.layout.shard);
     },
     [](const Case& c, Refusal& r) {
         const bool with_zero3 = can(c).part_offload == PartOffload::zero3;
         say_cannot(
             c, r,
             fmt::format("offload of a part of the optimizer states{}",
                         with_zero3 ? " but with zero3" : ""),
             {fmt::format("off=opt:1.0:{}", name_of(c.layout.offload_tier)), "leave off out"});
         if (with_zero3) r.nearest.insert(r.nearest.begin(), "zero3");
     }},
    {"stack-has-rank-order", "order",
     [](const Case& c) { return !contains(c.facts.orders, c.layout.order); },
     [](const Case& c, Refusal& r) {
         say_cannot(c, r, "rank order " + order_text(c.layout.order),
                    orders_to_write(can(c).rank_orders));
     }},
    {"offload-tier-exists", "off", tier_memory_broken,
     [](const Case& c, Refusal& r) {
         const std::string_view tier = name_of(c.layout.offload_tier);
         r.rule = fmt::format("the cluster states no {} memory of its nodes to offload to", tier);
         r.nearest = {fmt::format("give node.host.{} in the cluster file",
                                  c.layout.offload_tier == OffloadTier::host ? "memory" : "nvme"),
                      "leave off out"};
     }},
};

} // namespace

std::span<const LegalityRule> feature_rules() { return table; }

} // namespace shardplan::sim
