#include "simulator/spec/legality.hpp"

#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "simulator/spec/legality_rules.hpp"

namespace shardplan::sim {

namespace {

/// Why no layout of this model can be planned yet; empty if it can.
std::string unplannable(const ModelSpec& model) {
    const Part* trunk = trunk_of(model);
    if (trunk == nullptr) {
        return "the model has no language trunk, and other parts are held but cannot be planned "
               "yet";
    }
    for (const Part& part : model.parts) {
        const bool side_part = part.role == PartRole::vision || part.role == PartRole::projector;
        const bool encoder_decoder =
            part.role == PartRole::encoder || part.role == PartRole::decoder;
        if (encoder_decoder || (side_part && part.trainable)) {
            return fmt::format("the {} part \"{}\" is held but cannot be planned yet",
                               name_of(part.role), part.name);
        }
    }
    for (const Run& run : trunk->runs) {
        const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
        const AttentionKind attention = kind.attention.kind;
        if (attention == AttentionKind::linear || attention == AttentionKind::ssm) {
            return fmt::format(
                "block kind \"{}\" has {} attention, which is held but cannot be "
                "planned yet",
                kind.name, name_of(attention));
        }
        if (!kind.attention.cross_source.empty()) {
            return fmt::format(
                "block kind \"{}\" attends to part \"{}\", which is held but cannot "
                "be planned yet",
                kind.name, kind.attention.cross_source);
        }
    }
    return {};
}

/// Rank orders the stack can express. Their numbers are such that the smaller one keeps more of the
/// default order.
std::vector<std::uint8_t> orders_of(const StackProfile& stack) {
    const std::vector<std::string>& named = stack.capabilities.rank_orders;
    const bool any = contains(named, std::string(any_rank_order));
    std::vector<std::uint8_t> out;
    for (std::uint8_t order = 0; order < order_count; ++order) {
        if (any || contains(named, order_text(order))) {
            out.push_back(order);
        }
    }
    return out;
}

LegalityFacts gather(const Scenario& scenario) {
    LegalityFacts facts;
    facts.orders = orders_of(scenario.stack);
    facts.unplannable = unplannable(scenario.model);
    facts.devices = device_count(scenario.cluster);
    facts.vocab = scenario.model.embedding.vocab;
    facts.host_memory_known = !scenario.cluster.node_groups.empty();
    facts.nvme_known = facts.host_memory_known;
    for (const NodeGroup& group : scenario.cluster.node_groups) {
        facts.host_memory_known = facts.host_memory_known && group.node.host.memory > Bytes(0.0);
        facts.nvme_known = facts.nvme_known && group.node.host.nvme > Bytes(0.0);
    }
    const Part* trunk = trunk_of(scenario.model);
    if (trunk == nullptr) {
        return facts;
    }
    facts.layers = block_count(*trunk);
    for (const Run& run : trunk->runs) {
        const BlockKind& kind = scenario.model.block_kinds[static_cast<std::size_t>(run.kind)];
        const Attention& attention = kind.attention;
        facts.heads = std::gcd(facts.heads, attention.heads);
        const bool fewer_kv = attention.kind != AttentionKind::mla && attention.kv_heads > 0 &&
                              attention.kv_heads < attention.heads;
        if (fewer_kv && !contains(facts.kv_heads, attention.kv_heads)) {
            facts.kv_heads.push_back(attention.kv_heads);
        }
        if (kind.ffn.kind == FfnKind::dense) {
            facts.ffn_width = std::gcd(facts.ffn_width, kind.ffn.width);
        } else if (kind.ffn.kind == FfnKind::moe) {
            facts.ffn_width = std::gcd(facts.ffn_width, kind.ffn.shared_width);
            facts.experts = std::gcd(facts.experts, kind.ffn.experts);
            facts.expert_width = std::gcd(facts.expert_width, kind.ffn.expert_width);
        }
    }
    return facts;
}

/// A degree of the layout by its term.
struct Degree {
    std::string_view field;
    std::int64_t (*get)(const Layout&);
    void (*set)(Layout&, std::int64_t);
    bool of_devices; ///< its values divide the number of devices
};

constexpr std::array<Degree, 8> degrees = {{
    {"tp", [](const Layout& l) { return std::int64_t{l.tp}; },
     [](Layout& l, std::int64_t x) { l.tp = static_cast<std::uint16_t>(x); }, true},
    {"pp", [](const Layout& l) { return std::int64_t{l.pp}; },
     [](Layout& l, std::int64_t x) { l.pp = static_cast<std::uint16_t>(x); }, true},
    {"cp", [](const Layout& l) { return std::int64_t{l.cp}; },
     [](Layout& l, std::int64_t x) { l.cp = static_cast<std::uint16_t>(x); }, true},
    {"dp", [](const Layout& l) { return std::int64_t{l.dp}; },
     [](Layout& l, std::int64_t x) { l.dp = static_cast<std::uint32_t>(x); }, true},
    {"ep", [](const Layout& l) { return std::int64_t{l.ep}; },
     [](Layout& l, std::int64_t x) { l.ep = static_cast<std::uint16_t>(x); }, false},
    {"etp", [](const Layout& l) { return etp_of(l); },
     [](Layout& l, std::int64_t x) { l.etp = static_cast<std::uint16_t>(x); }, false},
    {"mb", [](const Layout& l) { return std::int64_t{l.micro_batch}; },
     [](Layout& l, std::int64_t x) { l.micro_batch = static_cast<std::uint32_t>(x); }, false},
    {"v", [](const Layout& l) { return std::int64_t{l.chunks}; },
     [](Layout& l, std::int64_t x) { l.chunks = static_cast<std::uint16_t>(x); }, false},
}};

} // namespace

std::span<const LegalityRule> legality_rules() {
    static const std::vector<LegalityRule> rules = [] {
        std::vector<LegalityRule> all;
        for (const auto part : {input_rules(), degree_rules(), feature_rules()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }();
    return rules;
}

std::vector<std::string> nearest_degrees(const LegalityCase& c, std::string_view field) {
    const auto* degree = std::find_if(degrees.begin(), degrees.end(),
                                      [&](const Degree& d) { return d.field == field; });
    if (degree == degrees.end()) {
        return {};
    }
    const bool any_count = c.scenario.job.constraints.idle_devices || !degree->of_devices;
    LegalityCase other = c;
    const auto legal = [&](std::int64_t value) {
        if (!any_count && c.facts.devices % value != 0) {
            return false;
        }
        degree->set(other.layout, value);
        const auto rules = legality_rules();
        return std::none_of(rules.begin(), rules.end(), [&](const LegalityRule& rule) {
            return rule.field == field && rule.broken(other);
        });
    };
    const std::int64_t now = degree->get(c.layout);
    // Nothing legal lies beyond the largest thing a degree can divide.
    const std::int64_t limit = std::min<std::int64_t>(
        65535,
        std::max({c.facts.devices, c.facts.layers, c.resolved.global_batch, std::int64_t{1}}));
    std::vector<std::string> out;
    for (std::int64_t value = std::min(now - 1, limit); value >= 1; --value) {
        if (legal(value)) {
            out.push_back(fmt::format("{}{}", field, value));
            break;
        }
    }
    for (std::int64_t value = now + 1; value <= limit; ++value) {
        if (legal(value)) {
            out.push_back(fmt::format("{}{}", field, value));
            break;
        }
    }
    return out;
}

std::vector<std::string> nearest_of(const std::vector<std::int64_t>& allowed, std::int64_t value,
                                    std::string_view field) {
    std::vector<std::int64_t> sorted = allowed;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int64_t a, std::int64_t b) {
        return std::abs(a - value) < std::abs(b - value);
    });
    sorted.resize(std::min<std::size_t>(sorted.size(), 4));
    std::vector<std::string> out;
    for (const std::int64_t near : sorted) {
        out.push_back(fmt::format("{}{}", field, near));
    }
    return out;
}

Legality::Legality(const Scenario& scenario, const Resolved& resolved)
    : scenario_(scenario), resolved_(resolved), facts_(gather(scenario)) {}

std::optional<std::size_t> Legality::first_broken(const Layout& layout,
                                                  const LayoutTables& tables) const {
    const LegalityCase c{scenario_, resolved_, facts_, tables, layout};
    const auto rules = legality_rules();
    for (std::size_t i = 0; i < rules.size(); ++i) {
        if (rules[i].broken(c)) {
            return i;
        }
    }
    return std::nullopt;
}

std::vector<Refusal> Legality::check(const Layout& layout, const LayoutTables& tables) const {
    const LegalityCase c{scenario_, resolved_, facts_, tables, layout};
    std::vector<Refusal> out;
    for (const LegalityRule& rule : legality_rules()) {
        if (rule.broken(c)) {
            Refusal refusal;
            refusal.id = rule.id;
            refusal.field = rule.field;
            rule.refuse(c, refusal);
            out.push_back(std::move(refusal));
        }
    }
    return out;
}

std::int64_t micro_batches(const Resolved& resolved, const Layout& layout) {
    const std::int64_t per_pass = std::int64_t{layout.dp} * layout.micro_batch;
    return per_pass > 0 && resolved.global_batch % per_pass == 0 ? resolved.global_batch / per_pass
                                                                 : 0;
}

std::vector<Refusal> check_layout(const Scenario& scenario, const Resolved& resolved,
                                  const Layout& layout, const LayoutTables& tables) {
    return Legality(scenario, resolved).check(layout, tables);
}

bool is_legal(const Scenario& scenario, const Resolved& resolved, const Layout& layout,
              const LayoutTables& tables) {
    return !Legality(scenario, resolved).first_broken(layout, tables).has_value();
}

} // namespace shardplan::sim
