#include "planner/search/ranking.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace shardplan::plan {

double objective_value(sim::Objective objective, const sim::Layout& layout,
                       const sim::Score& score) {
    switch (objective) {
        case sim::Objective::time:
            return score.step_time.value();
        case sim::Objective::cost:
            return score.money_per_million_tokens > 0.0
                       ? score.money_per_million_tokens
                       : score.step_time.value() * static_cast<double>(sim::rank_count(layout));
        case sim::Objective::headroom:
            return (score.peak - score.usable).value();
    }
    return score.step_time.value();
}

namespace {

bool before(const Ranking::Entry& a, const Ranking::Entry& b) {
    return a.value != b.value ? a.value < b.value : a.plan.text < b.plan.text;
}

} // namespace

void Ranking::offer(double value, const sim::Layout& layout, const sim::Score& score) {
    if (takes(value)) {
        insert({value, {layout, score, sim::to_text(layout, *tables_)}});
    }
}

void Ranking::merge(const Ranking& other) {
    for (const Entry& entry : other.entries_) {
        insert(entry);
    }
}

void Ranking::insert(Entry entry) {
    const auto at = std::upper_bound(entries_.begin(), entries_.end(), entry, before);
    entries_.insert(at, std::move(entry));
    if (entries_.size() > limit_) {
        entries_.pop_back();
    }
}

Front::Point Front::point_of(const sim::Layout& layout, const sim::Score& score) {
    return {score.step_time.value(), objective_value(sim::Objective::headroom, layout, score),
            objective_value(sim::Objective::cost, layout, score), layout, score};
}

void Front::offer(const sim::Layout& layout, const sim::Score& score) {
    insert(point_of(layout, score));
}

void Front::merge(const Front& other) {
    for (const Point& point : other.points_) {
        insert(point);
    }
}

bool Front::beats(const sim::Layout& layout, const sim::Score& score) const {
    const Point point = point_of(layout, score);
    const auto at = std::find_if(points_.begin(), points_.end(), [&](const Point& known) {
        return known.time < point.time && known.memory <= point.memory && known.cost <= point.cost;
    });
    return at != points_.end();
}

void Front::insert(const Point& point) {
    const auto no_worse = [](const Point& a, const Point& b) {
        return a.time <= b.time && a.memory <= b.memory && a.cost <= b.cost;
    };
    for (std::size_t i = 0; i < points_.size(); ++i) {
        Point& known = points_[i];
        if (!no_worse(known, point)) {
            continue;
        }
        if (no_worse(point, known)) {
            // equal in everything
            if (sim::to_text(point.layout, *tables_) < sim::to_text(known.layout, *tables_)) {
                known = point;
            }
        } else if (i > 0) {
            std::swap(points_[i], points_[i / 2]);
        }
        return;
    }
    std::erase_if(points_, [&](const Point& known) { return no_worse(point, known); });
    points_.push_back(point);
}

std::vector<Plan> Front::plans() const {
    std::vector<Plan> out;
    for (const Point& point : points_) {
        out.push_back({point.layout, point.score, sim::to_text(point.layout, *tables_)});
    }
    std::sort(out.begin(), out.end(), [](const Plan& a, const Plan& b) {
        return std::tuple(a.score.step_time, (a.score.peak - a.score.usable), a.text) <
               std::tuple(b.score.step_time, (b.score.peak - b.score.usable), b.text);
    });
    return out;
}

} // namespace shardplan::plan
