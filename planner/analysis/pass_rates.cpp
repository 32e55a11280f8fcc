#include "planner/analysis/pass_rates.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace shardplan::plan {
namespace {

using Key = std::pair<std::int64_t, sim::TaskKind>;

struct Work {
    double flops = 0.0;
    double ns = 0.0;

    [[nodiscard]] double per_second() const { return ns > 0.0 ? flops / ns * 1e9 : 0.0; }
};

bool is_exchange(const sim::TimelineTrack& track) {
    return track.stream == sim::StreamKind::tp || track.stream == sim::StreamKind::cp ||
           track.stream == sim::StreamKind::ep;
}

/// Exchanges of layers by rank, by time; in a measured timeline they lie inside of passes.
std::map<std::int64_t, std::vector<const sim::Span*>> exchanges_of(const sim::Timeline& timeline) {
    std::map<std::int64_t, std::vector<const sim::Span*>> out;
    for (const sim::Span& span : timeline.spans) {
        const sim::TimelineTrack& track = timeline.tracks[span.track];
        if (is_exchange(track)) out[track.rank].push_back(&span);
    }
    for (auto& [rank, spans] : out) {
        std::sort(spans.begin(), spans.end(),
                  [](const sim::Span* a, const sim::Span* b) { return a->t0 < b->t0; });
    }
    return out;
}

std::map<Key, Work> work_of(const sim::Timeline& timeline) {
    const bool inside = timeline.origin == sim::TimelineOrigin::measured;
    const auto exchanges =
        inside ? exchanges_of(timeline) : std::map<std::int64_t, std::vector<const sim::Span*>>{};
    std::map<Key, Work> out;
    for (const sim::Span& span : timeline.spans) {
        if (span.flops <= 0.0) continue;
        const sim::TimelineTrack& track = timeline.tracks[span.track];
        Work& work = out[{track.stage, span.op}];
        work.flops += span.flops;
        work.ns += static_cast<double>(span.t1 - span.t0);
        const auto own = exchanges.find(track.rank);
        if (own == exchanges.end()) continue;
        auto at = std::lower_bound(own->second.begin(), own->second.end(), span.t0,
                                   [](const sim::Span* e, std::int64_t t) { return e->t0 < t; });
        for (; at != own->second.end() && (*at)->t1 <= span.t1; ++at) {
            work.ns -= static_cast<double>((*at)->t1 - (*at)->t0);
        }
    }
    return out;
}

} // namespace

std::vector<PassRate> pass_rates(const sim::Timeline& predicted, const sim::Timeline& measured) {
    const auto expected = work_of(predicted);
    const auto found = work_of(measured);
    std::vector<PassRate> out;
    for (const auto& [key, work] : expected) {
        const auto same = found.find(key);
        if (same == found.end() || work.ns <= 0.0 || same->second.ns <= 0.0) continue;
        out.push_back({key.first, key.second, work.per_second(), same->second.per_second()});
    }
    return out;
}

} // namespace shardplan::plan
