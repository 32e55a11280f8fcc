#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace shardplan::sim {

/// Links, and the routes over them that flows take.
struct LinkTable {
    std::vector<double> capacity;          ///< bytes/s, by link
    std::vector<std::uint32_t> first_link; ///< by route, and one past the last
    std::vector<std::uint32_t> links;      ///< of all routes; a route names a link once

    /// Appends a route; its index.
    std::uint32_t add_route(const std::vector<std::uint32_t>& over);
    [[nodiscard]] std::size_t routes() const {
        return first_link.empty() ? 0 : first_link.size() - 1;
    }
    friend bool operator==(const LinkTable&, const LinkTable&) = default;
};

/// One flow for `max_min_rates`.
struct Demand {
    std::uint32_t route = 0;
    double cap = 0.0; ///< bytes/s it reaches alone
    friend bool operator==(const Demand&, const Demand&) = default;
};

/// Max-min fair rates of all flows at once, by progressive filling: all rates rise together until a
/// link is full or a flow reaches its cap. Source: Bertsekas and Gallager, Data Networks, 6.5.2.
std::vector<double> max_min_rates(const LinkTable& table, const std::vector<Demand>& flows);

/// Flows that come and go on shared links. After each change only those flows are filled again
/// that the change can reach: over links they share, and not below the rate at which the filling
/// first differs. Rates equal those of `max_min_rates`.
class FairShare {
public:
    explicit FairShare(const LinkTable& table);

    /// A flow of `bytes` that reaches `cap` bytes/s alone. Times never go back.
    void start(double now, std::uint32_t id, std::uint32_t route, double bytes, double cap);
    /// When the next flow ends if nothing changes; infinity: there is none.
    [[nodiscard]] double next_end() const { return next_end_; }
    /// Ends that flow and returns its id; equal ends in the order of starting slots.
    std::uint32_t finish_next();

    [[nodiscard]] std::size_t size() const { return flows_.size(); }
    /// Rate of the flow in a slot, 0 <= slot < size().
    [[nodiscard]] double rate(std::size_t slot) const { return flows_[slot].rate; }
    [[nodiscard]] Demand demand(std::size_t slot) const {
        return {flows_[slot].route, flows_[slot].cap};
    }
    /// Bytes per second on a link now.
    [[nodiscard]] double load(std::uint32_t link) const;

private:
    struct Flow {
        std::uint32_t id = 0;
        std::uint32_t route = 0;
        double left = 0.0; ///< bytes at `since`
        double since = 0.0;
        double rate = 0.0;
        double cap = 0.0;
        std::uint32_t mark = 0;
        std::vector<std::uint32_t> places; ///< by link of the route: index among the link's flows
    };
    struct Link {
        double capacity = 0.0;
        std::vector<std::uint32_t> flows; ///< slots
        // while filling
        double left = 0.0;
        std::uint32_t open = 0;
        std::uint32_t mark = 0;
    };

    /// The level at which a link would be full with one more flow, the others at their rates.
    [[nodiscard]] double first_full(const Link& link) const;
    /// Fills again what is reached from the links of a route, at rates of `level` and more.
    void refill(double now, std::uint32_t route, double level);
    void collect(std::uint32_t route, double level);
    void fill();
    void freeze(std::size_t index, double rate);
    void set_next();

    const LinkTable& table_;
    std::vector<Flow> flows_;
    std::vector<double> ends_; ///< by slot
    std::vector<Link> links_;
    std::vector<std::vector<std::uint32_t>> spare_; ///< `places` of flows that are gone
    double next_end_ = std::numeric_limits<double>::infinity();
    std::uint32_t next_slot_ = 0;
    std::uint32_t epoch_ = 0;
    // scratch of refill
    std::vector<std::uint32_t> reached_links_;
    std::vector<std::uint32_t> reached_flows_;
    std::vector<std::uint32_t> open_flows_; ///< slots not yet at their rate
    std::vector<double> new_rate_;          ///< by slot
};

} // namespace shardplan::sim
