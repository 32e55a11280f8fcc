#pragma once

#include <array>
#include <functional>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/model/parameters.hpp"
#include "executor/optimizer/optimizer.hpp"
#include "executor/optimizer/tiered_buffer.hpp"
#include "simulator/spec/layout.hpp"

namespace shardplan::exec {

/// Elements of one parameter in the piece of a segment that a rank keeps.
struct Stretch {
    Index parameter = 0; ///< number in the table
    Index begin = 0;     ///< in the piece
    Index end = 0;
    Index first = 0; ///< what `begin` is in the parameter
};

/// What is split how, and what of it is kept elsewhere.
struct ShardRule {
    sim::Shard shard = sim::Shard::none;
    OptimizerKind optimizer = OptimizerKind::adamw;
    Offload states; ///< and master weights
    Offload weights;
};

/// What a rank keeps of its parameters: values, gradients and states of its pieces of all segments.
/// See DataParallel for the sizes.
template <class Scalar>
class Shards {
public:
    /// `parameters` are arranged already; `parts`: of each segment which piece is kept. Errors: of
    /// files.
    static sim::Result<Shards> make(Parameters<Scalar>& parameters, std::vector<Index> parts,
                                    const ShardRule& rule, MemoryCount& memory);

    [[nodiscard]] Index segments() const { return static_cast<Index>(pieces_.size()); }
    [[nodiscard]] const Segment& segment(Index s) const {
        return parameters_->segments()[static_cast<std::size_t>(s)];
    }
    /// Values come and go; else all of the segment stays.
    [[nodiscard]] bool gathers(Index s) const { return at(s).gathers; }
    /// Gradients are added up in the piece.
    [[nodiscard]] bool splits_gradients(Index s) const {
        return rule_.shard >= sim::Shard::optimizer_gradients && segment(s).parts > 1;
    }
    /// Elements before the piece in its segment.
    [[nodiscard]] Index offset(Index s) const { return at(s).part * segment(s).piece(); }
    [[nodiscard]] const std::vector<Stretch>& stretches(Index s) const { return at(s).stretches; }

    /// Gradients of the piece.
    [[nodiscard]] Scalar* gradients(Index s);
    /// Gradients of all pieces of the same holders that are split, one after another.
    [[nodiscard]] Buffer<Scalar>& split_gradients(Holders holders) {
        return gradients_[static_cast<std::size_t>(holders)];
    }

    /// Values and states of elements of a piece that lie without gaps.
    struct Run {
        Stretch elements;
        Scalar* values = nullptr;
        Scalar* first = nullptr;
        Scalar* second = nullptr; ///< null where there is none
    };
    /// What of a piece lies in files begins to be read; no segment: nothing.
    void prefetch(Index s);
    /// Calls `f` for all elements of the piece in turn, and then writes what is read in 16 bits.
    /// Meanwhile the next segment's files are read.
    void update(Index s, const std::function<void(const Run&)>& f);
    /// Calls `f` for all elements of the piece in turn.
    void each_run(Index s, const std::function<void(const Run&)>& f);
    /// Sets all values that this rank holds: `values(parameter, begin, end, out)` gives elements of
    /// its part.
    void fill(const std::function<void(Index, Index, Index, Scalar*)>& values);
    /// Copies the piece to its place in the gathered segment.
    void put_into_whole(Index s);
    /// Writes what is read in 16 bits.
    void pack_values();

private:
    struct Piece {
        Index part = 0;
        bool gathers = false;
        std::vector<Stretch> stretches;
        /// Values that are updated, where they are not those of Parameters.
        TieredBuffer<Scalar> values;
        TieredBuffer<Bf16> packed; ///< what is gathered in 16 bits
        TieredBuffer<Scalar> first, second;
        Index gradients = 0; ///< offset in `gradients_`
    };
    Shards(Parameters<Scalar>& parameters, const ShardRule& rule)
        : parameters_(&parameters), rule_(rule) {}
    sim::Status add(Index s, Index part, MemoryCount& memory);
    [[nodiscard]] Piece& at(Index s) { return pieces_[static_cast<std::size_t>(s)]; }
    [[nodiscard]] const Piece& at(Index s) const { return pieces_[static_cast<std::size_t>(s)]; }
    template <class F>
    void each_buffer(Index s, F&& f);
    [[nodiscard]] Scalar* values_at(Index s, Index i);
    void pack_run(Index s, const Run& run);

    Parameters<Scalar>* parameters_;
    ShardRule rule_;
    std::vector<Piece> pieces_;
    std::array<Buffer<Scalar>, 2> gradients_; ///< by Holders
};

} // namespace shardplan::exec
