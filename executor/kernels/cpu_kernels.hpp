#pragma once

#include <memory>
#include <string>

#include "executor/kernels/buffer.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/thread_pool.hpp"

namespace shardplan::exec {

/// The vector instructions that the kernels were built for: "AVX512, FMA, AVX2, AVX".
std::string kernel_instructions();

/// Kernels on the processor: products by Eigen, everything split over a pool of threads. For a
/// fixed number of threads the same input gives the same bits. Its members are instantiated for
/// float and double in the .cpp files beside this one.
template <class Scalar>
class CpuKernels : public Kernels<Scalar> {
public:
    explicit CpuKernels(int threads) : pool_(std::make_unique<ThreadPool>(threads)) {}

    void product(ProductForm form, ProductShape shape, const Scalar* a, const Scalar* b, Scalar* c,
                 bool accumulate) override;
    void grouped_product(ProductForm form, std::span<const Index> offsets, ProductShape shape,
                         const Scalar* a, const Scalar* b, Scalar* c, bool accumulate) override;
    void add_rows(Index rows, Index width, const Scalar* x, const Scalar* bias, Scalar* y) override;
    void sum_rows(Index rows, Index width, const Scalar* dy, Scalar* bias_gradient) override;
    void add(Index count, const Scalar* x, Scalar* y) override;
    void scale(Index count, Scalar factor, Scalar* x) override;
    void fill(Index count, Scalar value, Scalar* x) override;
    void norm_forward(const NormShape& shape, const Scalar* x, const Scalar* scale,
                      const Scalar* shift, Scalar* y, Scalar* stats) override;
    void norm_backward(const NormShape& shape, const Scalar* dy, const Scalar* x,
                       const Scalar* scale, const Scalar* stats, Scalar* dx, Scalar* dscale,
                       Scalar* dshift) override;
    void split_norm_forward(const NormShape& shape, Index whole, const Scalar* squares,
                            const Scalar* x, const Scalar* scale, Scalar* y,
                            Scalar* stats) override;
    void split_norm_sums(const NormShape& shape, const Scalar* dy, const Scalar* x,
                         const Scalar* scale, const Scalar* stats, Scalar* sums) override;
    void split_norm_backward(const NormShape& shape, Index whole, const Scalar* sums,
                             const Scalar* dy, const Scalar* x, const Scalar* scale,
                             const Scalar* stats, Scalar* dx, Scalar* dscale) override;
    void drop(const DropShape& shape, Scalar* x, std::uint8_t* mask) override;
    void drop_backward(Index count, double rate, const std::uint8_t* mask, const Scalar* dy,
                       Scalar* dx) override;
    void rotate(const RotaryShape& shape, bool inverse, Scalar* x) override;

    void activation_forward(const ActivationShape& shape, const Scalar* x, Scalar* y) override;
    void activation_backward(const ActivationShape& shape, const Scalar* x, const Scalar* dy,
                             Scalar* dx) override;
    void embed(const EmbedShape& shape, std::span<const Token> tokens, const Scalar* table,
               Scalar* y, bool accumulate) override;
    void embed_backward(const EmbedShape& shape, std::span<const Token> tokens, const Scalar* dy,
                        Scalar* dtable) override;
    void attention_forward(const AttentionShape& shape, const Scalar* q, const Scalar* k,
                           const Scalar* v, Scalar* out, Scalar* lse) override;
    void attention_backward(const AttentionShape& shape, const Scalar* q, const Scalar* k,
                            const Scalar* v, const Scalar* out, const Scalar* lse,
                            const Scalar* dout, Scalar* dq, Scalar* dk, Scalar* dv) override;
    void loss_top(const LossShape& shape, const Scalar* logits, Scalar* top) override;
    void loss_sums(const LossShape& shape, std::span<const Token> targets, const Scalar* top,
                   Scalar* logits, Scalar* sums, Scalar* chosen) override;
    void loss_gradient(const LossShape& shape, std::span<const Token> targets, double factor,
                       const Scalar* sums, Scalar* logits) override;
    void route(const RouterShape& shape, const Scalar* logits, Scalar* probabilities,
               Scalar* weights, std::int32_t* expert, double* sums) override;
    void sort_choices(const RouterShape& shape, const Routing& routing) override;
    void route_backward(const RouterShape& shape, const Scalar* probabilities,
                        const Scalar* weights, const std::int32_t* expert, const Scalar* dweights,
                        const double* slopes, Scalar* dlogits) override;
    void dispatch(const RouterShape& shape, Index width, const Routing& routing, const Scalar* x,
                  Scalar* sorted) override;
    void dispatch_backward(const RouterShape& shape, Index width, const Routing& routing,
                           const Scalar* dsorted, Scalar* dx) override;
    void move_rows(Index rows, Index width, const std::int32_t* place, const Scalar* x,
                   Scalar* y) override;
    void combine(const RouterShape& shape, Index width, const Routing& routing,
                 const Scalar* weights, const Scalar* sorted, Scalar* y) override;
    void row_products(Index rows, Index width, const Scalar* a, const Scalar* b,
                      Scalar* products) override;
    void scale_rows(Index rows, Index width, const Scalar* factors, Scalar* x) override;
    void sigmoid(Index count, Scalar* x) override;
    void sigmoid_backward(Index count, const Scalar* y, const Scalar* dy, Scalar* dx) override;
    double square_sum(Index count, const Scalar* x) override;
    void adamw(const AdamWStep& step, Index count, Scalar factor, const Scalar* gradient,
               Scalar* parameter, Scalar* first, Scalar* second) override;
    void sgd(double rate, double momentum, double decay, Index count, Scalar factor,
             const Scalar* gradient, Scalar* parameter, Scalar* velocity) override;

private:
    /// Cosines and sines of every position and pair, as the last rotation had them: they are the
    /// same for all blocks, and take longer than the rotation.
    struct Angles {
        Index length = 0, rotated = 0;
        double base = 0.0;
        Buffer<Scalar> cosine, sine; ///< length x rotated / 2
    };
    void set_angles(const RotaryShape& shape);

    std::unique_ptr<ThreadPool> pool_;
    Angles angles_;
};

} // namespace shardplan::exec
