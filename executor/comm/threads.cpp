#include "executor/comm/threads.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "executor/comm/message_communicator.hpp"
#include "executor/comm/spin.hpp"

namespace shardplan::exec {

namespace {

/// Messages of at most this size are copied twice and their sender goes on: a wait for the other
/// thread costs more than the second copy.
constexpr std::size_t eager_bytes = 4 * 1024;
/// How long a rank looks again and again before it sleeps: about what waking up takes. Ranks that
/// outnumber the cores sleep at once, for the other end needs the core.
constexpr std::chrono::microseconds spin_time{20};

enum class Stage : std::uint8_t { posted, matched, done };

/// One end of a message that waits for the other end.
struct Post {
    int owner = 0; ///< rank that posted it
    int peer = 0;
    Channel channel;
    std::byte* target = nullptr;       ///< of a receive
    const std::byte* source = nullptr; ///< of a send
    std::size_t bytes = 0;
    std::size_t bytes_at_peer = 0;
    std::vector<std::byte> copy; ///< of a small send
    std::atomic<Stage> stage = Stage::posted;
};
using PostRef = std::shared_ptr<Post>;

struct Rank {
    std::mutex mail_mutex; ///< of the two lists
    std::list<PostRef> sends;
    std::list<PostRef> receives;

    std::mutex bell_mutex;
    std::condition_variable bell; ///< something this rank may wait for has happened
    std::atomic<bool> stopped = false;
    std::string reason; ///< written before `stopped`
    std::string heard;  ///< because_of the first stopped rank met; under bell_mutex
    std::atomic<std::uint32_t> last_context = 0;

    void ring_bell() {
        { const std::lock_guard lock(bell_mutex); }
        bell.notify_all();
    }
};

struct World {
    explicit World(int size) : ranks(static_cast<std::size_t>(size)) {}
    std::vector<Rank> ranks;
    bool has_core_for_each = ranks.size() <= std::thread::hardware_concurrency();
    [[nodiscard]] Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
};

/// Takes the first post of `list` that fits; null if there is none.
PostRef take(std::list<PostRef>& list, int owner, int peer, Channel channel) {
    const auto it = std::find_if(list.begin(), list.end(), [&](const PostRef& post) {
        return post->owner == owner && post->peer == peer && post->channel == channel;
    });
    if (it == list.end()) return nullptr;
    PostRef post = std::move(*it);
    list.erase(it);
    post->stage.store(Stage::matched, std::memory_order_relaxed);
    return post;
}

/// Moves the bytes; the thread of either end may do it.
void deliver(Post& send, Post& receive) {
    receive.bytes_at_peer = send.bytes;
    const std::size_t bytes = std::min(send.bytes, receive.bytes);
    if (bytes > 0) std::memcpy(receive.target, send.source, bytes);
    receive.stage.store(Stage::done, std::memory_order_release);
    send.stage.store(Stage::done, std::memory_order_release);
}

class ThreadPending final : public Pending {
public:
    ThreadPending(std::shared_ptr<World> world, PostRef post, bool is_send)
        : world_(std::move(world)), post_(std::move(post)), is_send_(is_send) {}
    ~ThreadPending() override {
        if (!is_withdrawn_ && !is_done() && !withdraw()) wait_for_copy();
    }
    Outcome wait_until(Deadline deadline) override {
        Rank& peer = world_->at(post_->peer);
        const auto may_go_on = [&] { return is_done() || peer.stopped.load(); };
        if (!may_go_on()) look_again(deadline, may_go_on);
        if (!may_go_on() && deadline != Deadline::min()) {
            Rank& self = world_->at(post_->owner);
            std::unique_lock lock(self.bell_mutex);
            self.bell.wait_until(lock, deadline, may_go_on);
        }
        if (is_done()) return arrived();
        if (!peer.stopped.load()) return {Outcome::State::pending, {}};
        if (is_withdrawn_ || withdraw()) {
            Rank& self = world_->at(post_->owner);
            const std::lock_guard lock(self.bell_mutex);
            if (self.heard.empty()) self.heard = because_of(post_->peer, peer.reason);
            return {Outcome::State::failed, fmt::format("rank {} {}", post_->peer, peer.reason)};
        }
        wait_for_copy();
        return arrived();
    }

private:
    [[nodiscard]] bool is_done() const {
        return post_->stage.load(std::memory_order_acquire) == Stage::done;
    }
    template <class F>
    void look_again(Deadline deadline, F&& may_go_on) const {
        if (!world_->has_core_for_each) return;
        const Deadline end = std::min(deadline, std::chrono::steady_clock::now() + spin_time);
        while (std::chrono::steady_clock::now() < end && !may_go_on()) {
            spin_once();
        }
    }
    /// False if the other end has it already.
    bool withdraw() {
        Rank& receiver = world_->at(is_send_ ? post_->peer : post_->owner);
        const std::lock_guard lock(receiver.mail_mutex);
        auto& list = is_send_ ? receiver.sends : receiver.receives;
        const auto it = std::find(list.begin(), list.end(), post_);
        if (it == list.end()) return false;
        list.erase(it);
        is_withdrawn_ = true;
        return true;
    }
    /// The other thread is in `deliver`, which waits for nobody.
    void wait_for_copy() const {
        while (!is_done()) {
            std::this_thread::yield();
        }
    }
    [[nodiscard]] Outcome arrived() const {
        if (is_send_ || post_->bytes_at_peer == post_->bytes) return {};
        return {Outcome::State::failed,
                fmt::format("rank {} sent {} bytes", post_->peer, post_->bytes_at_peer)};
    }

    std::shared_ptr<World> world_;
    PostRef post_;
    bool is_send_;
    bool is_withdrawn_ = false;
};

class ThreadEndpoint final : public Endpoint {
public:
    ThreadEndpoint(std::shared_ptr<World> world, int rank)
        : world_(std::move(world)), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(world_->ranks.size()); }

    std::unique_ptr<Pending> send(int to, Channel channel,
                                  std::span<const std::byte> data) override {
        PostRef post = make_post(to, channel, data.size());
        post->source = data.data();
        Rank& receiver = world_->at(to);
        PostRef waiting;
        {
            const std::lock_guard lock(receiver.mail_mutex);
            waiting = take(receiver.receives, to, rank_, channel);
            if (waiting == nullptr) {
                if (data.size() > eager_bytes) {
                    receiver.sends.push_back(post);
                } else {
                    receiver.sends.push_back(copy_of(*post, data));
                    post->stage.store(Stage::done, std::memory_order_relaxed);
                }
            }
        }
        if (waiting != nullptr) {
            deliver(*post, *waiting);
            receiver.ring_bell();
        }
        return std::make_unique<ThreadPending>(world_, std::move(post), true);
    }

    std::unique_ptr<Pending> receive(int from, Channel channel,
                                     std::span<std::byte> data) override {
        PostRef post = make_post(from, channel, data.size());
        post->target = data.data();
        Rank& self = world_->at(rank_);
        PostRef waiting;
        {
            const std::lock_guard lock(self.mail_mutex);
            waiting = take(self.sends, from, rank_, channel);
            if (waiting == nullptr) self.receives.push_back(post);
        }
        if (waiting != nullptr) {
            const bool is_eager = !waiting->copy.empty() || waiting->bytes == 0;
            deliver(*waiting, *post);
            if (!is_eager) world_->at(from).ring_bell();
        }
        return std::make_unique<ThreadPending>(world_, std::move(post), false);
    }

    void stop(const std::string& reason) override {
        Rank& self = world_->at(rank_);
        {
            const std::lock_guard lock(self.bell_mutex);
            if (self.stopped.load()) return;
            self.reason = self.heard.empty() ? reason : self.heard;
            self.stopped.store(true);
        }
        for (Rank& rank : world_->ranks) {
            rank.ring_bell();
        }
    }

    [[nodiscard]] std::uint32_t last_context() const override {
        return world_->at(rank_).last_context.load();
    }
    void met(std::uint32_t context) override {
        std::atomic<std::uint32_t>& last = world_->at(rank_).last_context;
        std::uint32_t seen = last.load();
        while (seen < context && !last.compare_exchange_weak(seen, context)) {
        }
    }
    std::unique_ptr<GroupLibrary> library_for(const std::vector<int>&, std::uint32_t) override {
        return nullptr;
    }

private:
    [[nodiscard]] PostRef make_post(int peer, Channel channel, std::size_t bytes) const {
        auto post = std::make_shared<Post>();
        post->owner = rank_;
        post->peer = peer;
        post->channel = channel;
        post->bytes = bytes;
        return post;
    }
    [[nodiscard]] PostRef copy_of(const Post& post, std::span<const std::byte> data) const {
        PostRef copy = make_post(post.peer, post.channel, post.bytes);
        copy->copy.assign(data.begin(), data.end());
        copy->source = copy->copy.data();
        return copy;
    }

    std::shared_ptr<World> world_;
    int rank_;
};

} // namespace

std::vector<std::shared_ptr<Endpoint>> thread_endpoints(int ranks) {
    const auto world = std::make_shared<World>(ranks);
    std::vector<std::shared_ptr<Endpoint>> endpoints;
    for (int rank = 0; rank < ranks; ++rank) {
        endpoints.push_back(std::make_shared<ThreadEndpoint>(world, rank));
    }
    return endpoints;
}

Status RunOutcome::status() const {
    if (!first_failed) return sim::Done{};
    return ranks[static_cast<std::size_t>(*first_failed)];
}

RunOutcome run_ranks(int ranks, const std::function<Status(Communicator&)>& body,
                     const RunOptions& options) {
    const auto endpoints = thread_endpoints(ranks);
    RunOutcome outcome;
    outcome.ranks.assign(static_cast<std::size_t>(ranks), Status(sim::Done{}));
    std::mutex mutex;
    const auto run_one = [&](int rank) {
        const auto& endpoint = endpoints[static_cast<std::size_t>(rank)];
        const auto world = make_world(options.wrap ? options.wrap(endpoint) : endpoint);
        world->set_timeout(options.timeout);
        Status status = sim::Done{};
        const auto threw = [&](const std::string& what) {
            status = Error{ErrorCode::backend_failed, fmt::format("rank {}", rank),
                           "stopped by an exception: " + what, ""};
        };
        try {
            status = body(*world);
        } catch (const std::exception& e) {
            threw(e.what());
        } catch (...) {
            threw("of an unknown type");
        }
        if (!status) {
            const std::lock_guard lock(mutex);
            if (!outcome.first_failed) outcome.first_failed = rank;
            outcome.ranks[static_cast<std::size_t>(rank)] = status;
        }
        endpoint->stop(status ? "has finished" : "stopped: " + sim::to_text(status.error()));
    };
    std::vector<std::thread> threads;
    for (int rank = 1; rank < ranks; ++rank) {
        threads.emplace_back(run_one, rank);
    }
    run_one(0);
    for (std::thread& thread : threads) {
        thread.join();
    }
    return outcome;
}

} // namespace shardplan::exec
