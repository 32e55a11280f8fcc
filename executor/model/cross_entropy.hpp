#pragma once

#include <span>

#include "executor/model/links.hpp"

namespace shardplan::exec {

/// What the loss of a rank's rows is made from.
template <class Scalar>
struct CrossEntropy {
    Kernels<Scalar>* kernels = nullptr;
    Arena* arena = nullptr;
    Links* links = nullptr;
    Index rows = 0;
    Index hidden = 0;
    Token first = 0;   ///< token of this rank's first row of the head
    Index vocab = 0;   ///< rows of the head that this rank has, without those that fill up
    Index chunk = 256; ///< rows whose logits exist at the same time

    /// Rows of the output table, and what is added to their logits: null, nothing.
    struct Head {
        const Scalar* values = nullptr;
        const Scalar* bias = nullptr;
        Scalar* gradient = nullptr;
        Scalar* bias_gradient = nullptr;
    };
    /// Sum over the rows of -log softmax(x head^T)[target], alike on all tensor-parallel ranks.
    /// With dx not null also the gradients of `factor` times this sum, chunk by chunk while the
    /// logits are there: dx is overwritten with this rank's part of the vocabulary's share in it.
    double run(const Scalar* x, const Head& head, std::span<const Token> targets, double factor,
               Scalar* dx) const;

private:
    /// Loss of the rows of a chunk; with `differentiates` logits become their gradient.
    double softmax(Index rows_now, std::span<const Token> targets, double factor,
                   bool differentiates, Scalar* logits, Scalar* found) const;
};

} // namespace shardplan::exec
