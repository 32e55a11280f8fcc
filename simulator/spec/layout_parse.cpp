#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "simulator/spec/layout_reader.hpp"
#include "simulator/spec/layout_terms.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim {

using namespace layout_reader;

namespace {

constexpr std::int64_t max_degree = 65535;
constexpr std::int64_t max_dp = 16'777'216;
constexpr std::int64_t max_ranks = std::int64_t{1} << 32;
constexpr std::size_t max_text = 65536;
constexpr std::size_t max_stack_name = 64;
constexpr std::string_view example = "tp8,sp,pp4,dp16,mb1,zero1";

Status no_number(const Reader& r, std::string_view name, std::string_view rest) {
    if (rest.empty()) {
        return Done{};
    }
    return r.error(fmt::format("{} takes no value", name), fmt::format("write {}", name));
}

Status read_cp(Reader& r, std::string_view rest) {
    const std::size_t colon = rest.find(':');
    if (colon != std::string_view::npos) {
        if (Status kind = read_choice(r, "kind of context parallelism", rest.substr(colon + 1),
                                      r.out.layout.cp_kind);
            !kind) {
            return kind;
        }
    }
    return read_degree(r, "cp", rest.substr(0, colon), max_degree, r.out.layout.cp);
}

Status read_shard(Reader& r, Shard shard, std::string_view group) {
    if (Status taken = r.take("zero"); !taken) {
        return taken;
    }
    r.out.layout.shard = shard;
    if (group.empty()) {
        return Done{};
    }
    const Result<std::int64_t> ranks = read_count(r, "shard group ", group, max_dp);
    if (!ranks) {
        return ranks.error();
    }
    if (shard == Shard::none) {
        return r.error("zero0 splits nothing, so it has no shard group",
                       "write zero0, or zero3:8 for shards over 8 ranks");
    }
    if (*ranks == 1) {
        return r.error("a shard group of 1 splits nothing", "write zero0");
    }
    r.out.layout.shard_group = static_cast<std::uint32_t>(*ranks);
    return Done{};
}

Status read_zero(Reader& r, std::string_view rest) {
    const std::size_t colon = rest.find(':');
    const std::string_view level = rest.substr(0, colon);
    if (level.size() != 1 || level[0] < '0' || level[0] > '3') {
        return r.error(fmt::format("there is no zero{}", level), "zero0, zero1, zero2 or zero3");
    }
    if (colon != std::string_view::npos && colon + 1 == rest.size()) {
        return r.error("the shard group is missing after the colon", "write zero3:8, or zero3");
    }
    return read_shard(
        r, static_cast<Shard>(level[0] - '0'),
        colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1));
}

Status read_hsdp(Reader& r, std::string_view rest) {
    if (rest.empty()) {
        return r.error("hsdp needs the ranks that share one copy",
                       "write hsdp8 (or zero3:8) for shards inside groups of 8");
    }
    return read_shard(r, Shard::all, rest);
}

Status read_recompute(Reader& r, std::string_view rest) {
    if (Status taken = r.take("rc"); !taken) {
        return taken;
    }
    const std::size_t colon = rest.find(':');
    RecomputePlan plan;
    if (Status kind = read_choice(r, "kind of recomputation", rest.substr(0, colon), plan.kind);
        !kind) {
        return kind;
    }
    if (colon != std::string_view::npos) {
        if (plan.kind != Recompute::full) {
            return r.error("only full recomputation takes a number of blocks",
                           fmt::format("write rc={} or rc=full:12", name_of(plan.kind)));
        }
        const Result<std::int64_t> blocks =
            read_count(r, "rc=full:", rest.substr(colon + 1), max_degree);
        if (!blocks) {
            return blocks.error();
        }
        plan.layers_per_stage = *blocks;
    }
    r.out.layout.recompute = r.tables.intern(plan);
    return Done{};
}

Status read_offload(Reader& r, std::string_view rest) {
    const std::vector<std::string_view> parts = split(rest, ':');
    if (parts.size() != 3) {
        return r.error("offload is said as what, fraction and tier", "write off=opt:1.0:host");
    }
    struct What {
        std::string_view name;
        std::string_view slot;
        std::uint16_t Layout::*fraction;
    };
    static constexpr std::array<What, 3> whats = {{
        {"opt", "off=opt", &Layout::offload_optimizer},
        {"par", "off=par", &Layout::offload_parameters},
        {"act", "off=act", &Layout::offload_activations},
    }};
    const auto* what =
        std::find_if(whats.begin(), whats.end(), [&](const What& w) { return w.name == parts[0]; });
    if (what == whats.end()) {
        return r.error(fmt::format("{} cannot be offloaded", in_quotes(parts[0])),
                       "opt (optimizer states), par (parameters) or act (activations)");
    }
    if (Status taken = r.take(what->slot); !taken) {
        return taken;
    }
    const Result<std::int64_t> fraction = read_fraction(r, parts[1]);
    if (!fraction) {
        return fraction.error();
    }
    OffloadTier tier = OffloadTier::none;
    if (Status read = read_choice(r, "tier", parts[2], tier); !read) {
        return read;
    }
    if (tier == OffloadTier::none) {
        return r.error("offload to none does nothing", "host or nvme, or leave the term out");
    }
    Layout& layout = r.out.layout;
    if (layout.offload_tier != OffloadTier::none && layout.offload_tier != tier) {
        return r.error(
            fmt::format("an earlier term offloads to {}, and a layout has one tier",
                        name_of(layout.offload_tier)),
            fmt::format("write {}:{}:{}", what->slot, parts[1], name_of(layout.offload_tier)));
    }
    layout.offload_tier = tier;
    layout.*(what->fraction) = static_cast<std::uint16_t>(*fraction);
    return Done{};
}

Status read_order(Reader& r, std::string_view rest) {
    if (Status taken = r.take("order"); !taken) {
        return taken;
    }
    const std::optional<std::uint8_t> order = order_named(rest);
    if (!order) {
        return r.error("the order names each of tp, cp, ep, dp, pp once, neighbours first",
                       "write order=tp-cp-ep-dp-pp, or leave it out");
    }
    r.out.layout.order = *order;
    return Done{};
}

Status read_stages(Reader& r, std::string_view rest) {
    if (Status taken = r.take("stages"); !taken) {
        return taken;
    }
    StageMap map;
    for (const std::string_view part : split(rest, '-')) {
        const Result<std::int64_t> layers = read_count(r, "layers of a stage ", part, 1'000'000);
        if (!layers) {
            return Error{ErrorCode::bad_input, layers.error().where, layers.error().what,
                         "write the layers of each stage, as in stages=11-12-12-11"};
        }
        map.layers.push_back(*layers);
    }
    if (map.layers.size() > static_cast<std::size_t>(max_degree)) {
        return r.error("too many stages", fmt::format("at most {} stages", max_degree));
    }
    r.out.layout.stage_map = r.tables.intern(map);
    return Done{};
}

Status read_stack(Reader& r, std::string_view rest) {
    if (Status taken = r.take("stack"); !taken) {
        return taken;
    }
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    };
    if (rest.empty() || rest.size() > max_stack_name ||
        !std::all_of(rest.begin(), rest.end(), allowed)) {
        return r.error("a stack name is letters, digits, '-', '_' and '.'",
                       "write stack=megatron-core, or leave it out");
    }
    r.out.layout.stack = r.tables.intern_stack(rest);
    return Done{};
}

Status read_schedule(Reader& r, std::string_view rest) {
    if (Status taken = r.take("sched"); !taken) {
        return taken;
    }
    r.out.sched_given = true;
    return read_choice(r, "schedule", rest, r.out.layout.schedule);
}

/// A slot that is a word without a value.
Status read_word(Reader& r, std::string_view slot, std::string_view name, std::string_view rest) {
    if (Status plain = no_number(r, name, rest); !plain) {
        return plain;
    }
    return r.take(slot);
}

/// One term of the text form: its names, how it is read, and how it is written.
struct Term {
    std::array<std::string_view, 3> names; ///< the first is the canonical one
    std::string_view spelling;             ///< for hints
    Status (*read)(Reader&, std::string_view rest);
};

constexpr std::array<Term, 22> terms = {{
    {{"tp"},
     "tp8",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "tp", t, max_degree, r.out.layout.tp);
     }},
    {{"sp"},
     "sp",
     [](Reader& r, std::string_view t) {
         r.out.layout.sp = true;
         return read_word(r, "sp", "sp", t);
     }},
    {{"pp"},
     "pp4",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "pp", t, max_degree, r.out.layout.pp);
     }},
    {{"v", "vpp", "vp"},
     "v2",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "v", t, max_degree, r.out.layout.chunks);
     }},
    {{"dp"},
     "dp16",
     [](Reader& r, std::string_view t) {
         r.out.dp_given = true;
         return read_degree(r, "dp", t, max_dp, r.out.layout.dp);
     }},
    {{"cp"}, "cp2:ring", read_cp},
    {{"ep"},
     "ep8",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "ep", t, max_degree, r.out.layout.ep);
     }},
    {{"etp"},
     "etp1",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "etp", t, max_degree, r.out.layout.etp);
     }},
    {{"mb", "mbs"},
     "mb1",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "mb", t, max_dp, r.out.layout.micro_batch);
     }},
    {{"zero"}, "zero1", read_zero},
    {{"fsdp"},
     "fsdp",
     [](Reader& r, std::string_view t) {
         const Status plain = no_number(r, "fsdp", t);
         return plain ? read_shard(r, Shard::all, {}) : plain;
     }},
    {{"hsdp"}, "hsdp8", read_hsdp},
    {{"ddp"},
     "ddp",
     [](Reader& r, std::string_view t) {
         const Status plain = no_number(r, "ddp", t);
         return plain ? read_shard(r, Shard::none, {}) : plain;
     }},
    {{"noreshard"},
     "noreshard",
     [](Reader& r, std::string_view t) {
         r.out.layout.reshard = false;
         return read_word(r, "noreshard", "noreshard", t);
     }},
    {{"prefetch"},
     "prefetch2",
     [](Reader& r, std::string_view t) {
         return read_degree(r, "prefetch", t, 255, r.out.layout.prefetch);
     }},
    {{"wrap"},
     "wrap=2blocks",
     [](Reader& r, std::string_view t) {
         const Status taken = r.take("wrap");
         return taken ? read_choice(r, "wrap unit", t, r.out.layout.wrap) : taken;
     }},
    {{"rc", "recompute"}, "rc=full:12", read_recompute},
    {{"off", "offload"}, "off=opt:1.0:host", read_offload},
    {{"sched", "schedule"}, "sched=1f1b", read_schedule},
    {{"order"}, "order=tp-cp-ep-dp-pp", read_order},
    {{"stages"}, "stages=11-12-12-11", read_stages},
    {{"stack"}, "stack=megatron-core", read_stack},
}};

/// The letters that a term begins with.
std::string_view name_in(std::string_view term) {
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    const auto* const end = std::find_if_not(term.begin(), term.end(), is_letter);
    return term.substr(0, static_cast<std::size_t>(end - term.begin()));
}

const Term* find_term(std::string_view name) {
    for (const Term& term : terms) {
        for (const std::string_view known : term.names) {
            if (!known.empty() && known == name) {
                return &term;
            }
        }
    }
    return nullptr;
}

Status read_term(Reader& r, std::string_view term) {
    r.term = term;
    const std::string_view name = name_in(term);
    std::string_view rest = term.substr(name.size());
    const Term* known = find_term(name);
    if (known == nullptr) {
        std::vector<std::string_view> spellings;
        for (const Term& t : terms) {
            spellings.push_back(t.spelling);
        }
        return Error{ErrorCode::bad_input, std::string(r.where),
                     fmt::format("{} is no term of a layout", in_quotes(term)),
                     nearest_hint(term, std::span<const std::string_view>(spellings))};
    }
    if (!rest.empty() && rest.front() == '=') {
        rest.remove_prefix(1);
        if (rest.empty()) {
            return r.error("nothing stands after '='", fmt::format("write {}", known->spelling));
        }
    }
    return known->read(r, rest);
}

/// What no single term can see.
Status check_whole(const Reader& r) {
    const Layout& layout = r.out.layout;
    const auto fail = [&](std::string what, std::string hint) {
        return Error{ErrorCode::bad_input, std::string(r.where), std::move(what), std::move(hint)};
    };
    std::int64_t ranks = 1;
    for (const std::int64_t degree : {std::int64_t{layout.tp}, std::int64_t{layout.cp},
                                      std::int64_t{layout.pp}, std::int64_t{layout.dp}}) {
        ranks *= degree; // at most 2^32 x 2^24 before the test below
        if (ranks > max_ranks) {
            return fail(fmt::format("tp{} x cp{} x pp{} x dp{} is more than {} ranks", layout.tp,
                                    layout.cp, layout.pp, layout.dp, max_ranks),
                        "degrees multiply to the number of devices");
        }
    }
    const std::size_t stages = r.tables.stage_map(layout.stage_map).layers.size();
    if (layout.stage_map != 0 && stages != layout.pp) {
        return fail(fmt::format("stages names {} stages and pp is {}", stages, layout.pp),
                    fmt::format("write pp{}, or {} numbers after stages=", stages, layout.pp));
    }
    return Done{};
}

} // namespace

Result<ParsedLayout> parse_layout(std::string_view text, std::string_view where,
                                  LayoutTables& tables) {
    const std::string source = lower_case(text.substr(0, max_text));
    Reader r{.out = {}, .tables = tables, .where = where, .term = {}};
    const auto fail = [&](std::string_view what) {
        return Error{ErrorCode::bad_input, std::string(where), std::string(what),
                     fmt::format("write terms with commas between them, as in {}", example)};
    };
    if (text.size() > max_text) {
        return fail(fmt::format("a layout is at most {} characters long", max_text));
    }
    const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
    if (std::all_of(source.begin(), source.end(), is_blank)) {
        return fail("the layout is empty");
    }
    for (const std::string_view part : split(source, ',')) {
        bool any = false;
        std::size_t at = 0;
        while (at < part.size()) {
            if (is_blank(part[at])) {
                ++at;
                continue;
            }
            std::size_t end = at;
            while (end < part.size() && !is_blank(part[end])) {
                ++end;
            }
            if (Status read = read_term(r, part.substr(at, end - at)); !read) {
                return read.error();
            }
            any = true;
            at = end;
        }
        if (!any) {
            return fail("nothing stands between two commas, or beside one at the end");
        }
    }
    if (!r.out.sched_given) {
        r.out.layout.schedule = default_schedule(r.out.layout.chunks);
    }
    if (Status whole = check_whole(r); !whole) {
        return whole.error();
    }
    r.out.layout = normal_form(r.out.layout);
    return r.out;
}

Result<std::string> slot_of_term(std::string_view term, std::string_view where) {
    const std::string text = lower_case(term);
    LayoutTables tables;
    Reader r{.out = {}, .tables = tables, .where = where, .term = {}};
    if (Status read = read_term(r, text); !read) {
        return read.error();
    }
    return std::string(r.seen.front());
}

bool begins_a_term(std::string_view text) {
    const std::string source = lower_case(text.substr(0, max_text));
    const std::string_view name = name_in(source);
    if (find_term(name) == nullptr) {
        return false;
    }
    const char next = name.size() < source.size() ? source[name.size()] : '=';
    return next == '=' || next == ':' || (next >= '0' && next <= '9');
}

Result<std::string> without_slot(std::string_view layout, std::string_view slot,
                                 std::string_view where) {
    std::string out;
    for (const std::string_view term : split(layout, ',')) {
        const Result<std::string> own = slot_of_term(term, where);
        if (!own) {
            return own.error();
        }
        if (*own == slot) {
            continue;
        }
        out += out.empty() ? "" : ",";
        out += term;
    }
    return out;
}

} // namespace shardplan::sim
