#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "executor/comm/mpi/mpi_state.hpp"

namespace shardplan::exec {

namespace {

std::size_t index_of(Scalar scalar) { return static_cast<std::size_t>(scalar); }

MPI_Datatype type_of(Scalar scalar) {
    const std::array<MPI_Datatype, 6> types = {MPI_DOUBLE,  MPI_FLOAT,   MPI_UINT16_T,
                                               MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T};
    return types[index_of(scalar)];
}

/// What MPI has no operation for: sums of bf16, and a maximum that notices what is not a number.
template <Scalar scalar, ReduceOp op>
void join_buffers(void* in, void* in_out, int* count, MPI_Datatype* /*type*/) {
    const std::size_t bytes = static_cast<std::size_t>(*count) * bytes_of(scalar);
    const std::span<std::byte> both(static_cast<std::byte*>(in_out), bytes);
    combine({scalar, op}, both, {static_cast<const std::byte*>(in), bytes}, both);
}

template <Scalar scalar, ReduceOp op>
MPI_Op made_op() {
    MPI_Op made = MPI_OP_NULL;
    MPI_Op_create(&join_buffers<scalar, op>, 1, &made);
    return made;
}

MPI_Op op_of(Scalar scalar, ReduceOp op) {
    static const std::array<MPI_Op, 3> maxima = {made_op<Scalar::fp64, ReduceOp::max>(),
                                                 made_op<Scalar::fp32, ReduceOp::max>(),
                                                 made_op<Scalar::bf16, ReduceOp::max>()};
    static const MPI_Op bf16_sum = made_op<Scalar::bf16, ReduceOp::sum>();
    if (op == ReduceOp::sum) return scalar == Scalar::bf16 ? bf16_sum : MPI_SUM;
    return index_of(scalar) < maxima.size() ? maxima[index_of(scalar)] : MPI_MAX;
}

int count_of(ConstView data) { return static_cast<int>(data.count); }

class MpiLibrary final : public GroupLibrary {
public:
    MpiLibrary(std::shared_ptr<MpiState> state, std::vector<int> ranks, MPI_Comm comm)
        : state_(std::move(state)), ranks_(std::move(ranks)), comm_(comm) {
        MPI_Comm_rank(comm_, &rank_);
    }
    ~MpiLibrary() override {
        int is_over = 0;
        MPI_Finalized(&is_over);
        // Waits for no other rank in Open MPI, unlike MPI_Comm_disconnect.
        if (is_over == 0 && state_->stopped_ranks() == 0) MPI_Comm_free(&comm_);
    }

    [[nodiscard]] std::int64_t most_bytes() const override {
        return std::numeric_limits<std::int32_t>::max();
    }
    std::unique_ptr<Pending> all_reduce(View data, ReduceOp op) override {
        return started([&](MPI_Request* request) {
            return MPI_Iallreduce(MPI_IN_PLACE, data.data, count_of(data), type_of(data.scalar),
                                  op_of(data.scalar, op), comm_, request);
        });
    }
    std::unique_ptr<Pending> all_gather(ConstView own, View all) override {
        const auto* place =
            all.bytes().data() + own.bytes().size() * static_cast<std::size_t>(rank_);
        const void* from = own.data == place ? MPI_IN_PLACE : own.data;
        const MPI_Datatype type = type_of(own.scalar);
        return started([&](MPI_Request* request) {
            return MPI_Iallgather(from, count_of(own), type, all.data, count_of(own), type, comm_,
                                  request);
        });
    }
    std::unique_ptr<Pending> reduce_scatter(ConstView all, View own, ReduceOp op) override {
        // MPI reads all of its input until the end, so a result that lies in it needs a copy.
        const auto input = all.bytes();
        const auto* result = static_cast<const std::byte*>(own.data);
        const bool overlaps = result >= input.data() && result < input.data() + input.size();
        std::vector<std::byte> copy;
        if (overlaps) copy.assign(input.begin(), input.end());
        const void* from = overlaps ? copy.data() : all.data;
        auto pending = started([&](MPI_Request* request) {
            return MPI_Ireduce_scatter_block(from, own.data, count_of(own), type_of(own.scalar),
                                             op_of(own.scalar, op), comm_, request);
        });
        pending->keep(std::move(copy));
        return pending;
    }
    std::unique_ptr<Pending> broadcast(View data, int root) override {
        return started([&](MPI_Request* request) {
            return MPI_Ibcast(data.data, count_of(data), type_of(data.scalar), root, comm_,
                              request);
        });
    }
    std::unique_ptr<Pending> reduce(ConstView in, View out, ReduceOp op, int root) override {
        const bool in_place = rank_ == root && in.data == out.data;
        const void* from = in_place ? MPI_IN_PLACE : in.data;
        return started([&](MPI_Request* request) {
            return MPI_Ireduce(from, out.data, count_of(in), type_of(in.scalar),
                               op_of(in.scalar, op), root, comm_, request);
        });
    }

private:
    template <class F>
    std::unique_ptr<MpiPending> started(F&& call) {
        auto pending = std::make_unique<MpiPending>(state_, ranks_, true);
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = call(&request);
        pending->add(code, request, -1);
        return pending;
    }

    std::shared_ptr<MpiState> state_;
    std::vector<int> ranks_; ///< of the world
    MPI_Comm comm_;
    int rank_ = 0;
};

} // namespace

std::unique_ptr<GroupLibrary> mpi_library(const std::shared_ptr<MpiState>& state,
                                          const std::vector<int>& ranks, std::uint32_t context) {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_group(state->messages(), &world);
    MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members);
    // Among the members alone: other ranks need not wait for them.
    const int code =
        MPI_Comm_create_group(state->messages(), members, static_cast<int>(context), &comm);
    MPI_Group_free(&members);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS || comm == MPI_COMM_NULL) return nullptr;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return std::make_unique<MpiLibrary>(state, ranks, comm);
}

} // namespace shardplan::exec
