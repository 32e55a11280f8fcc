#include "planner/analysis/knob_search.hpp"

#include <algorithm>

namespace shardplan::plan {

void search(std::vector<Knob>& knobs, const std::function<double()>& misfit) {
    constexpr int rounds = 40;
    constexpr double first_step = 0.4;
    constexpr double smallest_step = 0.002;
    for (Knob& knob : knobs) {
        knob.step = first_step;
    }
    double best = misfit();
    for (int round = 0; round < rounds; ++round) {
        for (Knob& knob : knobs) {
            if (knob.step < smallest_step) {
                continue;
            }
            const double before = knob.value();
            bool better = false;
            for (const double factor : {1.0 + knob.step, 1.0 / (1.0 + knob.step)}) {
                knob.set(std::clamp(before * factor, knob.lo, knob.hi));
                const double now = misfit();
                if (now < best) {
                    best = now;
                    better = true;
                    break;
                }
                knob.set(before);
            }
            knob.step *= better ? 1.3 : 0.6;
        }
    }
}

} // namespace shardplan::plan
