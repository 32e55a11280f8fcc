#include "simulator/spec/layout.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/format.h>

namespace shardplan::sim {

namespace {

/// More data-parallel ranks than any cluster has devices.
constexpr std::int64_t max_dp = 16'777'216;

/// Mixes one field into a running hash (the finalizer of SplitMix64).
void mix(std::uint64_t& hash, std::uint64_t value) {
    hash += value + 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
    hash ^= hash >> 31;
}

std::uint64_t pack(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    return a | (b << 16) | (c << 32) | (d << 48);
}

/// Index of `value` in `entries`, appended if it is new.
template <class Id, class T>
Id intern_in(std::vector<T>& entries, const T& value) {
    const auto it = std::find(entries.begin(), entries.end(), value);
    const auto index = static_cast<std::size_t>(it - entries.begin());
    if (it == entries.end()) {
        entries.push_back(value);
    }
    assert(index <= static_cast<std::size_t>(static_cast<Id>(-1)));
    return static_cast<Id>(index);
}

/// "write pp2 or pp4": the neighbours of the first degree whose change makes the replica divide the
/// devices; empty if no single degree can.
std::string dividing_degrees(const Layout& layout, std::int64_t devices) {
    const std::int64_t replica = std::int64_t{layout.tp} * layout.cp * layout.pp;
    const std::array<std::pair<std::string_view, std::int64_t>, 3> degrees = {
        {{"pp", layout.pp}, {"cp", layout.cp}, {"tp", layout.tp}}};
    for (const auto& [name, degree] : degrees) {
        const std::int64_t room = devices / (replica / degree);
        if (degree == 1 || devices % (replica / degree) != 0 || room % degree == 0) {
            continue;
        }
        std::int64_t below = degree - 1;
        while (room % below != 0) {
            --below;
        }
        std::int64_t above = degree + 1;
        while (above < room && room % above != 0) {
            ++above;
        }
        return above <= room ? fmt::format("write {}{} or {}{}", name, below, name, above)
                             : fmt::format("write {}{}", name, below);
    }
    return {};
}

} // namespace

std::size_t hash_value(const Layout& layout) {
    std::uint64_t hash = 0;
    mix(hash, pack(layout.tp, layout.cp, layout.pp, layout.chunks));
    mix(hash, pack(layout.ep, layout.etp, layout.stack, layout.comm_policy));
    mix(hash, (std::uint64_t{layout.dp} << 32) | layout.micro_batch);
    mix(hash, (std::uint64_t{layout.shard_group} << 32) | layout.stage_map);
    mix(hash, pack(layout.offload_optimizer, layout.offload_parameters, layout.offload_activations,
                   layout.prefetch));
    mix(hash, layout.recompute);
    mix(hash, pack(layout.order,
                   (static_cast<std::uint64_t>(layout.sp) << 1) |
                       static_cast<std::uint64_t>(layout.reshard),
                   (static_cast<std::uint64_t>(layout.cp_kind) << 8) |
                       static_cast<std::uint64_t>(layout.shard),
                   (static_cast<std::uint64_t>(layout.wrap) << 12) |
                       (static_cast<std::uint64_t>(layout.schedule) << 4) |
                       static_cast<std::uint64_t>(layout.offload_tier)));
    return static_cast<std::size_t>(hash);
}

std::uint32_t LayoutTables::intern(const StageMap& map) {
    return intern_in<std::uint32_t>(stage_maps_, map);
}

std::uint32_t LayoutTables::intern(const RecomputePlan& plan) {
    const auto kind = static_cast<std::uint32_t>(plan.kind);
    return plan.kind == Recompute::full ? kind + static_cast<std::uint32_t>(plan.layers_per_stage)
                                        : kind;
}

std::uint16_t LayoutTables::intern_stack(std::string_view name) {
    return intern_in<std::uint16_t>(stacks_, std::string(name));
}

const StageMap& LayoutTables::stage_map(std::uint32_t id) const {
    assert(id < stage_maps_.size());
    return stage_maps_[id];
}

RecomputePlan LayoutTables::recompute(std::uint32_t id) {
    constexpr auto full = static_cast<std::uint32_t>(Recompute::full);
    if (id <= full) {
        return {static_cast<Recompute>(id), 0};
    }
    return {Recompute::full, std::int64_t{id} - full};
}

const std::string& LayoutTables::stack(std::uint16_t id) const {
    assert(id < stacks_.size());
    return stacks_[id];
}

std::array<Dim, 5> order_of(std::uint8_t order) {
    // The factorial number system: digit k picks among the dimensions that are left.
    std::array<Dim, 5> left = {Dim::tp, Dim::cp, Dim::ep, Dim::dp, Dim::pp};
    std::array<Dim, 5> result{};
    std::size_t rest = order % 120U;
    std::size_t weight = 24;
    for (std::size_t place = 0; place < 5; ++place) {
        const std::size_t pick = rest / weight;
        rest %= weight;
        result[place] = left[pick];
        std::copy(left.begin() + static_cast<std::ptrdiff_t>(pick) + 1, left.end(),
                  left.begin() + static_cast<std::ptrdiff_t>(pick));
        if (place < 4) {
            weight /= 4 - place;
        }
    }
    return result;
}

std::string order_text(std::uint8_t order) {
    std::string out;
    for (const Dim dim : order_of(order)) {
        out += (out.empty() ? "" : "-") + std::string(name_of(dim));
    }
    return out;
}

std::optional<std::uint8_t> order_named(std::string_view text) {
    for (std::uint8_t order = 0; order < order_count; ++order) {
        if (order_text(order) == text) {
            return order;
        }
    }
    return std::nullopt;
}

std::int64_t rank_count(const Layout& layout) {
    return std::int64_t{layout.tp} * layout.cp * layout.pp * layout.dp;
}

std::int64_t etp_of(const Layout& layout) { return layout.etp == 0 ? layout.tp : layout.etp; }

std::int64_t shard_ranks(const Layout& layout) {
    return layout.shard_group == 0 ? std::int64_t{layout.dp} * layout.cp : layout.shard_group;
}

ScheduleKind default_schedule(std::int64_t chunks) {
    return chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
}

Layout normal_form(Layout layout) {
    if (layout.etp == layout.tp) {
        layout.etp = 0;
    }
    if (layout.cp == 1) {
        layout.cp_kind = CpKind::ring;
    }
    return layout;
}

Result<Layout> complete_layout(const ParsedLayout& parsed, std::int64_t devices,
                               std::string_view where, bool idle_allowed) {
    Layout layout = parsed.layout;
    const std::int64_t replica = std::int64_t{layout.tp} * layout.cp * layout.pp;
    const std::string product = fmt::format("tp{} x cp{} x pp{}", layout.tp, layout.cp, layout.pp);
    const auto fail = [&](std::string what, std::string hint) {
        return Error{ErrorCode::bad_input, std::string(where), std::move(what), std::move(hint)};
    };
    if (replica > devices) {
        return fail(fmt::format("{} needs {} devices and there are {}", product, replica, devices),
                    fmt::format("lower a degree until the product is at most {}", devices));
    }
    const std::int64_t copies = devices / replica;
    if (parsed.dp_given) {
        const std::int64_t used = replica * layout.dp;
        const bool enough = idle_allowed ? used <= devices : used == devices;
        if (!enough) {
            return fail(fmt::format("{} x dp{} is {} devices and there are {}", product, layout.dp,
                                    used, devices),
                        devices % replica == 0
                            ? fmt::format("write dp{}, or leave dp out", copies)
                            : fmt::format("{} devices make dp{}, {} make dp{}", replica * copies,
                                          copies, replica * (copies + 1), copies + 1));
        }
        return layout;
    }
    if (devices % replica != 0 && !idle_allowed) {
        const std::string near = dividing_degrees(layout, devices);
        return fail(
            fmt::format("{} is {} devices, which does not divide {}", product, replica, devices),
            fmt::format("{}use {} or {} devices", near.empty() ? "" : near + ", or ",
                        replica * copies, replica * (copies + 1)));
    }
    layout.dp = static_cast<std::uint32_t>(std::min(copies, max_dp));
    return layout;
}

} // namespace shardplan::sim
