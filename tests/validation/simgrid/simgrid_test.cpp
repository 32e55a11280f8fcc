// Collectives played message by message in SimGrid against the closed forms: same platform, same
// algorithm, sizes at which bandwidth decides. SimGrid: flow model CM02, no TCP window, no
// cross-traffic, so that both share the same idea of a link. Built only where SimGrid is found.
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <simgrid/s4u.hpp>

#include "simulator/network/group_path.hpp"

namespace shardplan::test {
namespace {

namespace sg4 = simgrid::s4u;
using sim::Algorithm;
using sim::Collective;

constexpr int nodes = 4;
constexpr int per_node = 4;
constexpr int ranks = nodes * per_node;
constexpr double inner_rate = 300e9; // bytes/s of a device's link to the switch of its node
constexpr double card_rate = 25e9;   // bytes/s of a device's card
constexpr double hop = 1e-6;         // seconds of one link, of which a message passes two
constexpr double size = 4.0 * 1024 * 1024 * 1024;

/// One message each way at the same time.
void exchange(const std::string& tag, int self, int to, int from, double bytes) {
    static int payload = 0;
    int* received = nullptr;
    const auto box = [&](int a, int b) {
        return sg4::Mailbox::by_name(tag + ":" + std::to_string(a) + ">" + std::to_string(b));
    };
    const auto sent = box(self, to)->put_async(&payload, static_cast<std::uint64_t>(bytes));
    const auto got = box(from, self)->get_async<int>(&received);
    sent->wait();
    got->wait();
}

/// `steps` steps around a ring of `n` ranks numbered by `rank_at`.
void turn(const std::string& tag, int position, int n, int steps, double bytes,
          const std::function<int(int)>& rank_at) {
    for (int s = 0; s < steps; ++s) {
        exchange(tag, rank_at(position), rank_at((position + 1) % n),
                 rank_at((position + n - 1) % n), bytes);
    }
}

/// Starts `body` for every rank and gives the seconds until the last is done.
double play(const std::vector<sg4::Host*>& hosts, const std::function<void(int)>& body) {
    const double begin = sg4::Engine::get_clock();
    std::vector<sg4::ActorPtr> actors;
    for (int r = 0; r < ranks; ++r) {
        actors.push_back(sg4::Actor::create("rank", hosts[static_cast<std::size_t>(r)],
                                            [&body, r] { body(r); }));
    }
    for (const sg4::ActorPtr& actor : actors) {
        actor->join();
    }
    return sg4::Engine::get_clock() - begin;
}

/// As many rings as a node has cards, each through all ranks and out over another card.
double flat_ring(const std::vector<sg4::Host*>& hosts) {
    const auto lane = [&](int rank, int k) {
        const std::string tag = "ring" + std::to_string(k);
        const auto rank_at = [k](int p) {
            return p / per_node * per_node + (p % per_node + k) % per_node;
        };
        const int local = (rank % per_node - k + per_node) % per_node;
        turn(tag, rank / per_node * per_node + local, ranks, 2 * (ranks - 1),
             size / per_node / ranks, rank_at);
    };
    return play(hosts, [&](int rank) {
        std::vector<sg4::ActorPtr> lanes;
        for (int k = 0; k < per_node; ++k) {
            lanes.push_back(sg4::Actor::create("lane", sg4::this_actor::get_host(),
                                               [&lane, rank, k] { lane(rank, k); }));
        }
        for (const sg4::ActorPtr& actor : lanes) {
            actor->join();
        }
    });
}

double hierarchical(const std::vector<sg4::Host*>& hosts) {
    return play(hosts, [](int rank) {
        const int node = rank / per_node;
        const int local = rank % per_node;
        const auto inside = [node](int p) { return node * per_node + p; };
        const auto across = [local](int p) { return p * per_node + local; };
        turn("scatter", local, per_node, per_node - 1, size / per_node, inside);
        turn("across", node, nodes, 2 * (nodes - 1), size / per_node / nodes, across);
        turn("gather", local, per_node, per_node - 1, size / per_node, inside);
    });
}

double all_to_all(const std::vector<sg4::Host*>& hosts) {
    return play(hosts, [](int rank) {
        std::vector<sg4::ActorPtr> messages;
        for (int k = 1; k < ranks; ++k) {
            messages.push_back(
                sg4::Actor::create("message", sg4::this_actor::get_host(), [rank, k] {
                    exchange("all" + std::to_string(k), rank, (rank + k) % ranks,
                             (rank + ranks - k) % ranks, size / ranks);
                }));
        }
        for (const sg4::ActorPtr& actor : messages) {
            actor->join();
        }
    });
}

/// Nearest partner first, half of what is left in every round, and back.
double halving_doubling(const std::vector<sg4::Host*>& hosts) {
    return play(hosts, [](int rank) {
        double piece = size;
        for (int distance = 1; distance < ranks; distance *= 2) {
            piece /= 2;
            exchange("halve", rank, rank ^ distance, rank ^ distance, piece);
        }
        for (int distance = ranks / 2; distance >= 1; distance /= 2) {
            exchange("double", rank, rank ^ distance, rank ^ distance, piece);
            piece *= 2;
        }
    });
}

/// Devices whose messages go over the switch inside a node and over the cards between nodes.
std::vector<sg4::Host*> build_platform() {
    auto* zone = sg4::create_full_zone("cluster");
    std::vector<sg4::Host*> hosts;
    std::vector<const sg4::SplitDuplexLink*> inner;
    std::vector<const sg4::SplitDuplexLink*> cards;
    for (int r = 0; r < ranks; ++r) {
        const std::string name = std::to_string(r);
        hosts.push_back(zone->create_host("device" + name, 1e9)->seal());
        auto* link = zone->create_split_duplex_link("inner" + name, inner_rate);
        link->set_latency(hop);
        link->seal();
        inner.push_back(link);
        auto* card = zone->create_split_duplex_link("card" + name, card_rate);
        card->set_latency(hop);
        card->seal();
        cards.push_back(card);
    }
    for (std::size_t a = 0; a < ranks; ++a) {
        for (std::size_t b = 0; b < ranks; ++b) {
            if (a == b) continue;
            const auto& links = a / per_node == b / per_node ? inner : cards;
            const std::vector<sg4::LinkInRoute> route = {
                {links[a], sg4::LinkInRoute::Direction::UP},
                {links[b], sg4::LinkInRoute::Direction::DOWN}};
            zone->add_route(hosts[a]->get_netpoint(), hosts[b]->get_netpoint(), nullptr, nullptr,
                            route, false);
        }
    }
    zone->seal();
    return hosts;
}

/// SimGrid knows one simulation per process, so one plays everything.
const std::map<std::string, double>& played() {
    static const std::map<std::string, double> seconds = [] {
        int count = 1;
        std::string name = "simgrid_test";
        std::array<char*, 2> arguments = {name.data(), nullptr};
        sg4::Engine engine(&count, arguments.data());
        sg4::Engine::set_config("network/model:CM02");
        sg4::Engine::set_config("network/TCP-gamma:0");
        sg4::Engine::set_config("network/crosstraffic:no");
        const std::vector<sg4::Host*> hosts = build_platform();
        std::map<std::string, double> out;
        sg4::Actor::create("director", hosts.front(), [&] {
            out["ring"] = flat_ring(hosts);
            out["hierarchical"] = hierarchical(hosts);
            out["all_to_all"] = all_to_all(hosts);
            out["halving_doubling"] = halving_doubling(hosts);
        });
        engine.run();
        return out;
    }();
    return seconds;
}

double predicted(Algorithm algorithm, Collective op) {
    sim::PathLevel inner;
    inner.members = per_node;
    inner.per_rank = inner.per_link = sim::Bandwidth(inner_rate);
    inner.step_latency = sim::Seconds(2 * hop);
    inner.is_scaleup = true;
    sim::PathLevel outer = inner;
    outer.members = nodes;
    outer.per_rank = outer.per_link = sim::Bandwidth(card_rate);
    outer.is_scaleup = false;
    sim::GroupPath path;
    path.ranks = ranks;
    path.levels = {inner, outer};
    path.algorithms = 1U << static_cast<unsigned>(algorithm);
    return collective_time(path, op, sim::Bytes(size)).value();
}

void expect_near(const char* name, Algorithm algorithm, Collective op) {
    const double simulated = played().at(name);
    const double ours = predicted(algorithm, op);
    std::cout << name << ": SimGrid " << simulated * 1e3 << " ms, closed form " << ours * 1e3
              << " ms\n";
    EXPECT_NEAR(ours / simulated, 1.0, 0.05) << name;
}

TEST(SimGrid, PlaysTheFlatRingInTheTimeOfTheClosedForm) {
    expect_near("ring", Algorithm::ring, Collective::all_reduce);
}

TEST(SimGrid, PlaysTheHierarchicalAllReduceInTheTimeOfTheClosedForm) {
    expect_near("hierarchical", Algorithm::hierarchical, Collective::all_reduce);
}

TEST(SimGrid, PlaysAllToAllInTheTimeOfTheClosedForm) {
    expect_near("all_to_all", Algorithm::ring, Collective::all_to_all);
}

TEST(SimGrid, PlaysHalvingAndDoublingInTheTimeOfTheClosedForm) {
    expect_near("halving_doubling", Algorithm::halving_doubling, Collective::all_reduce);
}

} // namespace
} // namespace shardplan::test
