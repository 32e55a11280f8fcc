#include "simulator/engine/fair_share.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
/// Rates this close are one rate: the filling adds up in another order than the one before it.
constexpr double same = 1.0 - 1e-9;

} // namespace

std::uint32_t LinkTable::add_route(const std::vector<std::uint32_t>& over) {
    if (first_link.empty()) first_link.push_back(0);
    links.insert(links.end(), over.begin(), over.end());
    first_link.push_back(static_cast<std::uint32_t>(links.size()));
    return static_cast<std::uint32_t>(first_link.size() - 2);
}

std::vector<double> max_min_rates(const LinkTable& table, const std::vector<Demand>& flows) {
    std::vector<double> rate(flows.size(), -1.0);
    std::vector<double> left = table.capacity;
    std::vector<std::size_t> open(table.capacity.size(), 0);
    const auto each_link = [&](std::size_t flow, auto&& visit) {
        const std::uint32_t route = flows[flow].route;
        for (std::uint32_t i = table.first_link[route]; i < table.first_link[route + 1]; ++i) {
            visit(table.links[i]);
        }
    };
    for (std::size_t f = 0; f < flows.size(); ++f) {
        each_link(f, [&](std::uint32_t link) { ++open[link]; });
    }
    for (std::size_t fixed = 0; fixed < flows.size();) {
        double level = infinity;
        std::size_t full = table.capacity.size();
        for (std::size_t l = 0; l < open.size(); ++l) {
            if (open[l] == 0) continue;
            const double share = left[l] / static_cast<double>(open[l]);
            if (share < level) {
                level = share;
                full = l;
            }
        }
        std::size_t chosen = flows.size();
        for (std::size_t f = 0; f < flows.size(); ++f) {
            if (rate[f] < 0.0 && flows[f].cap <= level) {
                level = flows[f].cap;
                chosen = f;
            }
        }
        for (std::size_t f = 0; f < flows.size(); ++f) {
            if (rate[f] >= 0.0) continue;
            bool stops = f == chosen;
            if (chosen == flows.size()) {
                each_link(f, [&](std::uint32_t link) { stops = stops || link == full; });
            }
            if (!stops) continue;
            rate[f] = level;
            ++fixed;
            each_link(f, [&](std::uint32_t link) {
                left[link] -= level;
                --open[link];
            });
        }
    }
    return rate;
}

FairShare::FairShare(const LinkTable& table) : table_(table), links_(table.capacity.size()) {
    for (std::size_t i = 0; i < links_.size(); ++i)
        links_[i].capacity = table.capacity[i];
}

double FairShare::load(std::uint32_t link) const {
    double sum = 0.0;
    for (const std::uint32_t slot : links_[link].flows)
        sum += flows_[slot].rate;
    return sum;
}

double FairShare::first_full(const Link& link) const {
    // load(x) = sum of min(rate, x) over the flows + x rises with x; slower flows are set aside
    // until no more of them fall below the level
    double left = link.capacity;
    double others = 1.0;
    for (const std::uint32_t slot : link.flows)
        others += flows_[slot].rate > 0.0 ? 1.0 : 0.0;
    double level = left / others;
    for (;;) {
        double below = 0.0;
        double above = 1.0;
        for (const std::uint32_t slot : link.flows) {
            const double rate = flows_[slot].rate;
            if (rate < level) {
                below += rate;
            } else {
                above += 1.0;
            }
        }
        const double next = (left - below) / above;
        if (next <= level) return level;
        level = next;
    }
}

void FairShare::start(double now, std::uint32_t id, std::uint32_t route, double bytes, double cap) {
    const std::uint32_t begin = table_.first_link[route];
    const std::uint32_t end = table_.first_link[route + 1];
    double level = cap;
    for (std::uint32_t i = begin; i < end; ++i) {
        level = std::min(level, first_full(links_[table_.links[i]]));
    }
    const auto slot = static_cast<std::uint32_t>(flows_.size());
    Flow& flow = flows_.emplace_back();
    if (!spare_.empty()) {
        flow.places = std::move(spare_.back());
        spare_.pop_back();
    }
    flow.places.clear();
    flow.id = id;
    flow.route = route;
    flow.left = bytes;
    flow.since = now;
    flow.cap = cap;
    for (std::uint32_t i = begin; i < end; ++i) {
        std::vector<std::uint32_t>& on_link = links_[table_.links[i]].flows;
        flow.places.push_back(static_cast<std::uint32_t>(on_link.size()));
        on_link.push_back(slot);
    }
    ends_.push_back(infinity);
    new_rate_.push_back(0.0);
    flow.rate = infinity; // reached whatever the level
    refill(now, route, level);
}

std::uint32_t FairShare::finish_next() {
    const double now = next_end_;
    const std::uint32_t slot = next_slot_;
    Flow& gone = flows_[slot];
    const std::uint32_t id = gone.id;
    const std::uint32_t route = gone.route;
    const double level = gone.rate;
    const std::uint32_t begin = table_.first_link[route];
    for (std::size_t i = 0; i < gone.places.size(); ++i) {
        std::vector<std::uint32_t>& on_link = links_[table_.links[begin + i]].flows;
        const std::uint32_t moved = on_link.back();
        on_link[gone.places[i]] = moved;
        on_link.pop_back();
        if (moved == slot) continue;
        Flow& other = flows_[moved];
        const std::uint32_t first = table_.first_link[other.route];
        for (std::size_t k = 0; k < other.places.size(); ++k) {
            if (table_.links[first + k] == table_.links[begin + i]) {
                other.places[k] = gone.places[i];
            }
        }
    }
    spare_.push_back(std::move(gone.places));
    const auto last = static_cast<std::uint32_t>(flows_.size() - 1);
    if (slot != last) {
        flows_[slot] = std::move(flows_[last]);
        ends_[slot] = ends_[last];
        const Flow& moved = flows_[slot];
        const std::uint32_t first = table_.first_link[moved.route];
        for (std::size_t k = 0; k < moved.places.size(); ++k) {
            links_[table_.links[first + k]].flows[moved.places[k]] = slot;
        }
    }
    flows_.pop_back();
    ends_.pop_back();
    new_rate_.pop_back();
    refill(now, route, level);
    return id;
}

void FairShare::collect(std::uint32_t route, double level) {
    ++epoch_;
    reached_links_.clear();
    reached_flows_.clear();
    const auto reach = [&](std::uint32_t of) {
        for (std::uint32_t i = table_.first_link[of]; i < table_.first_link[of + 1]; ++i) {
            Link& link = links_[table_.links[i]];
            if (link.mark == epoch_) continue;
            link.mark = epoch_;
            reached_links_.push_back(table_.links[i]);
        }
    };
    reach(route);
    const double least = level * same;
    for (std::size_t i = 0; i < reached_links_.size(); ++i) {
        Link& link = links_[reached_links_[i]];
        link.left = link.capacity;
        link.open = 0;
        for (const std::uint32_t slot : link.flows) {
            Flow& flow = flows_[slot];
            if (flow.rate < least) {
                link.left -= flow.rate;
                continue;
            }
            ++link.open;
            if (flow.mark == epoch_) continue;
            flow.mark = epoch_;
            reached_flows_.push_back(slot);
            reach(flow.route);
        }
    }
    // a flow without links is reached by its own start only
    if (!flows_.empty() && flows_.back().mark != epoch_ && flows_.back().rate == infinity) {
        flows_.back().mark = epoch_;
        reached_flows_.push_back(static_cast<std::uint32_t>(flows_.size() - 1));
    }
}

void FairShare::freeze(std::size_t index, double rate) {
    const std::uint32_t slot = open_flows_[index];
    new_rate_[slot] = rate;
    const std::uint32_t route = flows_[slot].route;
    for (std::uint32_t i = table_.first_link[route]; i < table_.first_link[route + 1]; ++i) {
        Link& link = links_[table_.links[i]];
        link.left -= rate;
        --link.open;
    }
    flows_[slot].mark = 0; // settled
    open_flows_[index] = open_flows_.back();
    open_flows_.pop_back();
}

void FairShare::fill() {
    open_flows_ = reached_flows_;
    while (!open_flows_.empty()) {
        double level = infinity;
        std::uint32_t full = 0;
        for (std::size_t i = 0; i < reached_links_.size();) {
            const Link& link = links_[reached_links_[i]];
            if (link.open == 0) {
                reached_links_[i] = reached_links_.back();
                reached_links_.pop_back();
                continue;
            }
            const double share = link.left / static_cast<double>(link.open);
            if (share < level) {
                level = share;
                full = reached_links_[i];
            }
            ++i;
        }
        bool capped = false;
        for (std::size_t i = 0; i < open_flows_.size();) {
            const double cap = flows_[open_flows_[i]].cap;
            if (cap <= level) {
                freeze(i, cap);
                capped = true;
            } else {
                ++i;
            }
        }
        if (capped) continue;
        // whoever crosses the full link stops here
        for (const std::uint32_t slot : links_[full].flows) {
            if (flows_[slot].mark == epoch_) new_rate_[slot] = -1.0;
        }
        for (std::size_t i = 0; i < open_flows_.size();) {
            if (new_rate_[open_flows_[i]] < 0.0) {
                freeze(i, std::max(0.0, level));
            } else {
                ++i;
            }
        }
    }
}

void FairShare::refill(double now, std::uint32_t route, double level) {
    collect(route, level);
    for (const std::uint32_t slot : reached_flows_)
        new_rate_[slot] = 0.0;
    fill();
    for (const std::uint32_t slot : reached_flows_) {
        Flow& flow = flows_[slot];
        const double rate = new_rate_[slot];
        if (rate == flow.rate) continue;
        if (flow.rate < infinity) flow.left -= (now - flow.since) * flow.rate;
        flow.since = now;
        flow.rate = rate;
        ends_[slot] = flow.left <= 0.0 ? now : now + flow.left / rate;
    }
    set_next();
}

void FairShare::set_next() {
    next_end_ = infinity;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
        if (ends_[i] < next_end_) {
            next_end_ = ends_[i];
            next_slot_ = static_cast<std::uint32_t>(i);
        }
    }
}

} // namespace shardplan::sim
