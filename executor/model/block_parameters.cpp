#include "executor/model/parameter_adder.hpp"

namespace shardplan::exec {

namespace {

void add_plain_attention(Adder& add, const RankShare& share, const sim::Attention& a,
                         const BlockPlace& block, BlockParameters& p) {
    const Index queries = a.heads * a.qk_head_dim;
    const Index keys = a.kv_heads * a.qk_head_dim;
    const Cut qkv{
        {queries, keys, a.kv_heads * a.v_head_dim}, share.tp, {}, key_part(share.tp, a.kv_heads)};
    p.qkv = add.matrix(block.name + "qkv.weight", block.hidden, qkv);
    p.qkv_bias = add.bias(a.qkv_bias, block.name + "qkv.bias", qkv);
    if (a.sinks) p.sinks = add.bias(true, block.name + "sinks", {{a.heads}, share.tp, {}});
    if (a.qk_norm == sim::QkNorm::none) return;
    const bool per_head = a.qk_norm == sim::QkNorm::per_head;
    p.q_norm = add.head_scale(block.name + "q_norm.scale", per_head ? a.qk_head_dim : queries);
    p.k_norm = add.head_scale(block.name + "k_norm.scale", per_head ? a.qk_head_dim : keys);
}

void add_latent_attention(Adder& add, const RankShare& share, const sim::Attention& a,
                          const BlockPlace& block, BlockParameters& p) {
    const auto down = [&](const char* name, Index rows) {
        return add.whole(block.name + name + ".weight", rows, block.hidden, Start::normal, true,
                         true);
    };
    const auto bias = [&](const char* name, Index rows) {
        return add.vector(a.qkv_bias, block.name + name + ".bias", rows, Start::zeros);
    };
    const Cut queries{{a.heads * a.qk_head_dim}, share.tp, {}};
    if (a.q_rank > 0) {
        p.q_down = down("q_down", a.q_rank);
        p.q_down_bias = bias("q_down", a.q_rank);
        p.q_down_norm = add.vector(true, block.name + "q_down_norm.scale", a.q_rank, Start::ones);
    }
    p.q_up =
        add.matrix(block.name + "q_up.weight", a.q_rank > 0 ? a.q_rank : block.hidden, queries);
    p.kv_down = down("kv_down", a.kv_rank + a.rope_dim);
    p.kv_down_bias = bias("kv_down", a.kv_rank + a.rope_dim);
    p.kv_down_norm = add.vector(true, block.name + "kv_down_norm.scale", a.kv_rank, Start::ones);
    p.kv_up = add.matrix(block.name + "kv_up.weight", a.kv_rank,
                         {{a.heads * (a.qk_head_dim - a.rope_dim + a.v_head_dim)}, share.tp, {}});
}

/// The two maps of a network, of which the first one's width is cut.
struct NetworkParameters {
    Index up = 0, down = 0;
    std::optional<Index> up_bias, down_bias;
};

std::vector<Index> up_sections(const sim::Ffn& f, Index width) {
    return f.gated ? std::vector<Index>{width, width} : std::vector<Index>{width};
}

NetworkParameters add_network(Adder& add, const RankShare& share, const sim::Ffn& f, Index width,
                              const std::string& name, const BlockPlace& block) {
    const Cut up{up_sections(f, width), share.tp, {}};
    NetworkParameters p;
    p.up = add.matrix(name + "_up.weight", block.hidden, up);
    p.up_bias = add.bias(f.bias, name + "_up.bias", up);
    p.down = add.matrix(name + "_down.weight", width, {{block.hidden}, {}, share.tp},
                        block.into_residual);
    p.down_bias = add.vector(f.bias, name + "_down.bias", block.hidden, Start::zeros);
    return p;
}

void add_experts(Adder& add, const RankShare& share, const sim::Ffn& f, const BlockPlace& block,
                 BlockParameters& p) {
    if (f.shared_width > 0) {
        const NetworkParameters shared =
            add_network(add, share, f, f.shared_width, block.name + "shared", block);
        p.shared_up = shared.up;
        p.shared_up_bias = shared.up_bias;
        p.shared_down = shared.down;
        p.shared_down_bias = shared.down_bias;
        if (f.shared_gate) {
            p.shared_gate = add.whole(block.name + "shared_gate.weight", 1, block.hidden,
                                      Start::normal, true, true);
        }
    }
    p.router =
        add.whole(block.name + "router.weight", f.experts, block.hidden, Start::normal, true, true);
    p.router_bias = add.vector(f.router_bias, block.name + "router.bias", f.experts, Start::zeros);
    p.up = add.experts(block.name + "expert_up.weight", f.experts, block.hidden,
                       {up_sections(f, f.expert_width), share.etp, {}});
    p.down = add.experts(block.name + "expert_down.weight", f.experts, f.expert_width,
                         {{block.hidden}, {}, share.etp}, block.into_residual);
    if (!f.bias) return;
    p.up_bias = add.expert_bias(block.name + "expert_up.bias", f.experts,
                                {up_sections(f, f.expert_width), share.etp, {}});
    p.down_bias = add.expert_bias(block.name + "expert_down.bias", f.experts, {{block.hidden}});
}

} // namespace

BlockParameters add_block(Adder& add, const RankShare& share, const sim::BlockKind& kind,
                          const BlockPlace& block) {
    const sim::Attention& a = kind.attention;
    const sim::Norms& n = kind.norms;
    BlockParameters p;
    const auto norm = [&](bool present, const char* name, std::optional<Index>& scale,
                          std::optional<Index>& shift) {
        scale = add.vector(present && n.affine, block.name + name + ".scale", block.hidden,
                           Start::ones);
        shift = add.vector(present && n.affine && n.bias, block.name + name + ".shift",
                           block.hidden, Start::zeros);
    };
    norm(n.pre_attention, "attention_norm", p.attention_scale, p.attention_shift);
    if (a.kind == sim::AttentionKind::mla) {
        add_latent_attention(add, share, a, block, p);
    } else {
        add_plain_attention(add, share, a, block, p);
    }
    p.attention_out = add.matrix(block.name + "attention_out.weight", a.heads * a.v_head_dim,
                                 {{block.hidden}, {}, share.tp}, block.into_residual);
    p.attention_out_bias =
        add.vector(a.out_bias, block.name + "attention_out.bias", block.hidden, Start::zeros);
    norm(n.post_attention, "attention_end_norm", p.attention_end_scale, p.attention_end_shift);
    norm(n.pre_ffn, "ffn_norm", p.ffn_scale, p.ffn_shift);
    if (kind.ffn.kind == sim::FfnKind::moe) {
        add_experts(add, share, kind.ffn, block, p);
    } else {
        const NetworkParameters network =
            add_network(add, share, kind.ffn, kind.ffn.width, block.name + "mlp", block);
        p.up = network.up;
        p.up_bias = network.up_bias;
        p.down = network.down;
        p.down_bias = network.down_bias;
    }
    norm(n.post_ffn, "ffn_end_norm", p.ffn_end_scale, p.ffn_end_shift);
    return p;
}

} // namespace shardplan::exec
