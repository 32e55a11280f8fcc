#pragma once

#include <string_view>

namespace shardplan::plan {

/// How far a long task is: a line for people, or a bar.
struct Progress {
    double fraction = 0.0;    ///< 0 to 1
    std::string_view phase;   ///< one word: "search"
    std::string_view message; ///< one short sentence; valid during the call only
};

/// Where progress goes. Called from the thread that works, and not more than once per piece of
/// work.
class ProgressSink {
public:
    virtual ~ProgressSink() = default;
    virtual void report(const Progress& progress) = 0;
};

} // namespace shardplan::plan
