#include <algorithm>

#include "simulator/compute/op_memory_parts.hpp"
#include "simulator/spec/parameters.hpp"

/// Buffers of passes that are written out by hand, as executor/model has them. Source:
/// executor/model/block.cpp, maps.cpp, experts.cpp, context_attention.cpp and ends.cpp. A tensor
/// that waits for the backward pass is kept by the operator that needs it last there; until then it
/// is an output, alive inside the operators from the one that makes it on.
namespace shardplan::sim {

namespace {

/// Bytes of a number while operators work on it.
constexpr double wide = 4.0;

/// Sizes of one rank and micro-batch, in elements.
struct Sizes {
    const OpContext& c;
    double all = 0.0; ///< residual stream of the tensor-parallel group's tokens
    double own = 0.0; ///< of the rank's own
    double q = 0.0;   ///< queries, and what attention gives
    double qkv = 0.0; ///< with keys and values
    double kv = 0.0;  ///< keys and values

    /// Bytes that widen `elements` of what waits in 16 bits, for an operator to read them.
    [[nodiscard]] double read(double elements) const {
        return c.element < wide ? wide * elements : 0.0;
    }
    /// Bytes beside what waits of `elements` that are written: as computed, then once more as they
    /// wait. `reads`: bytes of what they are computed from, which goes first.
    [[nodiscard]] double write(double elements, double reads) const {
        if (c.element == wide) return wide * elements + reads;
        return std::max(wide * elements + reads, (wide + c.element) * elements);
    }
    /// The same of elements that the operator is known to keep.
    [[nodiscard]] double write_kept(double elements, double reads) const {
        return write(elements, reads) - c.element * elements;
    }
    /// What a map with split outputs reads: gathered under sp, widened after it.
    [[nodiscard]] double column_input(double weights) const {
        if (!c.key.sp) return read(own) + read(weights);
        const double gathered = c.element < wide ? c.element * all : 0.0;
        return wide * all + std::max(gathered, read(weights));
    }
    /// The gradient of the output of a map with split inputs: gathered under sp.
    [[nodiscard]] double row_gradient() const { return c.key.sp ? wide * all : 0.0; }
};

Sizes sizes_of(const OpContext& c, const Attention& a) {
    const double tp = c.key.tp;
    Sizes s{c};
    s.all = as_double(c.hidden) * c.tokens;
    s.own = as_double(c.hidden) * c.local_tokens;
    const double head = as_double(a.qk_head_dim) * c.tokens;
    s.q = as_double(a.heads) / tp * head;
    s.kv = 2.0 * std::max(as_double(a.kv_heads) / tp, 1.0) * head;
    s.qkv = s.q + s.kv;
    return s;
}

/// What the two passes of a map need beside gradients that go in and out.
struct MapReads {
    double input = 0.0;  ///< gradient of the input
    double weight = 0.0; ///< gradient of the weights
};
void set_map(const MapReads& reads, double beside, double waiting, Op& op) {
    op.transient_backward = beside + std::max(reads.input, reads.weight);
    op.transient_input = beside + reads.input;
    op.transient_weight = reads.weight;
    op.waiting = waiting;
}

/// A map with split outputs: `dy` elements of the gradient of its output.
void set_column(const Sizes& s, double weights, double dy, Op& op) {
    const double part = s.c.key.sp ? wide * s.all : 0.0; // before ranks add up theirs
    set_map({part + s.read(weights), s.column_input(0.0)}, wide * (dy + s.own), wide * dy, op);
}
/// A map with split inputs: `x` elements of its input.
void set_row(const Sizes& s, double weights, double x, Op& op) {
    const double part = s.c.key.sp ? wide * s.all : 0.0;
    op.transient_forward = s.write(s.own, s.read(x) + s.read(s.own) + part + s.read(weights));
    set_map({s.read(weights), s.read(x)}, s.row_gradient() + wide * x, wide * s.all, op);
}

double scale_and_shift(const Sizes& s, bool rms) {
    return s.read((rms ? 1.0 : 2.0) * as_double(s.c.hidden));
}

/// Input and statistics are kept; the output belongs to the map it goes into.
void set_norm(const Sizes& s, bool rms, Op& op) {
    keep(op, "input", s.c.element * s.own);
    keep(op, "statistics", (rms ? 4.0 : 8.0) * s.c.local_tokens);
    op.transient_forward = s.write(s.own, s.read(s.own) + scale_and_shift(s, rms));
    op.transient_backward = wide * s.own + s.read(s.own) + scale_and_shift(s, true);
    op.transient_input = op.transient_backward;
}

// ---- Attention ---------------------------------------------------------------------------------

bool exchanges_heads(const OpContext& c) {
    return c.key.cp > 1 && c.key.cp_kind == CpKind::all_to_all;
}

/// Buffers of `elements` exchanged between context-parallel ranks: those of several samples are put
/// in order on the way.
double exchange(const OpContext& c, double elements) {
    return wide * elements * (c.key.micro_batch > 1 ? 2.0 : 1.0);
}

void set_core_attention(const Sizes& s, double lse, Op& op) {
    const OpContext& c = s.c;
    const auto drop = c.stack.tensors.selective == SelectivePolicy::attention_output
                          ? Keep::dropped_by_selective
                          : Keep::until_backward;
    keep(op, "query_key_value", c.element * s.qkv);
    keep(op, "log_sum_exp", lse, drop);
    const double both = s.read(s.qkv) + s.read(s.q);
    if (exchanges_heads(c)) {
        keep(op, "exchanged_output", c.element * s.q, drop);
        const double rows = wide * s.qkv;
        op.transient_forward =
            std::max({s.write_kept(s.qkv, exchange(c, s.qkv)) + rows - c.element * s.q,
                      s.read(s.qkv) + s.write_kept(s.q, 0.0),
                      s.read(s.qkv) + s.write(s.q, s.read(s.q) + exchange(c, s.q))});
        op.transient_backward = wide * s.qkv + std::max({wide * 2.0 * s.q + exchange(c, s.q),
                                                         wide * (s.q + s.qkv) + both,
                                                         wide * s.qkv + exchange(c, s.qkv)});
        op.transient_input = op.transient_backward;
        return;
    }
    keep_input(op, "output", c.element * s.q, drop);
    double forward = 0.0;
    double backward = 0.0;
    if (c.key.cp > 1 && c.key.cp_kind == CpKind::ring) {
        forward = 2.0 * wide * s.kv;
        backward = 5.0 * wide * s.kv; // with gradients found, travelling and arriving
    } else if (c.key.cp > 1) {
        forward = wide * c.key.cp * s.kv;
        backward = 2.0 * forward;
    }
    op.transient_forward = s.read(s.qkv) + s.write_kept(s.q, forward);
    op.transient_backward = wide * (s.q + s.qkv) + both + backward;
    op.transient_input = op.transient_backward;
}

void set_attention_op(const Sizes& s, const Attention& a, Op& op) {
    const OpContext& c = s.c;
    const double hidden = as_double(c.hidden);
    const double rows = exchanges_heads(c) ? wide * s.qkv : 0.0;
    const double lse = wide * c.tokens * as_double(a.heads) / c.key.tp;
    if (op.name == "qkv") {
        const double weights = hidden * s.qkv / c.tokens;
        keep_input(op, "input", c.element * s.own);
        op.transient_forward = wide * s.qkv + rows + s.column_input(weights);
        set_column(s, weights, s.qkv, op);
    } else if (op.kind == OpKind::rope) {
        op.transient_forward = s.write(s.qkv, 0.0) + rows;
        op.transient_backward = op.transient_input = wide * s.qkv;
    } else if (op.kind == OpKind::attention) {
        set_core_attention(s, lse, op);
    } else if (op.name == "attention_out") {
        set_row(s, hidden * s.q / c.tokens, s.q, op);
        if (exchanges_heads(c)) {
            const bool drops = c.stack.tensors.selective == SelectivePolicy::attention_output;
            keep_input(op, "input", c.element * s.q,
                       drops ? Keep::dropped_by_selective : Keep::until_backward);
        }
        if (c.stack.tensors.selective == SelectivePolicy::attention_output)
            op.dropped_before = c.element * s.q + lse;
    }
}

// ---- The network -------------------------------------------------------------------------------

void set_dense_op(const Sizes& s, const Ffn& f, Op& op) {
    const OpContext& c = s.c;
    const double width = as_double(f.width) / c.key.tp;
    const double inner = width * c.tokens;
    const double up = (f.gated ? 2.0 : 1.0) * inner;
    const double hidden = as_double(c.hidden);
    if (op.name == "mlp_up") {
        const double weights = hidden * up / c.tokens;
        keep_input(op, "input", c.element * s.own);
        op.transient_forward = s.write(up, s.column_input(weights));
        set_column(s, weights, up, op);
    } else if (op.name == "mlp_activation") {
        keep(op, "up", c.element * up);
        op.transient_forward = s.write(inner, s.read(up));
        op.transient_backward = op.transient_input = wide * (inner + up) + s.read(up);
    } else if (op.name == "mlp_down") {
        keep_input(op, "input", c.element * inner);
        set_row(s, hidden * width, inner, op);
    }
}

/// Rows of routed experts on a rank.
struct Routed {
    double own = 0.0;     ///< residual stream of rows that tensor-parallel ranks share out, or 0
    double choices = 0.0; ///< rows it sends
    double rows = 0.0;    ///< that its experts get
    bool moves = false;   ///< a row may change its rank
};
Routed routed_of(const Sizes& s, const Ffn& f) {
    const OpContext& c = s.c;
    const bool sums = !c.key.sp && c.key.tp > 1 && c.key.etp == c.key.tp;
    const bool shares = !c.key.sp && c.key.tp > 1 && !sums;
    const double load =
        c.resolved.moe.capacity > 0.0 ? c.resolved.moe.capacity : c.resolved.moe.imbalance;
    Routed out;
    out.own = shares ? s.own : 0.0;
    out.choices = as_double(f.top_k) * c.local_tokens / (shares ? c.key.tp : 1.0);
    out.rows = out.choices * (sums ? 1.0 : c.key.etp);
    if (c.key.ep > 1) out.rows *= std::max(1.0, load);
    out.moves = c.key.ep > 1 || (!sums && c.key.etp > 1);
    return out;
}

void set_router(const Sizes& s, const Ffn& f, const Routed& routed, Op& op) {
    const OpContext& c = s.c;
    const double scores = c.local_tokens * as_double(f.experts);
    const double weights = as_double(c.hidden) * as_double(f.experts);
    keep_input(op, "input", c.element * s.own);
    keep(op, "probabilities", wide * scores);
    keep(op, "weights", wide * c.local_tokens * as_double(f.top_k));
    op.transient_forward = wide * scores + s.read(s.own) + s.read(weights);
    const double sent = wide * as_double(c.hidden) * routed.choices;
    set_map({s.read(weights), s.read(s.own)}, wide * (s.own + scores) + sent, wide * scores, op);
    const double shared = sent + wide * (s.own + routed.own); // gradients of shared-out rows
    op.transient_backward = std::max(op.transient_backward, shared);
    op.transient_input = std::max(op.transient_input, shared);
}

/// From the exchange of tokens to their return.
void set_routed_op(const Sizes& s, const Ffn& f, Op& op) {
    const OpContext& c = s.c;
    const Routed r = routed_of(s, f);
    if (op.name == "router") {
        set_router(s, f, r, op);
        return;
    }
    const double hidden = as_double(c.hidden);
    const double width = as_double(f.expert_width) / c.key.etp;
    const double experts = std::max(1.0, as_double(f.experts) / c.key.ep);
    const double rows = hidden * r.rows;
    const double sent = hidden * r.choices;
    const double inner = width * r.rows;
    const double up = (f.gated ? 2.0 : 1.0) * inner;
    const double up_weights = experts * hidden * (f.gated ? 2.0 : 1.0) * width;
    const double down_weights = experts * hidden * width;
    // gradients of sent rows, of the weights of choices, and what has come where they move
    const double gradients = wide * (sent + 3.0 * r.choices + (r.moves ? rows + r.rows : 0.0));
    const double moving = r.moves ? wide * rows : 0.0;
    if (op.kind == OpKind::dispatch) {
        op.transient_forward =
            s.write(rows, s.read(s.own) + moving + (r.moves ? wide * sent : 0.0));
        op.transient_backward = op.transient_input = gradients + moving;
    } else if (op.name == "expert_up") {
        keep_input(op, "input", c.element * rows);
        op.transient_forward = s.write(up, s.read(rows) + s.read(up_weights));
        set_map({s.read(up_weights), s.read(rows)}, gradients + wide * up, wide * up, op);
    } else if (op.name == "expert_activation") {
        keep(op, "up", c.element * up);
        op.transient_forward = s.write(inner, s.read(up));
        op.transient_backward = op.transient_input = gradients + wide * (inner + up) + s.read(up);
    } else if (op.name == "expert_down") {
        keep_input(op, "input", c.element * inner);
        op.transient_forward = wide * (s.own + rows) + s.read(inner) + s.read(down_weights);
        set_map({s.read(down_weights), s.read(inner)}, gradients + wide * inner, wide * rows, op);
        op.transient_backward = std::max(op.transient_backward, gradients + moving);
        op.transient_input = std::max(op.transient_input, gradients + moving);
    } else if (op.kind == OpKind::combine) {
        const double given = wide * (r.moves ? sent : rows);
        op.transient_forward = s.write(s.own, std::max(r.moves ? wide * (2.0 * rows + sent) : 0.0,
                                                       given + s.read(s.own) + wide * r.own));
        op.transient_backward = op.transient_input = gradients;
    }
}

} // namespace

void set_written_block_memory(const OpContext& c, const BlockKind& kind, OpList& ops) {
    const Sizes s = sizes_of(c, kind.attention);
    const bool rms = kind.norms.kind == NormKind::rmsnorm;
    for (Op& op : ops) {
        if (op.kind == OpKind::norm) {
            set_norm(s, rms, op);
        } else if (op.kind == OpKind::residual) {
            op.transient_forward = c.element * s.own;
        } else if (op.kind == OpKind::rope || op.kind == OpKind::attention || op.name == "qkv" ||
                   op.name == "attention_out") {
            set_attention_op(s, kind.attention, op);
        } else if (kind.ffn.kind == FfnKind::moe) {
            set_routed_op(s, kind.ffn, op);
        } else {
            set_dense_op(s, kind.ffn, op);
        }
    }
}

namespace {

/// Norm, product and loss of the head in one, forward and backward: of all that the gradient of
/// what went in remains.
double head_bytes(const Sizes& s, bool norm, bool rms, double table) {
    const OpContext& c = s.c;
    const double rows = std::min(c.tokens, as_double(c.stack.tensors.loss_rows));
    const double columns = table / as_double(c.hidden);
    double bytes = c.element * s.own; // what comes from the last block
    if (norm) {
        bytes += s.read(s.own) + s.read(as_double(c.hidden)) + (rms ? 4.0 : 8.0) * c.local_tokens +
                 c.element * s.own + wide * s.own;
    }
    bytes += c.key.sp ? 2.0 * wide * s.all : s.read(s.own);
    return bytes + s.read(table) + wide * rows * (columns + 3.0);
}

} // namespace

void set_written_end_memory(const OpContext& c, OpList& ops) {
    const Embedding& e = c.model.embedding;
    const Part& trunk = *trunk_of(c.model);
    const Sizes s = sizes_of(c, {});
    const bool rms = trunk.norm_kind == NormKind::rmsnorm;
    const double rows = as_double(
        padded_vocab(e.vocab, std::max<std::int64_t>(1, c.resolved.vocab_multiple), c.key.tp));
    const double table = as_double(c.hidden) * rows / c.key.tp;
    for (Op& op : ops) {
        if (op.kind == OpKind::embedding) {
            const double positions = as_double(c.hidden * e.position_rows);
            const double gathered = c.key.sp ? wide * s.all : 0.0;
            op.transient_forward =
                s.read(table) + s.write(s.own, std::max(gathered, s.read(positions)));
            op.transient_backward = op.transient_input = gathered;
        } else if (op.kind == OpKind::head) {
            keep(op, "gradient", wide * s.own, Keep::until_backward, TensorKind::temporaries);
            op.transient_forward = head_bytes(s, trunk.final_norm, rms, table);
        }
    }
}

} // namespace shardplan::sim
