#include "executor/run/sweep_cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::exec {

namespace {

/// For orders of magnitude only: what a core of any server does.
constexpr double rough_flops = 2e10;
constexpr double rough_bytes = 5e9;
/// Between arrays of one case: whole cache lines, and no power of two, which would have them fall
/// on the same lines of a cache.
constexpr Index gap = 16 * 37;

/// Hands out parts of a case's memory, one behind the other.
class Places {
public:
    explicit Places(float* memory) : at_(memory) {}
    float* take(Index count) {
        float* const here = at_;
        at_ += place(count);
        return here;
    }
    /// Elements that `take` uses up.
    static Index place(Index count) { return (count + 15) / 16 * 16 + gap; }

private:
    float* at_;
};

Index room(std::initializer_list<Index> counts) {
    Index sum = 0;
    for (const Index count : counts) {
        sum += Places::place(count);
    }
    return sum;
}

double flops_of(const ProductShape& s) {
    return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// --- products --------------------------------------------------------------------------------

std::string_view stage_of(ProductForm form) {
    switch (form) {
        case ProductForm::nt:
            return "fwd";
        case ProductForm::nn:
            return "bwd_grad_act";
        case ProductForm::tn:
            return "bwd_grad_w";
    }
    return "fwd";
}

SweepCase product_case(Kernels<float>& kernels, ProductForm form, ProductShape s,
                       Together together) {
    const bool adds = form == ProductForm::tn;
    SweepCase out;
    out.kind = "gemm";
    out.together = together;
    out.work = flops_of(s) / rough_flops;
    out.floats = room({s.m * s.k, s.k * s.n, s.m * s.n});
    out.run = [&kernels, form, s, adds](float* memory) -> Status {
        Places places(memory);
        const float* a = places.take(s.m * s.k);
        const float* b = places.take(s.k * s.n);
        kernels.product(form, s, a, b, places.take(s.m * s.n), adds);
        return sim::Done{};
    };
    out.describe = [form, s, adds](sim::JsonWriter& json, double seconds) {
        json.member("m", s.m).member("n", s.n).member("k", s.k).member("stage", stage_of(form));
        json.member("out_dtype", "fp32").member("accumulate", adds);
        json.member("tflops", flops_of(s) / seconds * 1e-12);
    };
    return out;
}

/// A square of moderate size, tall and wide ones, short and long inner sizes.
std::vector<ProductShape> grid() {
    return {{64, 64, 64},     {128, 128, 128},   {32, 512, 512},   {256, 256, 256},
            {64, 1024, 512},  {256, 1024, 256},  {256, 256, 1024}, {512, 512, 512},
            {1024, 64, 512},  {1024, 512, 64},   {1024, 768, 256}, {512, 2048, 512},
            {256, 6144, 256}, {1024, 1024, 1024}};
}

// --- attention -------------------------------------------------------------------------------

/// Of a model's block: queries, keys and values of a token side by side.
AttentionShape self_attention(Index sequences, Index length, Index heads, Index kv_heads,
                              Index head_dim) {
    const Index stride = (heads + 2 * kv_heads) * head_dim;
    return {sequences, length, length, heads, kv_heads, head_dim, stride, stride, length, length};
}

struct AttentionNeeds {
    Index qkv = 0, out = 0, lse = 0;
};

AttentionNeeds needs_of(const AttentionShape& s) {
    const Index tokens = s.sequences * s.queries;
    return {tokens * s.query_stride, tokens * s.heads * s.head_dim, tokens * s.heads};
}

SweepCase attention_case(Kernels<float>& kernels, const AttentionShape& s, bool backward) {
    const AttentionNeeds n = needs_of(s);
    const Index q = s.heads * s.head_dim;
    const Index kv = s.kv_heads * s.head_dim;
    const auto pairs =
        static_cast<double>(s.sequences * s.heads * s.queries) * static_cast<double>(s.keys) / 2.0;
    // the convention of kernel records: half of all pairs, 2.5 times as much backward
    const double counted = (backward ? 10.0 : 4.0) * pairs * static_cast<double>(s.head_dim);
    SweepCase out;
    out.kind = backward ? "attention_bwd" : "attention_fwd";
    out.work = counted / rough_flops;
    out.floats = room({n.qkv, n.out, n.lse, n.out, n.qkv});
    out.run = [&kernels, s, n, q, kv, backward](float* memory) -> Status {
        Places places(memory);
        const float* x = places.take(n.qkv);
        float* const o = places.take(n.out);
        float* const lse = places.take(n.lse);
        if (!backward) {
            kernels.attention_forward(s, x, x + q, x + q + kv, o, lse);
            return sim::Done{};
        }
        const float* dout = places.take(n.out);
        float* const dx = places.take(n.qkv);
        kernels.attention_backward(s, x, x + q, x + q + kv, o, lse, dout, dx, dx + q, dx + q + kv);
        return sim::Done{};
    };
    out.describe = [s, counted](sim::JsonWriter& json, double seconds) {
        json.member("batch", s.sequences).member("heads", s.heads).member("kv_heads", s.kv_heads);
        json.member("seq_q", s.queries).member("seq_k", s.keys).member("head_dim", s.head_dim);
        json.member("causal", true).member("flops_counted", "causal-half");
        json.member("tflops", counted / seconds * 1e-12);
    };
    return out;
}

// --- element-wise ----------------------------------------------------------------------------

/// An operator by the bytes a step's list of operators counts for it.
SweepCase plain_case(std::string kind, Index rows, Index width, double bytes, Index floats,
                     std::function<void(Places&)> work) {
    SweepCase out;
    out.kind = std::move(kind);
    out.work = bytes / rough_bytes;
    out.floats = floats;
    out.run = [work = std::move(work)](float* memory) -> Status {
        Places places(memory);
        work(places);
        return sim::Done{};
    };
    out.describe = [rows, width, bytes](sim::JsonWriter& json, double /*seconds*/) {
        json.member("rows", rows).member("width", width).member("bytes", bytes);
    };
    return out;
}

/// Adds cases of one number of rows and columns.
class RowCases {
public:
    RowCases(Kernels<float>& kernels, Index rows, Index width, std::vector<SweepCase>& out)
        : k_(kernels), rows_(rows), width_(width), n_(rows * width), out_(out) {}

    void add_all() {
        add_norms();
        add_activations();
        add_sums();
        add_update();
        add_copy();
    }

private:
    void add(const char* kind, double bytes_per_element, Index arrays,
             std::function<void(Places&)> work) {
        const double bytes = bytes_per_element * static_cast<double>(n_);
        out_.push_back(plain_case(kind, rows_, width_, bytes,
                                  arrays * Places::place(n_) + room({2 * rows_, width_, width_}),
                                  std::move(work)));
    }
    void add_norms() {
        const NormShape s{sim::NormKind::layernorm, rows_, width_, 1e-5};
        add("norm_fwd", 8.0, 2, [this_ = *this, s](Places& p) {
            const float* x = p.take(this_.n_);
            float* const y = p.take(this_.n_);
            float* const stats = p.take(2 * this_.rows_);
            const float* scale = p.take(this_.width_);
            this_.k_.norm_forward(s, x, scale, p.take(this_.width_), y, stats);
        });
        add("norm_bwd", 16.0, 3, [this_ = *this, s](Places& p) {
            const float* x = p.take(this_.n_);
            const float* dy = p.take(this_.n_);
            float* const dx = p.take(this_.n_);
            const float* stats = p.take(2 * this_.rows_);
            float* const dscale = p.take(this_.width_);
            // the scale is read as if it were its gradient: only time counts
            this_.k_.norm_backward(s, dy, x, dscale, stats, dx, dscale, p.take(this_.width_));
        });
    }
    void add_activations() {
        for (const bool gated : {false, true}) {
            const ActivationShape s{gated ? sim::Activation::silu : sim::Activation::gelu, gated,
                                    rows_, width_};
            const Index in = gated ? 2 : 1;
            add(gated ? "gate_fwd" : "activation_fwd", 4.0 * static_cast<double>(in + 1), in + 1,
                [this_ = *this, s, in](Places& p) {
                    const float* x = p.take(in * this_.n_);
                    this_.k_.activation_forward(s, x, p.take(this_.n_));
                });
            add(gated ? "gate_bwd" : "activation_bwd", 4.0 * static_cast<double>(2 * in + 1),
                2 * in + 1, [this_ = *this, s, in](Places& p) {
                    const float* x = p.take(in * this_.n_);
                    const float* dy = p.take(this_.n_);
                    this_.k_.activation_backward(s, x, dy, p.take(in * this_.n_));
                });
        }
    }
    void add_sums() {
        add("residual", 8.0, 2, [this_ = *this](Places& p) {
            const float* x = p.take(this_.n_);
            float* const y = p.take(this_.n_);
            this_.k_.add_rows(this_.rows_, this_.width_, x, p.take(this_.width_), y);
        });
        // the products before it have just read the same gradients
        add("bias_bwd", 4.0, 1, [this_ = *this](Places& p) {
            const float* dy = p.take(this_.n_);
            this_.k_.sum_rows(this_.rows_, this_.width_, dy, p.take(this_.width_));
        });
        out_.back().warm = true;
    }
    /// What an optimizer does with every parameter: 28 bytes in the update, 4 each for the norm of
    /// the gradients and for clearing them.
    void add_update() {
        add("update", 36.0, 4, [this_ = *this](Places& p) {
            float* const g = p.take(this_.n_);
            float* const x = p.take(this_.n_);
            float* const m = p.take(this_.n_);
            float* const v = p.take(this_.n_);
            AdamWStep step;
            step.step = 10;
            const double norm = this_.k_.square_sum(this_.n_, g);
            const auto factor = static_cast<float>(std::min(1.0, norm));
            this_.k_.adamw(step, this_.n_, factor, g, x, m, v);
            // as clearing, but not to zero: moments would decay to numbers too small to be normal
            this_.k_.fill(this_.n_, 1e-3F, g);
        });
    }
    void add_copy() {
        add("copy", 8.0, 2, [this_ = *this](Places& p) {
            const float* x = p.take(this_.n_);
            std::memcpy(p.take(this_.n_), x, static_cast<std::size_t>(this_.n_) * sizeof(float));
        });
    }

    Kernels<float>& k_;
    Index rows_, width_, n_;
    std::vector<SweepCase>& out_;
};

SweepCase rope_case(Kernels<float>& kernels, RotaryShape s) {
    const double bytes = 8.0 * static_cast<double>(s.rows * s.stride);
    return plain_case(
        "rope", s.rows, s.stride, bytes, room({s.rows * s.stride}),
        [&kernels, s](Places& p) { kernels.rotate(s, false, p.take(s.rows * s.stride)); });
}

/// Everything of the loss but the head's products.
SweepCase loss_case(Kernels<float>& kernels, const LossShape& s) {
    const Index logits = s.rows * s.vocab;
    SweepCase out =
        plain_case("loss", s.rows, s.vocab, 16.0 * static_cast<double>(logits),
                   room({logits, s.rows, s.rows, s.rows}), [&kernels, s, logits](Places& p) {
                       float* const x = p.take(logits);
                       float* const top = p.take(s.rows);
                       float* const sums = p.take(s.rows);
                       const std::vector<Token> targets(static_cast<std::size_t>(s.rows), 1);
                       kernels.loss_top(s, x, top);
                       kernels.loss_sums(s, targets, top, x, sums, p.take(s.rows));
                       kernels.loss_gradient(s, targets, 1.0, sums, x);
                   });
    out.warm = true;
    return out;
}

/// A call of an operator that has nothing to do.
SweepCase launch_case(Kernels<float>& kernels) {
    SweepCase out = plain_case("launch", 1, 1, 0.0, room({16, 16}), [&kernels](Places& p) {
        const float* x = p.take(16);
        kernels.add(1, x, p.take(16));
    });
    out.work = 1e-7;
    out.warm = true;
    return out;
}

// --- models ----------------------------------------------------------------------------------

/// Shapes that models bring, each once.
struct Shapes {
    std::set<std::tuple<Index, Index, Index>> products;
    std::vector<AttentionShape> attention;
    std::vector<RotaryShape> rope;
    std::set<std::pair<Index, Index>> rows;
    std::vector<LossShape> losses;
};

bool multiplies(sim::OpKind kind) {
    return kind == sim::OpKind::linear || kind == sim::OpKind::router;
}

void add_block(const SweepModel& model, const sim::BlockKind& kind, Index hidden, Shapes& shapes) {
    sim::Resolved resolved;
    resolved.sequence = model.sequence;
    resolved.compute = resolved.parameter = sim::Dtype::fp32;
    resolved.global_batch = model.micro_batch;
    sim::ShardingKey sharding;
    sharding.micro_batch = model.micro_batch;
    const sim::StackProfile plain;
    for (const sim::Op& op : block_ops(kind, hidden, model.spec, resolved, plain, sharding)) {
        if (multiplies(op.kind)) shapes.products.emplace(op.gemm.m, op.gemm.n, op.gemm.k);
    }
    const sim::Attention& a = kind.attention;
    shapes.attention.push_back(
        self_attention(model.micro_batch, model.sequence, a.heads, a.kv_heads, a.qk_head_dim));
    const Index tokens = model.micro_batch * model.sequence;
    shapes.rows.emplace(tokens, hidden);
    shapes.rows.emplace(tokens, kind.ffn.width);
}

Shapes shapes_of(const SweepOptions& options) {
    Shapes shapes;
    for (const ProductShape& s : grid()) {
        shapes.products.emplace(s.m, s.n, s.k);
    }
    for (const Index head_dim : {32, 64, 128}) {
        for (const Index length : {64, 128, 256, 512, 1024}) {
            shapes.attention.push_back(self_attention(1, length, 4, 4, head_dim));
        }
    }
    for (const Index rows : {128, 512, 2048}) {
        shapes.rope.push_back({rows, std::min<Index>(rows, 256), 8, 64, 64, 512, 10000.0});
        for (const Index width : {256, 1024}) {
            shapes.rows.emplace(rows, width);
        }
    }
    shapes.rows.emplace(4096, 2048);
    for (const Index vocab : {1024, 8192, 32768}) {
        shapes.losses.push_back({256, vocab});
    }
    for (const SweepModel& model : options.models) {
        const sim::Part& trunk = *sim::trunk_of(model.spec);
        for (const sim::BlockKind& kind : model.spec.block_kinds) {
            add_block(model, kind, trunk.hidden, shapes);
        }
        const Index tokens = model.micro_batch * model.sequence;
        shapes.losses.push_back({std::min<Index>(tokens, 256), model.spec.embedding.vocab});
    }
    return shapes;
}

} // namespace

std::vector<SweepCase> kernel_cases(Kernels<float>& kernels, const SweepOptions& options,
                                    bool several_ranks) {
    const Shapes shapes = shapes_of(options);
    std::vector<SweepCase> out;
    out.push_back(launch_case(kernels));
    for (const auto& [m, n, k] : shapes.products) {
        out.push_back(product_case(kernels, ProductForm::nt, {m, n, k}, Together::all));
        out.push_back(product_case(kernels, ProductForm::nn, {m, k, n}, Together::all));
        out.push_back(product_case(kernels, ProductForm::tn, {n, k, m}, Together::all));
    }
    if (several_ranks) {
        for (const ProductShape& s : grid()) {
            out.push_back(product_case(kernels, ProductForm::nt, s, Together::alone));
        }
    }
    for (const AttentionShape& s : shapes.attention) {
        out.push_back(attention_case(kernels, s, false));
        out.push_back(attention_case(kernels, s, true));
    }
    for (const auto& [rows, width] : shapes.rows) {
        if (width > 0) RowCases(kernels, rows, width, out).add_all();
    }
    for (const RotaryShape& s : shapes.rope) {
        out.push_back(rope_case(kernels, s));
    }
    for (const LossShape& s : shapes.losses) {
        out.push_back(loss_case(kernels, s));
    }
    return out;
}

SweepCase probe_case(Kernels<float>& kernels) {
    return product_case(kernels, ProductForm::nt, {128, 128, 128}, Together::all);
}

} // namespace shardplan::exec
