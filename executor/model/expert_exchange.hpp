#pragma once

#include <vector>

#include "executor/model/links.hpp"

namespace shardplan::exec {

/// Where the rows that a rank's choices make go, of one pass of a block.
struct ExpertWay {
    std::vector<Index> sent;     ///< rows to each expert-parallel rank
    std::vector<Index> received; ///< rows from each of them
    std::vector<Index> gathered; ///< rows of each rank that splits the same experts; empty: alone
    std::vector<std::int32_t> place; ///< row at this rank's experts of each that has come
    std::vector<std::int32_t> back;  ///< the reverse
    std::vector<Index> offsets;      ///< of the rank's experts: rows of each
    Index rows = 0;                  ///< of all of them
};

/// Rows of tokens to the ranks that hold their experts, and back. A row goes to the expert-parallel
/// rank first, then to those that split the experts with it; on its way back what those have
/// computed is added up. Each way is the gradient of the other.
/// Sources: GShard (Lepikhin et al. 2020, arXiv 2006.16668); Megatron Core, token_dispatcher.py.
template <class Scalar>
class ExpertExchange {
public:
    /// `gathers`: tokens differ on the ranks that split an expert.
    ExpertExchange(Kernels<Scalar>* kernels, Arena* arena, Links* links, Index experts,
                   bool gathers);

    /// `offsets`: of all experts, of the rows that this rank's tokens make.
    [[nodiscard]] ExpertWay way(const std::vector<Index>& offsets) const;
    /// From rows of `width` in the order of all experts to rows in the order of this rank's.
    /// `sorted` is used up.
    void to_experts(const ExpertWay& way, Index width, Scalar* sorted, Scalar* rows,
                    Sent as = Sent::stored) const;
    /// And back; `rows` are given back on the way.
    void from_experts(const ExpertWay& way, Index width, Scratch<Scalar> rows, Scalar* sorted,
                      Sent as = Sent::stored) const;

    /// Whether any row may change its rank.
    [[nodiscard]] bool moves() const { return ep_.parts > 1 || gathers_; }

private:
    /// Row of the gathered ones where this rank's begin.
    [[nodiscard]] Index first_own(const ExpertWay& way) const;
    void order(const std::vector<Index>& counts, Index sources, ExpertWay& way) const;

    Kernels<Scalar>* kernels_;
    Arena* arena_;
    Links* links_;
    PartOf ep_, etp_;
    Index own_experts_ = 0;
    bool gathers_ = false;
};

} // namespace shardplan::exec
