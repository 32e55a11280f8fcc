#pragma once

#include <string>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/spec/job.hpp"

namespace shardplan::plan {

/// One layout of a ranking.
struct Plan {
    sim::Layout layout;
    sim::Score score;
    std::string text; ///< canonical text form

    friend bool operator==(const Plan&, const Plan&) = default;
};

/// What the ranking compares, smaller is better: seconds of a step, money (device seconds where no
/// price is known), or peak less usable bytes.
double objective_value(sim::Objective objective, const sim::Layout& layout,
                       const sim::Score& score);

/// The best `limit` layouts of a stream, best first; the order of equals is that of their texts, so
/// that it does not matter in which order they came. The text of a layout is written only if it
/// stays, or to settle a tie.
class Ranking {
public:
    Ranking(std::size_t limit, const sim::LayoutTables& tables) : limit_(limit), tables_(&tables) {}

    void offer(double value, const sim::Layout& layout, const sim::Score& score);
    void merge(const Ranking& other);

    struct Entry {
        double value = 0.0;
        Plan plan;
    };
    [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
    /// False: it would not stay.
    [[nodiscard]] bool takes(double value) const {
        return limit_ > 0 && (entries_.size() < limit_ || value <= entries_.back().value);
    }

private:
    void insert(Entry entry);

    std::size_t limit_;
    const sim::LayoutTables* tables_;
    std::vector<Entry> entries_;
};

/// The layouts that no other one beats in step time, memory to spare and cost at once. Of layouts
/// equal in all three the first by text stays.
class Front {
public:
    explicit Front(const sim::LayoutTables& tables) : tables_(&tables) {}

    void offer(const sim::Layout& layout, const sim::Score& score);
    void merge(const Front& other);
    /// Would a layout with these figures, or slower and dearer, be beaten in step time by one that
    /// has no less memory to spare and costs no more?
    [[nodiscard]] bool beats(const sim::Layout& layout, const sim::Score& score) const;
    /// Fastest first.
    [[nodiscard]] std::vector<Plan> plans() const;

private:
    struct Point {
        double time = 0.0;
        double memory = 0.0; ///< peak less usable
        double cost = 0.0;
        sim::Layout layout;
        sim::Score score;
    };
    static Point point_of(const sim::Layout& layout, const sim::Score& score);
    void insert(const Point& point);

    const sim::LayoutTables* tables_;
    std::vector<Point> points_; ///< those that beat others lately in front
};

} // namespace shardplan::plan
