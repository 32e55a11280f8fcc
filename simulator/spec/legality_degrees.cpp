#include <fmt/format.h>

#include "simulator/spec/legality_rules.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::sim {

namespace {

using Case = LegalityCase;

/// `whole` in `parts` equal pieces; nothing to split is always fine.
bool splits(std::int64_t whole, std::int64_t parts) { return parts > 0 && whole % parts == 0; }

std::int64_t expert_group_ranks(const Layout& l) { return std::int64_t{l.tp} * l.cp * l.dp; }

/// True if `kv` heads cannot be spread over `ranks`: split evenly, or (where the stack replicates)
/// held by several ranks each.
bool kv_broken(const Case& c, std::int64_t kv, std::int64_t ranks) {
    if (splits(kv, ranks)) {
        return false;
    }
    return !c.scenario.stack.capabilities.kv_replication || ranks < kv || ranks % kv != 0;
}

bool any_kv_broken(const Case& c, std::int64_t ranks) {
    return std::any_of(c.facts.kv_heads.begin(), c.facts.kv_heads.end(),
                       [&](std::int64_t kv) { return kv_broken(c, kv, ranks); });
}

void say(Refusal& r, std::string rule, std::vector<double> numbers,
         std::vector<std::string> nearest) {
    r.rule = std::move(rule);
    r.numbers = std::move(numbers);
    r.nearest = std::move(nearest);
}

double num(std::int64_t value) { return static_cast<double>(value); }

/// The commonest refusal: a degree that does not divide something.
void say_divides(const Case& c, Refusal& r, std::int64_t degree, std::int64_t whole,
                 std::string_view of_what) {
    say(r, fmt::format("{} {} does not divide {} {}", r.field, degree, whole, of_what),
        {num(degree), num(whole)}, nearest_degrees(c, r.field));
}

bool devices_broken(const Case& c) {
    const std::int64_t used = rank_count(c.layout);
    return c.scenario.job.constraints.idle_devices ? used > c.facts.devices
                                                   : used != c.facts.devices;
}

void devices_refuse(const Case& c, Refusal& r) {
    const Layout& l = c.layout;
    const std::int64_t replica = std::int64_t{l.tp} * l.cp * l.pp;
    std::vector<std::string> nearest;
    if (replica <= c.facts.devices &&
        (splits(c.facts.devices, replica) || c.scenario.job.constraints.idle_devices)) {
        nearest.push_back(fmt::format("dp{}", c.facts.devices / replica));
    }
    say(r,
        fmt::format("tp{} x cp{} x pp{} x dp{} is {} devices and the cluster has {}", l.tp, l.cp,
                    l.pp, l.dp, rank_count(l), c.facts.devices),
        {num(rank_count(l)), num(c.facts.devices)}, std::move(nearest));
}

void kv_refuse(const Case& c, Refusal& r) {
    const std::int64_t tp = c.layout.tp;
    for (const std::int64_t kv : c.facts.kv_heads) {
        if (!kv_broken(c, kv, tp)) {
            continue;
        }
        const bool can = c.scenario.stack.capabilities.kv_replication;
        std::string rule = fmt::format("tp {} does not divide {} KV heads", tp, kv);
        if (tp > kv && can) {
            rule = fmt::format("tp {} is no multiple of {} KV heads", tp, kv);
        } else if (tp > kv) {
            rule = fmt::format("tp {} exceeds {} KV heads, which {} does not replicate", tp, kv,
                               c.scenario.stack.name);
        }
        say(r, std::move(rule), {num(tp), num(kv)}, nearest_degrees(c, "tp"));
        return;
    }
}

void ulysses_refuse(const Case& c, Refusal& r) {
    const std::int64_t ranks = std::int64_t{c.layout.cp} * c.layout.tp;
    const std::int64_t heads = c.facts.heads;
    if (!splits(heads, ranks)) {
        say(r,
            fmt::format("cp{}:a2a x tp{} is {}, which does not divide {} attention heads",
                        c.layout.cp, c.layout.tp, ranks, heads),
            {num(ranks), num(heads)}, nearest_degrees(c, "cp"));
        return;
    }
    for (const std::int64_t kv : c.facts.kv_heads) {
        if (kv_broken(c, kv, ranks)) {
            say(r,
                fmt::format("cp{}:a2a x tp{} is {}, over which {} KV heads do not spread evenly",
                            c.layout.cp, c.layout.tp, ranks, kv),
                {num(ranks), num(kv)}, nearest_degrees(c, "cp"));
            return;
        }
    }
}

/// Pieces of a sequence under context parallelism: ring and all-gather give each rank one piece
/// from the front and one from the back, so that causal work is even.
std::int64_t sequence_pieces(const Layout& l) {
    if (l.cp == 1) {
        return 1;
    }
    return l.cp_kind == CpKind::all_to_all ? l.cp : 2 * std::int64_t{l.cp};
}

bool is_even(const StageMap& map) {
    return std::all_of(map.layers.begin(), map.layers.end(),
                       [&](std::int64_t n) { return n == map.layers.front(); });
}

/// Slices of the model that a pipeline cuts. DualPipe holds each of its pp slices twice.
std::int64_t slice_count(const Layout& l) {
    return l.schedule == ScheduleKind::dual_pipe ? l.pp : std::int64_t{l.pp} * l.chunks;
}

bool pp_layers_broken(const Case& c) {
    if (c.layout.pp > c.facts.layers) {
        return true;
    }
    return c.layout.stage_map == 0 && !c.scenario.stack.capabilities.uneven_stages &&
           !splits(c.facts.layers, c.layout.pp);
}

bool chunk_layers_broken(const Case& c) {
    const Layout& l = c.layout;
    if (l.chunks == 1 || l.pp > c.facts.layers) {
        return false;
    }
    if (l.stage_map != 0) {
        const StageMap& map = c.tables.stage_map(l.stage_map);
        return std::any_of(map.layers.begin(), map.layers.end(),
                           [&](std::int64_t n) { return n < l.chunks; });
    }
    const std::int64_t slices = slice_count(l);
    return slices > c.facts.layers ||
           (!c.scenario.stack.capabilities.uneven_stages && !splits(c.facts.layers, slices));
}

void chunk_layers_refuse(const Case& c, Refusal& r) {
    say(r,
        fmt::format("pp{} x v{} is {} slices, into which {} layers do not go", c.layout.pp,
                    c.layout.chunks, slice_count(c.layout), c.facts.layers),
        {num(slice_count(c.layout)), num(c.facts.layers)}, nearest_degrees(c, "v"));
}

std::int64_t map_layers(const Case& c) {
    std::int64_t sum = 0;
    for (const std::int64_t n : c.tables.stage_map(c.layout.stage_map).layers) {
        sum += n;
    }
    return sum;
}

/// A stage map with pp entries that add up to the layers, as even as can be.
std::string even_map(std::int64_t layers, std::int64_t pp) {
    std::string text = "stages=";
    const std::int64_t extra = layers % pp;
    const std::int64_t first = (pp - extra) / 2;
    for (std::int64_t i = 0; i < pp; ++i) {
        const bool longer = i >= first && i < first + extra;
        text += fmt::format("{}{}", i == 0 ? "" : "-", layers / pp + (longer ? 1 : 0));
    }
    return text;
}

void stage_map_refuse(const Case& c, Refusal& r) {
    const std::size_t stages = c.tables.stage_map(c.layout.stage_map).layers.size();
    const std::int64_t sum = map_layers(c);
    std::vector<std::string> nearest;
    if (c.layout.pp <= c.facts.layers && c.layout.pp <= 64) {
        nearest.push_back(even_map(c.facts.layers, c.layout.pp));
    }
    std::string rule =
        stages != c.layout.pp
            ? fmt::format("stages names {} stages and pp is {}", stages, c.layout.pp)
            : fmt::format("stages adds up to {} layers and the model has {}", sum, c.facts.layers);
    say(r, std::move(rule),
        stages != c.layout.pp ? std::vector<double>{static_cast<double>(stages), num(c.layout.pp)}
                              : std::vector<double>{num(sum), num(c.facts.layers)},
        std::move(nearest));
}

bool ep_groups_broken(const Case& c) {
    return c.facts.experts > 0 &&
           !splits(expert_group_ranks(c.layout), c.layout.ep * etp_of(c.layout));
}

void ep_groups_refuse(const Case& c, Refusal& r) {
    const Layout& l = c.layout;
    say(r,
        fmt::format("ep{} x etp{} is {}, which does not divide tp{} x cp{} x dp{} = {}", l.ep,
                    etp_of(l), l.ep * etp_of(l), l.tp, l.cp, l.dp, expert_group_ranks(l)),
        {num(l.ep * etp_of(l)), num(expert_group_ranks(l))}, nearest_degrees(c, "ep"));
}

void batch_refuse(const Case& c, Refusal& r) {
    const std::int64_t batch = c.resolved.global_batch;
    const std::int64_t dp = c.layout.dp;
    std::vector<std::string> nearest;
    if (batch > dp) {
        nearest.push_back(fmt::format("a global batch of {}", batch / dp * dp));
    }
    nearest.push_back(fmt::format("a global batch of {}", (batch / dp + 1) * dp));
    say(r, fmt::format("a global batch of {} sequences does not split over dp {}", batch, dp),
        {num(batch), num(dp)}, std::move(nearest));
}

constexpr LegalityRule table[] = {
    {"devices", "dp", devices_broken, devices_refuse},
    {"tp-divides-heads", "tp", [](const Case& c) { return !splits(c.facts.heads, c.layout.tp); },
     [](const Case& c, Refusal& r) {
         say_divides(c, r, c.layout.tp, c.facts.heads, "attention heads");
     }},
    {"tp-spreads-kv-heads", "tp", [](const Case& c) { return any_kv_broken(c, c.layout.tp); },
     kv_refuse},
    {"tp-divides-ffn", "tp", [](const Case& c) { return !splits(c.facts.ffn_width, c.layout.tp); },
     [](const Case& c, Refusal& r) {
         say_divides(c, r, c.layout.tp, c.facts.ffn_width, "elements of the feed-forward width");
     }},
    {"tp-divides-vocabulary", "tp",
     [](const Case& c) {
         return c.resolved.vocab_multiple == 0 && !splits(c.facts.vocab, c.layout.tp);
     },
     [](const Case& c, Refusal& r) {
         say_divides(c, r, c.layout.tp, c.facts.vocab, "rows of the vocabulary");
         r.rule += fmt::format(", and {} does not pad it", c.scenario.stack.name);
     }},
    {"pp-divides-layers", "pp", pp_layers_broken,
     [](const Case& c, Refusal& r) {
         if (c.layout.pp > c.facts.layers) {
             say(r, fmt::format("pp {} exceeds {} layers", c.layout.pp, c.facts.layers),
                 {num(c.layout.pp), num(c.facts.layers)}, nearest_degrees(c, "pp"));
             return;
         }
         say_divides(c, r, c.layout.pp, c.facts.layers, "layers");
         r.rule += fmt::format(", and {} has no uneven stages", c.scenario.stack.name);
     }},
    {"stages-sum-to-layers", "stages",
     [](const Case& c) {
         return c.layout.stage_map != 0 &&
                (c.tables.stage_map(c.layout.stage_map).layers.size() != c.layout.pp ||
                 map_layers(c) != c.facts.layers);
     },
     stage_map_refuse},
    {"uneven-stages", "stages",
     [](const Case& c) {
         return c.layout.stage_map != 0 && !c.scenario.stack.capabilities.uneven_stages &&
                !is_even(c.tables.stage_map(c.layout.stage_map));
     },
     [](const Case& c, Refusal& r) {
         say(r, fmt::format("{} cannot cut uneven stages", c.scenario.stack.name), {},
             {"leave stages out"});
     }},
    {"chunks-divide-layers", "v", chunk_layers_broken, chunk_layers_refuse},
    {"cp-splits-sequence", "cp",
     [](const Case& c) { return !splits(c.resolved.sequence, sequence_pieces(c.layout)); },
     [](const Case& c, Refusal& r) {
         say(r,
             fmt::format("cp {} cuts a sequence into {} pieces, into which {} tokens do not go",
                         c.layout.cp, sequence_pieces(c.layout), c.resolved.sequence),
             {num(c.layout.cp), num(sequence_pieces(c.layout)), num(c.resolved.sequence)},
             nearest_degrees(c, "cp"));
     }},
    {"a2a-divides-heads", "cp",
     [](const Case& c) {
         const std::int64_t ranks = std::int64_t{c.layout.cp} * c.layout.tp;
         return c.layout.cp > 1 && c.layout.cp_kind == CpKind::all_to_all &&
                (!splits(c.facts.heads, ranks) || any_kv_broken(c, ranks));
     },
     ulysses_refuse},
    {"sp-needs-tp", "sp", [](const Case& c) { return c.layout.sp && c.layout.tp == 1; },
     [](const Case&, Refusal& r) {
         say(r, "sp splits over the tp ranks, and tp is 1", {1.0}, {"leave sp out", "tp2,sp"});
     }},
    {"sp-splits-sequence", "sp",
     [](const Case& c) {
         return c.layout.sp && splits(c.resolved.sequence, c.layout.cp) &&
                !splits(c.resolved.sequence / c.layout.cp, c.layout.tp);
     },
     [](const Case& c, Refusal& r) {
         const std::int64_t tokens = c.resolved.sequence / c.layout.cp;
         say(r,
             fmt::format("sp splits {} tokens over tp {}, which does not divide them", tokens,
                         c.layout.tp),
             {num(tokens), num(c.layout.tp)}, {"leave sp out"});
     }},
    {"experts-exist", "ep",
     [](const Case& c) {
         return c.facts.experts == 0 && (c.layout.ep > 1 || etp_of(c.layout) != c.layout.tp);
     },
     [](const Case& c, Refusal& r) {
         say(r, fmt::format("{} has no experts to split", c.scenario.model.name),
             {num(c.layout.ep)}, {"leave ep and etp out"});
     }},
    {"ep-divides-experts", "ep",
     [](const Case& c) { return c.facts.experts > 0 && !splits(c.facts.experts, c.layout.ep); },
     [](const Case& c, Refusal& r) { say_divides(c, r, c.layout.ep, c.facts.experts, "experts"); }},
    {"ep-groups-divide", "ep", ep_groups_broken, ep_groups_refuse},
    {"etp-divides-expert-width", "etp",
     [](const Case& c) {
         return c.facts.experts > 0 && !splits(c.facts.expert_width, etp_of(c.layout));
     },
     [](const Case& c, Refusal& r) {
         say_divides(c, r, etp_of(c.layout), c.facts.expert_width, "elements of an expert's width");
     }},
    {"dp-divides-batch", "job",
     [](const Case& c) { return !splits(c.resolved.global_batch, c.layout.dp); }, batch_refuse},
    {"mb-divides-batch", "mb",
     [](const Case& c) {
         return splits(c.resolved.global_batch, c.layout.dp) &&
                !splits(c.resolved.global_batch / c.layout.dp, c.layout.micro_batch);
     },
     [](const Case& c, Refusal& r) {
         const std::int64_t share = c.resolved.global_batch / c.layout.dp;
         say_divides(c, r, c.layout.micro_batch, share, "sequences of each data-parallel rank");
     }},
    {"shard-group-divides", "zero",
     [](const Case& c) {
         return c.layout.shard_group != 0 &&
                !splits(std::int64_t{c.layout.dp} * c.layout.cp, c.layout.shard_group);
     },
     [](const Case& c, Refusal& r) {
         const std::int64_t ranks = std::int64_t{c.layout.dp} * c.layout.cp;
         std::vector<std::int64_t> divisors;
         for (std::int64_t d = 2; d <= std::min<std::int64_t>(ranks, 65535); ++d) {
             if (splits(ranks, d)) {
                 divisors.push_back(d);
             }
         }
         say(r,
             fmt::format("a shard group of {} does not divide dp{} x cp{} = {}",
                         c.layout.shard_group, c.layout.dp, c.layout.cp, ranks),
             {num(c.layout.shard_group), num(ranks)},
             nearest_of(divisors, c.layout.shard_group,
                        fmt::format("{}:", name_of(c.layout.shard))));
     }},
};

} // namespace

std::span<const LegalityRule> degree_rules() { return table; }

} // namespace shardplan::sim
