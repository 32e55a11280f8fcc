#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// What the data-parallel ranks split: nothing; optimizer states (ZeRO-1); and gradients (ZeRO-2);
/// and parameters (ZeRO-3, FSDP).
enum class Shard : std::uint8_t { none, optimizer, optimizer_gradients, all };
template <>
struct EnumNames<Shard> {
    static constexpr std::array<std::string_view, 4> names = {"zero0", "zero1", "zero2", "zero3"};
};
enum class CpKind : std::uint8_t { ring, all_to_all, all_gather };
template <>
struct EnumNames<CpKind> {
    static constexpr std::array<std::string_view, 3> names = {"ring", "a2a", "allgather"};
};
enum class ScheduleKind : std::uint8_t {
    gpipe,
    one_f_one_b,
    interleaved,
    zb_h1,
    zb_h2,
    zb_v,
    dual_pipe
};
template <>
struct EnumNames<ScheduleKind> {
    static constexpr std::array<std::string_view, 7> names = {
        "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"};
};
/// What one FSDP unit wraps.
enum class WrapUnit : std::uint8_t { block, two_blocks, four_blocks, model };
template <>
struct EnumNames<WrapUnit> {
    static constexpr std::array<std::string_view, 4> names = {"block", "2blocks", "4blocks",
                                                              "model"};
};
enum class OffloadTier : std::uint8_t { none, host, nvme };
template <>
struct EnumNames<OffloadTier> {
    static constexpr std::array<std::string_view, 3> names = {"none", "host", "nvme"};
};

/// Dimensions of a layout that rank order permutes. Expert dimensions are cut out of dp x cp x tp.
enum class Dim : std::uint8_t { tp, cp, ep, dp, pp };
template <>
struct EnumNames<Dim> {
    static constexpr std::array<std::string_view, 5> names = {"tp", "cp", "ep", "dp", "pp"};
};

/// Layers of each pipeline stage (all its chunks together), first stage first.
struct StageMap {
    std::vector<std::int64_t> layers;
    friend bool operator==(const StageMap&, const StageMap&) = default;
};

enum class Recompute : std::uint8_t { none, selective, full };
template <>
struct EnumNames<Recompute> {
    static constexpr std::array<std::string_view, 3> names = {"none", "selective", "full"};
};

/// What is recomputed in the backward pass. `layers_per_stage`: with full, only the first k blocks
/// of every stage; 0 = all.
struct RecomputePlan {
    Recompute kind = Recompute::none;
    std::int64_t layers_per_stage = 0;
    friend bool operator==(const RecomputePlan&, const RecomputePlan&) = default;
};

/// Offloaded fractions are stored in thousandths.
inline constexpr std::int64_t offload_scale = 1000;

/// One way to split a training job over the devices: what is chosen. Trivially copyable, small, and
/// the key of every cache. Ids point into LayoutTables.
struct Layout {
    std::uint32_t dp = 1;
    std::uint32_t shard_group = 0; ///< ranks that share a sharded state; 0 = all of dp x cp
    std::uint32_t micro_batch = 1; ///< sequences per rank and pass
    std::uint32_t stage_map = 0;   ///< 0 = even
    std::uint32_t recompute = 0;   ///< 0 none, 1 selective, 2 full, 2 + k: full, k blocks per stage
    std::uint16_t tp = 1;
    std::uint16_t cp = 1;
    std::uint16_t pp = 1;
    std::uint16_t chunks = 1; ///< v: model chunks per stage
    std::uint16_t ep = 1;
    std::uint16_t etp = 0;               ///< tensor split of experts; 0 = tp
    std::uint16_t stack = 0;             ///< 0 = the scenario's
    std::uint16_t comm_policy = 0;       ///< 0 = the stack's
    std::uint16_t offload_optimizer = 0; ///< thousandths of the states held off the device
    std::uint16_t offload_parameters = 0;
    std::uint16_t offload_activations = 0;
    std::uint8_t order =
        0;           ///< index into the permutations of (tp, cp, ep, dp, pp); 0 = tp-cp-ep-dp-pp
    bool sp = false; ///< Megatron sequence parallelism
    CpKind cp_kind = CpKind::ring;
    Shard shard = Shard::none;
    bool reshard = true;       ///< zero3: parameters are released after the forward pass
    std::uint8_t prefetch = 1; ///< units gathered ahead
    WrapUnit wrap = WrapUnit::block;
    ScheduleKind schedule = ScheduleKind::one_f_one_b;
    OffloadTier offload_tier = OffloadTier::none;

    friend bool operator==(const Layout&, const Layout&) = default;
};
static_assert(std::is_trivially_copyable_v<Layout> && sizeof(Layout) <= 64);

/// Hash over all fields.
std::size_t hash_value(const Layout& layout);
struct LayoutHash {
    std::size_t operator()(const Layout& layout) const { return hash_value(layout); }
};

/// What the ids in a Layout stand for; entries are added, never changed.
class LayoutTables {
public:
    /// Id of a stage map; the even one of any length is 0 only if `layers` is empty.
    std::uint32_t intern(const StageMap& map);
    /// Id of a plan, by a fixed rule: no entry is made.
    static std::uint32_t intern(const RecomputePlan& plan);
    /// Id of a stack name; the empty name is 0 and stands for the stack of the scenario.
    std::uint16_t intern_stack(std::string_view name);
    [[nodiscard]] const StageMap& stage_map(std::uint32_t id) const;
    [[nodiscard]] static RecomputePlan recompute(std::uint32_t id);
    [[nodiscard]] const std::string& stack(std::uint16_t id) const;

    friend bool operator==(const LayoutTables&, const LayoutTables&) = default;

private:
    std::vector<StageMap> stage_maps_ = {StageMap{}};
    std::vector<std::string> stacks_ = {std::string()};
};

/// Rank orders: the permutations of five dimensions.
inline constexpr std::uint8_t order_count = 120;
/// The dimensions from the innermost (neighbouring ranks) out.
std::array<Dim, 5> order_of(std::uint8_t order);
/// "tp-cp-ep-dp-pp".
std::string order_text(std::uint8_t order);
/// Index of an order by its text; nothing if it does not name each dimension once.
std::optional<std::uint8_t> order_named(std::string_view text);

/// Ranks of one model replica times dp: tp x cp x pp x dp.
std::int64_t rank_count(const Layout& layout);
/// Expert tensor degree with the default applied.
std::int64_t etp_of(const Layout& layout);
/// Ranks that share a sharded parameter state: shard_group, or dp x cp.
std::int64_t shard_ranks(const Layout& layout);

/// The schedule of a layout that names none: interleaved with chunks, else 1F1B.
ScheduleKind default_schedule(std::int64_t chunks);

/// The same layout with one spelling for one meaning: etp 0 where it equals tp, the kind of cp ring
/// where cp is 1. Text round trips and the search deal in this form.
Layout normal_form(Layout layout);

/// The canonical text form. dp and the micro-batch are always said, other degrees of 1 and defaults
/// are left out: `tp8,sp,pp4,v2,dp16,cp2:ring,ep8,etp1,mb1,zero1,rc=full:12,off=opt:1.0:host,`
/// `sched=zb-h1,order=tp-cp-ep-dp-pp,stages=11-12-12-11`, with `zero3:8,noreshard,prefetch2,`
/// `wrap=2blocks` after zero1's place, and `stack=NAME` last. Parsing the text of a normal form
/// against the same tables gives the same Layout back.
std::string to_text(const Layout& layout, const LayoutTables& tables);

/// A text form read without knowing the cluster: `dp_given` false = dp was left out.
struct ParsedLayout {
    Layout layout;
    bool dp_given = false;
    bool sched_given = false;
    friend bool operator==(const ParsedLayout&, const ParsedLayout&) = default;
};

/// Reads the text form in any order of terms, separated by commas or blanks, in any letter case;
/// `tp=8` is tp8, `fsdp` is zero3, `hsdp8` is zero3:8, `ddp` is zero0. The result is a normal form.
/// Errors name the term, what is wrong, and the nearest legal spelling.
Result<ParsedLayout> parse_layout(std::string_view text, std::string_view where,
                                  LayoutTables& tables);

/// Sets dp from the number of devices where it was left out; refuses a contradiction, naming both
/// figures. `idle_allowed`: a given dp may leave devices unused.
Result<Layout> complete_layout(const ParsedLayout& parsed, std::int64_t devices,
                               std::string_view where, bool idle_allowed = false);

} // namespace shardplan::sim
