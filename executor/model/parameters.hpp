#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/kernels/memory_count.hpp"
#include "executor/kernels/tensor.hpp"
#include "executor/model/share.hpp"
#include "simulator/spec/model.hpp"

namespace shardplan::exec {

/// How the values of a parameter start.
enum class Start : std::uint8_t { zeros, ones, normal };

/// Consecutive rows of a rank's part, and where they lie in the whole parameter.
struct RowRange {
    Index row = 0;
    Index rows = 0;
    Index first_row = 0; ///< in the whole

    friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// Which ranks hold the same part of a parameter, beside those of other tensor-parallel ranks.
enum class Holders : std::uint8_t {
    dense,  ///< dp x cp: Group::dp_cp
    expert, ///< Group::expert_dp
};

/// A rank's part of one matrix or vector of the model. Linear maps are stored out x in; experts one
/// after another. Rows that no range names fill up the last part of a table: zeros that stay.
struct Parameter {
    std::string name; ///< "blocks.3.qkv.weight"; stable, used in checkpoints
    Index rows = 1;
    Index columns = 0;
    Index offset = 0; ///< elements from the start of all of this rank's parameters
    Start start = Start::normal;
    double deviation = 0.0; ///< of normal starts
    bool decays = false;    ///< matrices decay, biases, norms and tables of positions do not

    Index whole_rows = 1;
    Index whole_columns = 0;
    Index first_column = 0; ///< in the whole
    std::vector<RowRange> ranges = {};
    Holders holders = Holders::dense;
    /// Other tensor-parallel ranks hold other parts; else all hold the same.
    bool split = false;
    /// Held alike by all tensor-parallel ranks, of which each sees other tokens (sequence parallel)
    /// or other heads: their gradients are to be added up.
    bool tokens_split = false;
    bool on_two_stages = false; ///< the tied table, see RankShare
    /// Rows from `repeated_row` on are held alike by this many neighbouring tensor-parallel ranks,
    /// each of which adds what its own queries contribute to their gradients: keys and values of
    /// fewer heads than ranks.
    Index repeats = 1;
    Index repeated_row = 0;

    [[nodiscard]] Index count() const { return rows * columns; }
};

/// Numbers of the parameters of one block in the table; absent ones have none.
struct BlockParameters {
    std::optional<Index> attention_scale, attention_shift;
    std::optional<Index> qkv, qkv_bias;
    std::optional<Index> q_norm, k_norm; ///< scales
    std::optional<Index> sinks;          ///< one of each query head
    // queries, keys and values from compressed vectors
    std::optional<Index> q_down, q_down_bias, q_down_norm, q_up;
    std::optional<Index> kv_down, kv_down_bias, kv_down_norm, kv_up;
    Index attention_out = 0;
    std::optional<Index> attention_out_bias;
    std::optional<Index> attention_end_scale, attention_end_shift;
    std::optional<Index> ffn_scale, ffn_shift;
    std::optional<Index> router, router_bias;
    std::optional<Index> shared_up, shared_up_bias, shared_down, shared_down_bias, shared_gate;
    Index up = 0, down = 0; ///< gated: rows of the gate first, then those of the other factor
    std::optional<Index> up_bias, down_bias;
    std::optional<Index> ffn_end_scale, ffn_end_shift;
};

/// Parameters that are gathered and released together: those of a block, of the tables, or of the
/// final norm and the head. Consecutive in the table.
struct ParameterUnit {
    Index first = 0; ///< number of its first parameter
    Index parameters = 0;
    Index offset = 0; ///< elements
    Index count = 0;
    Index chunk = 0;

    friend bool operator==(const ParameterUnit&, const ParameterUnit&) = default;
};

/// All parameters of a rank, chunk by chunk in the order of the forward pass, without gaps.
struct ParameterTable {
    std::vector<Parameter> parameters;
    std::vector<ParameterUnit> units;    ///< ends without parameters have one of none
    std::vector<BlockParameters> blocks; ///< chunk by chunk
    std::optional<Index> token_table;    ///< where a chunk embeds, and with a tied head
    std::optional<Index> position_table;
    std::optional<Index> embedding_scale, embedding_shift;
    std::optional<Index> final_scale, final_shift;
    std::optional<Index> head; ///< = token_table if tied
    std::optional<Index> head_bias;
    Index count = 0;

    [[nodiscard]] const Parameter& operator[](Index i) const {
        return parameters[static_cast<std::size_t>(i)];
    }
};

/// Of a model that `check_model` accepts. Deviations: 0.02, maps that write into the residual
/// stream 0.02 / sqrt(2 x blocks). Source: GPT-2 (Radford et al. 2019), section 2.3.
ParameterTable parameter_table(const sim::ModelSpec& model, const RankShare& share);

/// Buffers that were used before, for the next one of that size: fresh pages cost more than what is
/// done with them.
template <class T>
class Spares {
public:
    /// `count` zeros, or with whatever was in it.
    Buffer<T> take(Index count, bool zeros);
    void give(Buffer<T> buffer);

private:
    std::map<Index, std::vector<Buffer<T>>> kept_;
};

/// Parameters that lie one after another without gaps, and are split, moved and allocated together.
struct Segment {
    Holders holders = Holders::dense;
    std::vector<Index> parameters; ///< numbers in the table
    Index count = 0;               ///< elements of them
    Index parts = 1;               ///< ranks it is split over
    bool on_two_stages = false;    ///< the tied table, alone

    /// Elements of one rank's piece: the last piece is filled up by zeros.
    [[nodiscard]] Index piece() const { return (count + parts - 1) / parts; }
    /// Elements of all pieces, which the segment has room for.
    [[nodiscard]] Index room() const { return parts * piece(); }

    friend bool operator==(const Segment&, const Segment&) = default;
};

/// Values and gradients of all parameters of a rank, as operators see them. They lie in one segment
/// in the order of the table, unless `arrange` says otherwise.
template <class Scalar>
class Parameters {
public:
    Parameters(ParameterTable table, Storage storage);

    [[nodiscard]] const ParameterTable& table() const { return table_; }
    [[nodiscard]] Storage storage() const { return storage_; }
    /// Of all parameters in the order of the table, while they lie in one segment. What changes
    /// values calls `changed` afterwards.
    [[nodiscard]] Scalar* values();
    [[nodiscard]] Scalar* gradients();
    /// Null where there are none yet.
    [[nodiscard]] const Scalar* values() const { return whole_.front().values.data(); }
    [[nodiscard]] const Scalar* gradients() const { return whole_.front().gradients.data(); }
    void changed();
    void clear_gradients(Kernels<Scalar>& kernels);
    /// Starting values from a number: those of an element depend on the seed, the parameter's name
    /// and its place in the whole alone, so that every split of the model starts alike.
    void start(std::uint64_t seed);

    /// Values as operators read them.
    [[nodiscard]] Reading<Scalar> read(Arena& arena, Index i);
    /// To be added to. Where there are none they come to be, as zeros.
    [[nodiscard]] Scalar* gradient(Index i);

    // --- for what splits them --------------------------------------------------------------------

    /// Lays them out anew; nothing is held afterwards. Returns the values so far in the order of
    /// the table, or nothing if there were none. `count` outlives this.
    Buffer<Scalar> arrange(std::vector<Segment> segments, MemoryCount& count);
    [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
    /// Elements from the start of its segment.
    [[nodiscard]] Index offset_of(Index parameter) const {
        return places_[static_cast<std::size_t>(parameter)].offset;
    }

    /// `room()` elements for what operators read of a segment, in 16 bits if so stored, counted as
    /// `kind`: zeros the first time; and back.
    void hold_values(Index segment, sim::TensorKind kind);
    void drop_values(Index segment);
    [[nodiscard]] Scalar* values(Index segment) { return at(segment).values.data(); }
    [[nodiscard]] Bf16* packed(Index segment) { return at(segment).packed.data(); }
    /// `room()` zeros, unless there are gradients; and back.
    void hold_gradients(Index segment);
    void drop_gradients(Index segment);
    [[nodiscard]] bool holds_gradients(Index segment) const {
        return !whole_[static_cast<std::size_t>(segment)].gradients.empty();
    }
    [[nodiscard]] Scalar* gradients(Index segment) { return at(segment).gradients.data(); }

private:
    struct Place {
        Index segment = 0;
        Index offset = 0;
    };
    /// What a segment holds whole.
    struct Whole {
        Buffer<Scalar> values;
        Buffer<Bf16> packed;
        Buffer<Scalar> gradients;
        sim::TensorKind kind = sim::TensorKind::weights; ///< of the values
    };
    void place(std::vector<Segment> segments);
    /// Values of all that nobody has arranged.
    void hold_all();
    [[nodiscard]] Whole& at(Index segment) { return whole_[static_cast<std::size_t>(segment)]; }
    [[nodiscard]] Index room(Index segment) const {
        return segments_[static_cast<std::size_t>(segment)].room();
    }

    ParameterTable table_;
    Storage storage_;
    std::vector<Segment> segments_;
    std::vector<Place> places_; ///< by parameter
    std::vector<Whole> whole_;  ///< by segment
    Spares<Scalar> spares_;
    Spares<Bf16> packed_spares_;
    MemoryCount* count_ = nullptr;
};

/// Elements `begin` to `end` - 1 of a rank's part of a parameter as they start, see
/// `Parameters::start`.
template <class Scalar>
void start_values(const Parameter& parameter, std::uint64_t seed, Index begin, Index end,
                  Scalar* out);

} // namespace shardplan::exec
