#pragma once

#include <cstdint>
#include <span>

#include "simulator/spec/model.hpp"

/// The operators of a training step, behind which a back end hides. All matrices are row-major and
/// without gaps unless a stride is named. Gradients of parameters are added to what is there.
namespace shardplan::exec {

using Index = std::int64_t;
using Token = std::int32_t;

/// Which operand of a product is transposed. Sizes: C is m x n, the inner length is k.
enum class ProductForm : std::uint8_t {
    nn, ///< A m x k, B k x n: gradient of a linear map's input
    nt, ///< A m x k, B n x k: a linear map with weights out x in
    tn, ///< A k x m, B k x n: gradient of the weights
};

struct ProductShape {
    Index m = 0, n = 0, k = 0;

    friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

struct NormShape {
    sim::NormKind kind = sim::NormKind::rmsnorm;
    Index rows = 0;
    Index width = 0;
    double epsilon = 1e-5;

    /// Values that the backward pass needs of each row: with layernorm the mean, and the reciprocal
    /// deviation.
    [[nodiscard]] Index statistics() const { return kind == sim::NormKind::layernorm ? 2 : 1; }
};

/// Values that are set to zero at random, the others divided by 1 - rate. Which ones depends on the
/// draw and on their places in the whole alone, so that every split of the work drops the same.
struct Dropout {
    double rate = 0.0;
    std::uint64_t draw = 0; ///< of a step

    [[nodiscard]] bool drops() const { return rate > 0.0; }
};

/// Attention of consecutive queries of each of `sequences` sequences to consecutive keys of it.
/// Rows of the output lie heads * value width elements apart.
struct AttentionShape {
    Index sequences = 0;
    Index queries = 0; ///< of one sequence
    Index keys = 0;    ///< of one sequence
    Index heads = 0;
    Index kv_heads = 0;     ///< divides heads; each serves heads / kv_heads consecutive query heads
    Index head_dim = 0;     ///< elements of a query, of a key, and unless named of a value
    Index query_stride = 0; ///< elements from row to row of the queries
    Index key_stride = 0;   ///< of the keys, and of the values
    Index query_rows = 0;   ///< from one sequence to the next, of queries and outputs
    Index key_rows = 0;     ///< of keys and values
    bool causal = true;     ///< a query sees keys up to its own position; else all
    /// The same queries have attended to other keys before: forward, output and lse become those of
    /// both; backward, with output and lse of all keys, gradients are added.
    bool joins = false;
    Index value_dim = 0; ///< elements of a value and of an output; 0: head_dim
    // places in the whole
    Index first_query = 0; ///< position in the sample
    Index first_key = 0;
    Index first_head = 0;     ///< of the query heads
    Index first_sequence = 0; ///< sample
    /// A query sees the key of its own position and of the window - 1 before it; 0: of all before.
    Index window = 0;
    /// Scores fall by a slope of the head's own with the distance, with this many heads in the
    /// whole; 0: they do not. Source: Press et al. 2021 (arXiv 2108.12409).
    Index falling_heads = 0;
    Dropout dropout = {}; ///< of the weights of values

    [[nodiscard]] Index value_width() const { return value_dim > 0 ? value_dim : head_dim; }
    /// Keys of the sample that query 0 sees up to its own position, less those before the first.
    [[nodiscard]] Index ahead() const { return first_query - first_key; }
};

/// Rows of which values are dropped.
struct DropShape {
    Index rows = 0;
    Index width = 0;
    Dropout dropout;
    const Index* places = nullptr; ///< of each row in the whole
};

/// Rotation of the first `rotated` elements of each head, element i with element i + rotated / 2.
struct RotaryShape {
    Index rows = 0;
    Index length = 0; ///< rows of a sequence
    Index heads = 0;
    Index head_dim = 0;
    Index rotated = 0;
    Index stride = 0; ///< elements from row to row
    double base = 10000.0;
    /// Position of each row of a sequence; null: its index.
    const Index* positions = nullptr;
};

/// Values of `rows` x `width`; gated: the input has rows of 2 * width, gate first.
struct ActivationShape {
    sim::Activation kind = sim::Activation::gelu;
    bool gated = false;
    Index rows = 0;
    Index width = 0;
};

/// Consecutive rows of a table: those of a part of the vocabulary.
struct EmbedShape {
    Index width = 0;
    Token first = 0; ///< token of the first row
    Index count = 0;
};

/// Logits of consecutive tokens of the vocabulary.
struct LossShape {
    Index rows = 0;
    Index vocab = 0; ///< columns
    Token first = 0; ///< token of the first column
};

struct RouterShape {
    Index rows = 0; ///< tokens
    Index experts = 0;
    Index top_k = 1;
};

/// Where each (token, choice) went: rows sorted by expert, within one by token. No row is dropped.
struct Routing {
    std::int32_t* expert = nullptr; ///< rows x top_k, best first
    std::int32_t* place = nullptr;  ///< rows x top_k: row in expert order
    Index* offsets = nullptr;       ///< experts + 1: an expert's rows in expert order
};

struct AdamWStep {
    double rate = 0.0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double decay = 0.0;
    Index step = 1; ///< counted from 1
};

/// Scalar: float where models are trained, double where derivatives are tested.
template <class Scalar>
class Kernels {
public:
    virtual ~Kernels() = default;

    /// C = product, or C += product.
    virtual void product(ProductForm form, ProductShape shape, const Scalar* a, const Scalar* b,
                         Scalar* c, bool accumulate) = 0;
    /// One product per expert e over the rows [offsets[e], offsets[e + 1]), which are the m of nn
    /// and nt and the k of tn; `shape` holds the other two sizes. The matrices that have no such
    /// rows (weights, their gradients) lie one after another.
    virtual void grouped_product(ProductForm form, std::span<const Index> offsets,
                                 ProductShape shape, const Scalar* a, const Scalar* b, Scalar* c,
                                 bool accumulate) = 0;

    /// y = x + bias in every row; x or bias may be null, which stands for zeros.
    virtual void add_rows(Index rows, Index width, const Scalar* x, const Scalar* bias,
                          Scalar* y) = 0;
    /// bias_gradient += sum over the rows of dy.
    virtual void sum_rows(Index rows, Index width, const Scalar* dy, Scalar* bias_gradient) = 0;
    /// y += x.
    virtual void add(Index count, const Scalar* x, Scalar* y) = 0;
    /// x *= factor.
    virtual void scale(Index count, Scalar factor, Scalar* x) = 0;
    /// x = value.
    virtual void fill(Index count, Scalar value, Scalar* x) = 0;

    /// `scale` and `shift` may be null. `stats`: of each row after another.
    virtual void norm_forward(const NormShape& shape, const Scalar* x, const Scalar* scale,
                              const Scalar* shift, Scalar* y, Scalar* stats) = 0;
    /// dx += gradient of the input, to which the residual path has contributed already.
    virtual void norm_backward(const NormShape& shape, const Scalar* dy, const Scalar* x,
                               const Scalar* scale, const Scalar* stats, Scalar* dx, Scalar* dscale,
                               Scalar* dshift) = 0;

    // Root-mean-square norms of rows of which this rank has `shape.width` of `whole` columns.
    // Between the steps ranks add up sums of each row over the columns; those of the squares are
    // `row_products`.
    virtual void split_norm_forward(const NormShape& shape, Index whole, const Scalar* squares,
                                    const Scalar* x, const Scalar* scale, Scalar* y,
                                    Scalar* stats) = 0;
    /// Of own columns: gradient of the normed value times that value.
    virtual void split_norm_sums(const NormShape& shape, const Scalar* dy, const Scalar* x,
                                 const Scalar* scale, const Scalar* stats, Scalar* sums) = 0;
    /// dx += gradient of the input; `sums`: of all columns.
    virtual void split_norm_backward(const NormShape& shape, Index whole, const Scalar* sums,
                                     const Scalar* dy, const Scalar* x, const Scalar* scale,
                                     const Scalar* stats, Scalar* dx, Scalar* dscale) = 0;

    /// Drops values in place. `mask`: 1 for those that are kept.
    virtual void drop(const DropShape& shape, Scalar* x, std::uint8_t* mask) = 0;
    /// dx = gradient of what was there before: may be dy.
    virtual void drop_backward(Index count, double rate, const std::uint8_t* mask, const Scalar* dy,
                               Scalar* dx) = 0;

    /// Rotates in place; `inverse` turns back, which is the gradient.
    /// Source: RoFormer (Su et al. 2021, arXiv 2104.09864), pairs as in GPT-NeoX and Llama.
    virtual void rotate(const RotaryShape& shape, bool inverse, Scalar* x) = 0;

    virtual void activation_forward(const ActivationShape& shape, const Scalar* x, Scalar* y) = 0;
    virtual void activation_backward(const ActivationShape& shape, const Scalar* x,
                                     const Scalar* dy, Scalar* dx) = 0;

    /// y = table[token], or y += table[token]; zeros for tokens that the table does not have.
    virtual void embed(const EmbedShape& shape, std::span<const Token> tokens, const Scalar* table,
                       Scalar* y, bool accumulate) = 0;
    virtual void embed_backward(const EmbedShape& shape, std::span<const Token> tokens,
                                const Scalar* dy, Scalar* dtable) = 0;

    /// Scores exist for one block of queries and keys at a time. `lse`: logarithm of the sum of
    /// exponentials, sequences x heads x query_rows.
    /// Source: FlashAttention-2 (Dao 2023, arXiv 2307.08691).
    virtual void attention_forward(const AttentionShape& shape, const Scalar* q, const Scalar* k,
                                   const Scalar* v, Scalar* out, Scalar* lse) = 0;
    /// dq, dk and dv are overwritten unless the shape joins.
    virtual void attention_backward(const AttentionShape& shape, const Scalar* q, const Scalar* k,
                                    const Scalar* v, const Scalar* out, const Scalar* lse,
                                    const Scalar* dout, Scalar* dq, Scalar* dk, Scalar* dv) = 0;

    // Cross entropy in three steps, between which ranks that hold parts of the vocabulary exchange
    // what was found: maxima, then sums. A row's loss is top + log(sum) - chosen.
    /// Largest logit of each row; minus infinity without columns.
    virtual void loss_top(const LossShape& shape, const Scalar* logits, Scalar* top) = 0;
    /// Replaces logits by exp(logit - top). `sums`: of each row. `chosen`: the target's logit, zero
    /// where it is not among the columns.
    virtual void loss_sums(const LossShape& shape, std::span<const Token> targets,
                           const Scalar* top, Scalar* logits, Scalar* sums, Scalar* chosen) = 0;
    /// Replaces these exponentials by the gradient of `factor` times the loss.
    virtual void loss_gradient(const LossShape& shape, std::span<const Token> targets,
                               double factor, const Scalar* sums, Scalar* logits) = 0;

    /// Probabilities (rows x experts) from logits, the best top_k experts of each token (the lower
    /// number at equality), and their weights: probabilities divided by their sum over the chosen,
    /// as in Mixtral. `sums`: of the probabilities of each expert, then of the choices of it.
    virtual void route(const RouterShape& shape, const Scalar* logits, Scalar* probabilities,
                       Scalar* weights, std::int32_t* expert, double* sums) = 0;
    /// Places and offsets from `routing.expert`.
    virtual void sort_choices(const RouterShape& shape, const Routing& routing) = 0;
    /// Gradient of the logits from that of the weights, and from that of every token's probability
    /// of an expert in `slopes`.
    virtual void route_backward(const RouterShape& shape, const Scalar* probabilities,
                                const Scalar* weights, const std::int32_t* expert,
                                const Scalar* dweights, const double* slopes, Scalar* dlogits) = 0;
    /// Rows in expert order.
    virtual void dispatch(const RouterShape& shape, Index width, const Routing& routing,
                          const Scalar* x, Scalar* sorted) = 0;
    /// dx += sum over a token's choices.
    virtual void dispatch_backward(const RouterShape& shape, Index width, const Routing& routing,
                                   const Scalar* dsorted, Scalar* dx) = 0;
    /// Row i of x becomes row place[i] of y.
    virtual void move_rows(Index rows, Index width, const std::int32_t* place, const Scalar* x,
                           Scalar* y) = 0;
    /// y += weighted sum over a token's choices.
    virtual void combine(const RouterShape& shape, Index width, const Routing& routing,
                         const Scalar* weights, const Scalar* sorted, Scalar* y) = 0;
    /// products[i] = a row . b row.
    virtual void row_products(Index rows, Index width, const Scalar* a, const Scalar* b,
                              Scalar* products) = 0;
    /// Row i of x *= factors[i].
    virtual void scale_rows(Index rows, Index width, const Scalar* factors, Scalar* x) = 0;
    /// x = 1 / (1 + exp(-x)).
    virtual void sigmoid(Index count, Scalar* x) = 0;
    /// dx = gradient of the input, from the output y; may be dy.
    virtual void sigmoid_backward(Index count, const Scalar* y, const Scalar* dy, Scalar* dx) = 0;

    /// Sum of squares, in double.
    virtual double square_sum(Index count, const Scalar* x) = 0;
    /// Source: Loshchilov and Hutter 2017 (arXiv 1711.05101), algorithm 2, with the decay scaled by
    /// the rate as in PyTorch. `factor` multiplies the gradient first (clipping).
    virtual void adamw(const AdamWStep& step, Index count, Scalar factor, const Scalar* gradient,
                       Scalar* parameter, Scalar* first, Scalar* second) = 0;
    /// velocity = momentum * velocity + gradient + decay * parameter; parameter -= rate * velocity.
    virtual void sgd(double rate, double momentum, double decay, Index count, Scalar factor,
                     const Scalar* gradient, Scalar* parameter, Scalar* velocity) = 0;
};

} // namespace shardplan::exec
