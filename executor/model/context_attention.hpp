#pragma once

#include <array>
#include <span>
#include <vector>

#include "executor/model/links.hpp"
#include "executor/model/rows.hpp"

namespace shardplan::exec {

/// Causal self attention of the heads of a tensor-parallel rank, whose tokens the context-parallel
/// ranks split. Sources: ring: Liu et al. 2023 (arXiv 2310.01889); heads exchanged for tokens:
/// Jacobs et al. 2023 (arXiv 2309.14509); keys and values gathered: Llama 3 (arXiv 2407.21783).
template <class Scalar>
class ContextAttention {
public:
    struct Sizes {
        Index samples = 0;
        Index sequence = 0; ///< tokens of a whole sample
        Index heads = 0;    ///< of this tensor-parallel rank
        Index kv_heads = 0;
        Index head_dim = 0;
    };
    ContextAttention(Kernels<Scalar>* kernels, Arena* arena, Links* links, const RowShare* rows,
                     const Sizes& sizes);

    /// Whether the core works on all tokens of a part of the heads: queries, keys, values and
    /// outputs then come from and go to the form of the maps by `to_heads` and `to_tokens`.
    [[nodiscard]] bool exchanges_heads() const;
    /// Rows of `sections` (queries, keys, values) with all heads -> all tokens with a part of each
    /// section; both have as many elements. The gradient of either is the other.
    void to_heads(std::span<const Index> sections, const Scalar* rows, Scalar* whole) const;
    void to_tokens(std::span<const Index> sections, const Scalar* whole, Scalar* rows) const;
    [[nodiscard]] std::span<const Index> qkv_sections() const { return qkv_; }
    [[nodiscard]] std::span<const Index> out_sections() const { return {qkv_.data(), 1}; }

    /// `qkv`: rows of queries, keys and values side by side. `lse`: a value per row and head.
    void forward(const Scalar* qkv, Scalar* out, Scalar* lse) const;
    void backward(const Scalar* qkv, const Scalar* out, const Scalar* lse, const Scalar* dout,
                  Scalar* dqkv) const;

private:
    /// What the queries of this rank read and write.
    struct Queries {
        const Scalar* q = nullptr;
        Scalar* out = nullptr;
        Scalar* lse = nullptr;
        // backward
        const Scalar* kept_out = nullptr;
        const Scalar* kept_lse = nullptr;
        const Scalar* dout = nullptr;
        Scalar* dq = nullptr;
        std::vector<bool> begun; ///< of each piece
    };
    [[nodiscard]] AttentionShape whole_shape() const;
    /// Attention of this rank's pieces to those of `rank`; with `dkv` its gradient.
    void attend(Queries& queries, Index rank, const Scalar* kv, Scalar* dkv) const;
    void forward_ring(Queries& queries, Scratch<Scalar>& kv) const;
    void backward_ring(Queries& queries, Scratch<Scalar>& kv, Scalar* dqkv) const;
    void take_kv(const Scalar* qkv, Scalar* kv) const;
    void put_kv(const Scalar* kv, Scalar* qkv) const;
    [[nodiscard]] Index kv_count() const { return rows_->all * 2 * qkv_[1]; }

    Kernels<Scalar>* kernels_;
    Arena* arena_;
    Links* links_;
    const RowShare* rows_;
    Sizes sizes_;
    std::array<Index, 3> qkv_; ///< widths of queries, keys, values
};

} // namespace shardplan::exec
