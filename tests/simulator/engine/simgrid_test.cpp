#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "simulator/engine/play.hpp"

namespace {

using namespace shardplan::sim;

/// Two groups of flows and a single one share a link of 25 GB/s: four of 10 GB from 0 s behind
/// cards of 12.5 GB/s, two of 4 GB from 0.5 s behind one link of 4 GB/s, one of 20 GB from 1 s.
struct Flow {
    double start;    ///< s
    double bytes;    ///< GB
    int own_link;    ///< -1: none
    double simgrid;  ///< s it ends at under SimGrid 3.32, model CM02
    double with_tcp; ///< the same under LV08, which keeps 3 % of every link for headers
};
constexpr Flow flows[] = {
    {0.0, 10.0, 0, 2.011905, 2.085542},  {0.0, 10.0, 1, 2.011905, 2.085542},
    {0.0, 10.0, 2, 2.011905, 2.085542},  {0.0, 10.0, 3, 2.011905, 2.085542},
    {0.5, 4.0, 4, 2.500000, 2.561856},   {0.5, 4.0, 4, 2.500000, 2.561856},
    {1.0, 20.0, -1, 2.720000, 2.804124},
};

TEST(SimGrid, TwoGroupsThatShareALinkEndWhenSimGridSays) {
    TaskGraph g;
    TaskCosts costs;
    costs.links.capacity = {25.0, 12.5, 12.5, 12.5, 12.5, 4.0};
    g.first_successor = {0};
    g.first_on_stream = {0};
    for (const Flow& flow : flows) {
        const auto stream = static_cast<std::uint32_t>(g.first_on_stream.size() - 1);
        std::vector<std::uint32_t> over = {0};
        if (flow.own_link >= 0) over.push_back(static_cast<std::uint32_t>(1 + flow.own_link));
        // a pause, then the flow
        for (const bool moves : {false, true}) {
            g.on_stream.push_back(static_cast<std::uint32_t>(g.stream.size()));
            g.stream.push_back(stream);
            g.waits.push_back(0);
            g.first_successor.push_back(0);
            constexpr double alone = 1000.0; // GB/s: nothing but the links holds it back
            costs.seconds.push_back(moves ? flow.bytes / alone : flow.start);
            costs.bytes.push_back(moves ? flow.bytes : 0.0);
            costs.route.push_back(moves ? costs.links.add_route(over) : no_route);
        }
        g.first_on_stream.push_back(static_cast<std::uint32_t>(g.on_stream.size()));
    }
    const auto p = play(g, costs);
    ASSERT_TRUE(p);
    for (std::size_t i = 0; i < std::size(flows); ++i) {
        EXPECT_NEAR(flows[i].simgrid, p->finish[2 * i + 1], 1e-3) << i;
        EXPECT_NEAR(flows[i].with_tcp, p->finish[2 * i + 1], 0.05 * flows[i].with_tcp) << i;
    }
}

} // namespace
