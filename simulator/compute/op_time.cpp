#include "simulator/compute/op_time.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

namespace shardplan::sim {

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    return out;
}

struct ArchTile {
    std::string_view arch;
    TileShape tile;
};
// The shapes that CUTLASS and composable_kernel instantiate for large 16-bit products.
constexpr std::array<ArchTile, 8> arch_tiles = {{
    {"volta", {128, 128, 32, 2}},
    {"turing", {128, 128, 32, 2}},
    {"ampere", {128, 256, 32, 4}},
    {"ada", {128, 128, 32, 4}},
    {"hopper", {128, 256, 64, 4}},
    {"blackwell", {256, 256, 64, 4}},
    {"cdna3", {256, 256, 64, 2}},
    {"cdna2", {256, 128, 32, 2}},
}};

/// FlashAttention 1 and 2 issue matrix instructions per warp; those of Hopper that reach the peak
/// work on four warps. Source: Luo et al. 2024 (arXiv 2402.13499): 62.9 % with the older ones.
double instruction_share(const std::string& arch, AttentionImpl impl) {
    const bool per_warp = impl == AttentionImpl::flash_1 || impl == AttentionImpl::flash_2;
    constexpr double share_on_hopper = 0.629;
    return per_warp && arch.find("hopper") != std::string::npos ? share_on_hopper : 1.0;
}

double rate_or_zero(const Device& device, Dtype dtype) {
    const auto it = device.peak_dense.find(std::string(name_of(dtype)));
    return it == device.peak_dense.end() ? 0.0 : it->second.value();
}

/// Seconds of work of one kind of tile over the whole device.
///
/// A tile takes m n k multiply-adds, and before that the latency of its first loads, which does not
/// depend on how wide the tile is: it is charged as `ahead` slices of k of the full tile.
double tiled_seconds(const ComputeRates& r, double peak, const Gemm& g, bool together,
                     std::int64_t bm, std::int64_t bn) {
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    const std::int64_t tiles = ceil_div(g.m, bm) * ceil_div(g.n, bn);
    const std::int64_t in_flight = std::max<std::int64_t>(1, r.compute_units);
    const std::int64_t waves =
        together ? ceil_div(tiles * g.count, in_flight) : ceil_div(tiles, in_flight) * g.count;
    const double fill = static_cast<double>(r.tile.m * r.tile.n * r.tile.k * r.tile.ahead);
    const double work = 2.0 * (static_cast<double>(bm * bn) * static_cast<double>(g.k) + fill);
    return static_cast<double>(waves) * work * static_cast<double>(in_flight) / peak;
}

} // namespace

TileShape tile_of(const Device& device) {
    const std::string arch = lower(device.arch);
    for (const ArchTile& entry : arch_tiles) {
        if (arch.find(entry.arch) != std::string::npos) return entry.tile;
    }
    return {};
}

double peak_of(const Device& device, Dtype dtype) {
    if (const double own = rate_or_zero(device, dtype); own > 0.0) return own;
    switch (dtype) {
        case Dtype::bf16:
            if (const double r = rate_or_zero(device, Dtype::fp16); r > 0.0) return r;
            break;
        case Dtype::fp16:
            if (const double r = rate_or_zero(device, Dtype::bf16); r > 0.0) return r;
            break;
        case Dtype::fp32:
        case Dtype::tf32:
        case Dtype::fp8:
        case Dtype::int8:
        case Dtype::fp4:
        case Dtype::nf4:
            break;
    }
    return rate_or_zero(device, Dtype::fp32);
}

ComputeRates compute_rates(const Device& device, const StackProfile& stack,
                           const Resolved& resolved) {
    ComputeRates r;
    for (std::size_t i = 0; i < r.peak.size(); ++i) {
        r.peak[i] = peak_of(device, static_cast<Dtype>(i));
    }
    r.gemm_efficiency = stack.time.gemm_efficiency.value;
    r.attention_efficiency = stack.time.attention_efficiency.value;
    r.attention_share = instruction_share(lower(device.arch), resolved.attention);
    const LinkBandwidth& memory = device.memory_bandwidth;
    r.memory_rate = memory.measured ? memory.measured->value()
                                    : memory.physical.value() * stack.time.memory_efficiency.value;
    r.compute_units = device.compute_units;
    r.tile = tile_of(device);
    r.launch = has_feature(stack, Feature::cuda_graphs) ? 0.0 : stack.time.launch.value;
    r.kernels_per_block = stack.time.kernels_per_block.value;
    r.fused_accumulation = stack.tensors.fused_weight_gradient;
    r.gradient_element = bytes_per_element(resolved.gradient);
    return r;
}

PassCost& PassCost::operator+=(const PassCost& o) {
    gemm += o.gemm;
    attention += o.attention;
    elementwise += o.elementwise;
    kernels += o.kernels;
    return *this;
}

PassCost operator*(double share, PassCost c) {
    c.gemm *= share;
    c.attention *= share;
    c.elementwise *= share;
    c.kernels *= share;
    return c;
}

double gemm_seconds(const ComputeRates& r, Dtype dtype, const Gemm& g, bool together, double in,
                    double out) {
    const auto m = static_cast<double>(g.m);
    const auto n = static_cast<double>(g.n);
    const auto k = static_cast<double>(g.k);
    const auto count = static_cast<double>(g.count);
    const double peak = r.peak[static_cast<std::size_t>(dtype)] * r.gemm_efficiency;
    if (peak <= 0.0 || g.m <= 0 || g.n <= 0 || g.k <= 0) return 0.0;
    double compute = 0.0;
    if (r.compute_units > 0) {
        // Libraries pick narrower tiles where wide ones leave units idle.
        compute = tiled_seconds(r, peak, g, together, r.tile.m, r.tile.n);
        compute = std::min(compute, tiled_seconds(r, peak, g, together, r.tile.m, r.tile.n / 2));
        compute =
            std::min(compute, tiled_seconds(r, peak, g, together, r.tile.m / 2, r.tile.n / 2));
    } else {
        compute = 2.0 * m * n * k * count / peak;
    }
    const double bytes = count * ((m * k + k * n) * in + m * n * out);
    const double memory = r.memory_rate > 0.0 ? bytes / r.memory_rate : 0.0;
    return std::max(compute, memory);
}

namespace {

/// Fused attention. Per (query, key) pair the forward does 4 d flops and one exponential; special
/// function units do an exponential in the time the matrix units do about as many flops as a head
/// of 32 has per pair, which is why small heads are slow. Every block of queries pays for one block
/// of keys more than it needs: the first loads, and on the diagonal the half that is masked.
/// Source: Dao 2023 (arXiv 2307.08691), section 3; checked on its published charts.
double attention_seconds(const ComputeRates& r, const Op& op, double flops) {
    const double peak =
        r.peak[static_cast<std::size_t>(op.dtype)] * r.attention_efficiency * r.attention_share;
    if (peak <= 0.0 || flops <= 0.0) return 0.0;
    constexpr double exponential = 4.0 * 32.0;
    constexpr double block = 128.0;
    constexpr double reference_head = 128.0;
    const double head = static_cast<double>(std::max<std::int64_t>(1, op.gemm.k));
    const double queries =
        static_cast<double>(std::max<std::int64_t>(1, op.gemm.m * op.gemm.count));
    // keys that a query sees on average: half of the sequence under a causal mask, fewer in a
    // window
    const double keys = std::max(1.0, op.flops_forward / (4.0 * queries * head));
    // the stated efficiency holds for heads of 128, the flops-per-pair of this head scale it
    const double head_factor =
        (1.0 + exponential / (4.0 * head)) / (1.0 + exponential / (4.0 * reference_head));
    const double edge_factor = 1.0 + block / keys;
    return flops / peak * head_factor * edge_factor;
}

} // namespace

OpCost op_cost(const Op& op, const ComputeRates& r) {
    OpCost cost;
    cost.forward.kernels = op.kernels_forward;
    cost.backward_input.kernels = op.kernels_backward;
    const double memory = r.memory_rate > 0.0 ? 1.0 / r.memory_rate : 0.0;
    if (op.kind == OpKind::attention) {
        const bool fused = op.traffic_forward < 2.0 * static_cast<double>(op.gemm.m) *
                                                    static_cast<double>(op.gemm.n) *
                                                    static_cast<double>(op.gemm.count);
        if (fused) {
            cost.forward.attention =
                std::max(attention_seconds(r, op, op.flops_forward), op.traffic_forward * memory);
            cost.backward_input.attention =
                std::max(attention_seconds(r, op, op.flops_backward), op.traffic_backward * memory);
            return cost;
        }
        // written out: batched products, and softmax as memory traffic
        const double peak = r.peak[static_cast<std::size_t>(op.dtype)] * r.gemm_efficiency;
        if (peak > 0.0) {
            cost.forward.attention = op.flops_forward / peak;
            cost.backward_input.attention = op.flops_backward / peak;
        }
        cost.forward.elementwise = op.traffic_forward * memory;
        cost.backward_input.elementwise = op.traffic_backward * memory;
        return cost;
    }
    cost.forward.elementwise = op.traffic_forward * memory;
    cost.backward_input.elementwise = op.traffic_backward * memory;
    if (op.gemm.m <= 0) return cost;
    const double in = bytes_per_element(op.dtype);
    const double out = std::max(2.0, in);
    const bool together =
        op.kind != OpKind::grouped_linear || op.kernels_forward == 1 || op.gemm.count == 1;
    const Gemm& g = op.gemm;
    cost.forward.gemm = gemm_seconds(r, op.dtype, g, together, in, out);
    cost.backward_input.gemm =
        gemm_seconds(r, op.dtype, {g.m, g.k, g.n, g.count}, together, in, out);
    if (!op.frozen) {
        const double accumulated = r.fused_accumulation ? 2.0 * r.gradient_element : out;
        cost.backward_weight.gemm =
            gemm_seconds(r, op.dtype, {g.k, g.n, g.m, g.count}, together, in, accumulated);
        cost.backward_weight.kernels = op.kernels_forward > 0 ? 1.0 : 0.0;
        cost.backward_input.kernels -= cost.backward_weight.kernels;
    }
    return cost;
}

} // namespace shardplan::sim
