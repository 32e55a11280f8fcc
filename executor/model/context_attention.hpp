#pragma once

#include <array>
#include <span>
#include <vector>

#include "executor/model/links.hpp"
#include "executor/model/rows.hpp"

namespace shardplan::exec {

/// Which pass this is, where it matters: what is dropped at random depends on it.
struct Drawn {
    std::uint64_t draw = 0; ///< of the step
    Index first_sample = 0; ///< of the micro-batch in the step
    bool drops = true;      ///< while training
};

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
        Index value_dim = 0;
        Index window = 0;        ///< see AttentionShape
        Index falling_heads = 0; ///< likewise
        double dropout = 0.0;
    };
    ContextAttention(Kernels<Scalar>* kernels, Arena* arena, Links* links, const RowShare* rows,
                     const Sizes& sizes);

    /// Whether the core works on all tokens of a part of the heads: queries, keys, values and
    /// outputs then come from and go to the form of the maps by `to_heads` and `to_tokens`.
    [[nodiscard]] bool exchanges_heads() const;
    /// Columns of a row, of which the ranks get a part each; where there are fewer parts than
    /// ranks, neighbours get the same one.
    struct Section {
        Index width = 0;
        Index parts = 1;
    };
    /// Rows of `sections` (queries, keys, values) with all heads -> all tokens with a part of each
    /// section. The gradient of either is the other: what neighbours with the same part have found
    /// is added up.
    void to_heads(std::span<const Section> sections, const Scalar* rows, Scalar* whole) const;
    void to_tokens(std::span<const Section> sections, const Scalar* whole, Scalar* rows) const;
    [[nodiscard]] std::span<const Section> qkv_sections() const { return exchanged_qkv_; }
    [[nodiscard]] std::span<const Section> out_sections() const { return {&exchanged_out_, 1}; }
    /// Elements of queries, keys and values in the form the core takes.
    [[nodiscard]] Index core_count() const;

    /// `qkv`: rows of queries, keys and values side by side. `lse`: a value per row and head.
    /// `sinks`: scores of a key without value, one of each of the rank's query heads; null: none.
    void forward(const Drawn& drawn, const Scalar* qkv, const Scalar* sinks, Scalar* out,
                 Scalar* lse) const;
    void backward(const Drawn& drawn, const Scalar* qkv, const Scalar* out, const Scalar* lse,
                  const Scalar* dout, Scalar* dqkv) const;
    /// Adds the gradient of the sinks.
    void sinks_backward(const Scalar* sinks, const Scalar* out, const Scalar* lse,
                        const Scalar* dout, Scalar* dsinks) const;

private:
    /// Output and lse as if the queries had attended to the sink of their head alone.
    void attend_to_sinks(const AttentionShape& shape, const Scalar* sinks, Scalar* out,
                         Scalar* lse) const;
    [[nodiscard]] Index first_core_head() const;
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
        Drawn drawn;
    };
    /// What all calls of a pass have in common: of this rank's heads.
    [[nodiscard]] AttentionShape shape_of(const Drawn& drawn) const;
    [[nodiscard]] AttentionShape whole_shape(const Drawn& drawn) const;
    /// Attention of this rank's pieces to those of `rank`; with `dkv` its gradient.
    void attend(Queries& queries, Index rank, const Scalar* kv, Scalar* dkv) const;
    void forward_ring(Queries& queries, Scratch<Scalar>& kv) const;
    void backward_ring(Queries& queries, Scratch<Scalar>& kv, Scalar* dqkv) const;
    void take_kv(const Scalar* qkv, Scalar* kv) const;
    void put_kv(const Scalar* kv, Scalar* qkv) const;
    [[nodiscard]] Index kv_width() const { return qkv_[1] + qkv_[2]; }
    [[nodiscard]] Index kv_count() const { return rows_->all * kv_width(); }

    Kernels<Scalar>* kernels_;
    Arena* arena_;
    Links* links_;
    const RowShare* rows_;
    Sizes sizes_;
    std::array<Index, 3> qkv_; ///< widths of queries, keys, values
    std::array<Section, 3> exchanged_qkv_;
    Section exchanged_out_;
};

} // namespace shardplan::exec
