#include "executor/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

constexpr double deviation = 0.02;

/// Appends parameters in order.
class Adder {
public:
    explicit Adder(ParameterTable& table) : table_(table) {}

    Index matrix(std::string name, Index rows, Index columns, double scale = 1.0) {
        return add({std::move(name), rows, columns, 0, Start::normal, deviation * scale, true});
    }
    Index table(std::string name, Index rows, Index columns, bool decays) {
        return add({std::move(name), rows, columns, 0, Start::normal, deviation, decays});
    }
    std::optional<Index> vector(bool present, std::string name, Index count, Start start) {
        if (!present) return std::nullopt;
        return add({std::move(name), 1, count, 0, start, 0.0, false});
    }

private:
    Index add(Parameter parameter) {
        parameter.offset = table_.count;
        table_.count += parameter.count();
        table_.parameters.push_back(std::move(parameter));
        return static_cast<Index>(table_.parameters.size()) - 1;
    }

    ParameterTable& table_;
};

BlockParameters add_block(Adder& add, const sim::BlockKind& kind, Index hidden,
                          const std::string& block, double into_residual) {
    const sim::Attention& a = kind.attention;
    const sim::Ffn& f = kind.ffn;
    const sim::Norms& n = kind.norms;
    const Index queries = a.heads * a.qk_head_dim;
    const Index qkv = queries + 2 * a.kv_heads * a.qk_head_dim;
    const Index factors = f.gated ? 2 : 1;
    BlockParameters p;
    p.attention_scale = add.vector(n.affine, block + "attention_norm.scale", hidden, Start::ones);
    p.attention_shift =
        add.vector(n.affine && n.bias, block + "attention_norm.shift", hidden, Start::zeros);
    p.qkv = add.matrix(block + "qkv.weight", qkv, hidden);
    p.qkv_bias = add.vector(a.qkv_bias, block + "qkv.bias", qkv, Start::zeros);
    p.attention_out = add.matrix(block + "attention_out.weight", hidden, queries, into_residual);
    p.attention_out_bias =
        add.vector(a.out_bias, block + "attention_out.bias", hidden, Start::zeros);
    p.ffn_scale = add.vector(n.affine, block + "ffn_norm.scale", hidden, Start::ones);
    p.ffn_shift = add.vector(n.affine && n.bias, block + "ffn_norm.shift", hidden, Start::zeros);
    if (f.kind == sim::FfnKind::moe) {
        p.router = add.matrix(block + "router.weight", f.experts, hidden);
        p.up = add.matrix(block + "expert_up.weight", f.experts * factors * f.expert_width, hidden);
        p.down = add.matrix(block + "expert_down.weight", f.experts * hidden, f.expert_width,
                            into_residual);
        return p;
    }
    p.up = add.matrix(block + "mlp_up.weight", factors * f.width, hidden);
    p.up_bias = add.vector(f.bias, block + "mlp_up.bias", factors * f.width, Start::zeros);
    p.down = add.matrix(block + "mlp_down.weight", hidden, f.width, into_residual);
    p.down_bias = add.vector(f.bias, block + "mlp_down.bias", hidden, Start::zeros);
    return p;
}

/// Of the standard normal distribution, by Box and Muller.
double normal(std::size_t key, std::uint64_t i) {
    constexpr double unit = 0x1.0p-53;
    const auto uniform = [&](std::uint64_t n) {
        return (static_cast<double>(sim::hash_mix(key, n) >> 11U) + 0.5) * unit;
    };
    return std::sqrt(-2.0 * std::log(uniform(2 * i))) *
           std::cos(2.0 * std::numbers::pi * uniform(2 * i + 1));
}

std::size_t key_of(std::uint64_t seed, const std::string& name) {
    std::size_t key = sim::hash_mix(0, seed);
    for (const char c : name) {
        key = sim::hash_mix(key, static_cast<std::uint8_t>(c));
    }
    return key;
}

} // namespace

ParameterTable parameter_table(const sim::ModelSpec& model) {
    const sim::Part& trunk = *sim::trunk_of(model);
    const sim::Embedding& e = model.embedding;
    const Index hidden = trunk.hidden;
    const Index blocks = sim::block_count(trunk);
    const double into_residual =
        1.0 / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, blocks)));
    ParameterTable table;
    Adder add(table);
    table.token_table = add.table("token_table", e.vocab, hidden, true);
    if (e.positions == sim::Positions::learned) {
        table.position_table = add.table("position_table", e.position_rows, hidden, false);
    }
    for (Index i = 0; i < blocks; ++i) {
        const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
        table.blocks.push_back(add_block(add, model.block_kinds[kind], hidden,
                                         "blocks." + std::to_string(i) + ".", into_residual));
    }
    const bool scaled = trunk.final_norm && trunk.norm_affine;
    table.final_scale = add.vector(scaled, "final_norm.scale", hidden, Start::ones);
    table.final_shift =
        add.vector(scaled && trunk.norm_bias, "final_norm.shift", hidden, Start::zeros);
    table.head = e.tied ? table.token_table : add.table("head.weight", e.vocab, hidden, true);
    return table;
}

template <class Scalar>
Parameters<Scalar>::Parameters(ParameterTable table, Storage storage)
    : table_(std::move(table)), values_(table_.count), gradients_(table_.count) {
    if (storage == Storage::bf16) packed_.reset(table_.count);
}

template <class Scalar>
void Parameters<Scalar>::changed() {
    if (!packed_.empty()) pack(values_.data(), table_.count, packed_.data());
}

template <class Scalar>
void Parameters<Scalar>::clear_gradients() {
    std::fill_n(gradients_.data(), table_.count, Scalar(0));
}

template <class Scalar>
void Parameters<Scalar>::start(std::uint64_t seed) {
    for (const Parameter& p : table_.parameters) {
        Scalar* at = values_.data() + p.offset;
        if (p.start != Start::normal) {
            std::fill_n(at, p.count(), Scalar(p.start == Start::ones ? 1 : 0));
            continue;
        }
        const std::size_t key = key_of(seed, p.name);
        for (Index i = 0; i < p.count(); ++i) {
            at[i] = static_cast<Scalar>(p.deviation * normal(key, static_cast<std::uint64_t>(i)));
        }
    }
    changed();
}

template <class Scalar>
Reading<Scalar> Parameters<Scalar>::read(Arena& arena, Index i) const {
    const Parameter& p = table_[i];
    if (packed_.empty()) return Reading<Scalar>(values_.data() + p.offset);
    return {arena, packed_.data() + p.offset, p.count()};
}

template class Parameters<float>;
template class Parameters<double>;

} // namespace shardplan::exec
