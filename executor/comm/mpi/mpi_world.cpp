#include "executor/comm/mpi/mpi_world.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "executor/comm/message_communicator.hpp"
#include "executor/comm/mpi/mpi_state.hpp"

namespace shardplan::exec {

namespace {

constexpr int exit_code_of_failed_run = 3;
/// How long a rank that failed waits for others to notice before it ends them.
constexpr std::chrono::seconds grace{2};
constexpr std::chrono::milliseconds grace_step{10};

int tag_of(Channel channel) {
    return static_cast<int>(channel.context * (collective_tag + 1U)) + channel.tag;
}

class MpiEndpoint final : public Endpoint {
public:
    explicit MpiEndpoint(std::shared_ptr<MpiState> state) : state_(std::move(state)) {}

    [[nodiscard]] int rank() const override { return state_->rank(); }
    [[nodiscard]] int size() const override { return state_->size(); }

    std::unique_ptr<Pending> send(int to, Channel channel,
                                  std::span<const std::byte> data) override {
        return in_parts(
            to, data,
            [&](std::span<const std::byte> part, MPI_Request* request, MpiPending& pending) {
                const int code = MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to,
                                           tag_of(channel), state_->messages(), request);
                pending.add(code, *request, -1);
            });
    }
    std::unique_ptr<Pending> receive(int from, Channel channel,
                                     std::span<std::byte> data) override {
        return in_parts(
            from, data, [&](std::span<std::byte> part, MPI_Request* request, MpiPending& pending) {
                const int code = MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE,
                                           from, tag_of(channel), state_->messages(), request);
                pending.add(code, *request, static_cast<std::int64_t>(part.size()));
            });
    }
    void stop(const std::string& reason) override { state_->announce_stop(reason); }
    [[nodiscard]] std::uint32_t last_context() const override {
        return state_->last_context.load();
    }
    void met(std::uint32_t context) override {
        std::uint32_t seen = state_->last_context.load();
        while (seen < context && !state_->last_context.compare_exchange_weak(seen, context)) {
        }
    }
    std::unique_ptr<GroupLibrary> library_for(const std::vector<int>& ranks,
                                              std::uint32_t context) override {
        return mpi_library(state_, ranks, context);
    }

private:
    template <class Span, class F>
    std::unique_ptr<Pending> in_parts(int peer, Span data, F&& start) {
        auto pending = std::make_unique<MpiPending>(state_, std::vector<int>{peer}, false);
        std::size_t first = 0;
        do {
            const std::size_t bytes = std::min(state_->largest_part(), data.size() - first);
            MPI_Request request = MPI_REQUEST_NULL;
            start(data.subspan(first, bytes), &request, *pending);
            first += bytes;
        } while (first < data.size());
        return pending;
    }

    std::shared_ptr<MpiState> state_;
};

} // namespace

struct MpiWorld::State : MpiState {
    using MpiState::MpiState;
};

MpiWorld::MpiWorld(std::shared_ptr<State> state)
    : state_(std::move(state)), world_(make_world(std::make_shared<MpiEndpoint>(state_))) {}

MpiWorld::~MpiWorld() = default;

Result<std::unique_ptr<MpiWorld>> MpiWorld::start(const MpiOptions& options) {
    const auto failed = [](std::string what, std::string hint) {
        return Error{ErrorCode::backend_failed, "MPI", std::move(what), std::move(hint)};
    };
    int level = 0;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return failed(mpi_error_text(code), "start the program by mpirun");
    if (level < MPI_THREAD_MULTIPLE) {
        return failed("this MPI lets one thread of a process communicate at a time",
                      "an MPI built with MPI_THREAD_MULTIPLE");
    }
    int* highest_tag = nullptr;
    int has_tag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&highest_tag), &has_tag);
    const int needed = tag_of({max_context, collective_tag});
    if (has_tag == 0 || *highest_tag < needed) {
        return failed(fmt::format("this MPI's tags end below {}", needed), "Open MPI");
    }
    auto state = std::make_shared<State>(options.largest_part);
    std::unique_ptr<MpiWorld> made(new MpiWorld(std::move(state)));
    made->world_->set_timeout(options.timeout);
    return made;
}

void MpiWorld::finish(const Status& outcome) {
    Status status = outcome;
    if (status) status = world_->barrier();
    if (status) {
        world_.reset();
        MPI_Finalize();
        return;
    }
    state_->announce_stop("stopped: " + sim::to_text(status.error()));
    const Deadline end = std::chrono::steady_clock::now() + grace;
    while (std::chrono::steady_clock::now() < end && state_->stopped_ranks() + 1 < state_->size()) {
        state_->listen();
        std::this_thread::sleep_for(grace_step);
    }
    MPI_Abort(MPI_COMM_WORLD, exit_code_of_failed_run);
}

} // namespace shardplan::exec
