#include "simulator/units/nearest.hpp"

#include <algorithm>
#include <cstddef>

namespace shardplan::sim {

namespace {

/// Names longer than this are not compared: no name of ours comes near, and the table of the edit
/// distance grows with the product of the lengths.
constexpr std::size_t longest_name = 128;
constexpr std::size_t listed_candidates = 12;

/// Lower case without the signs people leave out or swap.
std::string plain(std::string_view name) {
    std::string out;
    for (const char c : name) {
        if (c == '-' || c == '_' || c == ' ' || c == '.' || c == '/') {
            continue;
        }
        out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) {
        last[j] = j;
    }
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before_last[j - 2] + 1);
            }
        }
        std::swap(before_last, last);
        std::swap(last, row);
    }
    return last[b.size()];
}

/// How far `candidate` is from `name` (both plain); nothing if too far to be meant. Slips weigh
/// more than a missing rest, since people shorten names on purpose.
std::optional<double> remoteness(std::string_view name, std::string_view candidate) {
    if (name.empty() || candidate.empty() || candidate.size() > longest_name) {
        return std::nullopt;
    }
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t distance = edit_distance(name, candidate);
    std::optional<double> best;
    if (distance <= std::max<std::size_t>(1, longer / 3)) {
        best = static_cast<double>(distance);
    }
    if (name.size() >= 2 && candidate.find(name) != std::string_view::npos) {
        const double left_out = static_cast<double>(candidate.size() - name.size());
        const double contained = (candidate.substr(0, name.size()) == name ? 1.0 : 1.5) +
                                 left_out / static_cast<double>(longest_name);
        best = std::min(best.value_or(contained), contained);
    }
    if (candidate.size() >= 3 && name.find(candidate) != std::string_view::npos) {
        const double added = static_cast<double>(name.size() - candidate.size());
        const double containing = 2.0 + added / static_cast<double>(longest_name);
        best = std::min(best.value_or(containing), containing);
    }
    return best;
}

template <class Candidates>
std::optional<std::string> nearest(std::string_view name, const Candidates& candidates) {
    if (name.size() > longest_name) {
        return std::nullopt;
    }
    const std::string wanted = plain(name);
    std::optional<double> best;
    std::optional<std::string> found;
    for (const auto& candidate : candidates) {
        const auto distance = remoteness(wanted, plain(candidate));
        if (distance && (!best || *distance < *best)) {
            best = distance;
            found = std::string(candidate);
        }
    }
    return found;
}

template <class Candidates>
std::string hint(std::string_view name, const Candidates& candidates) {
    if (const auto found = nearest(name, candidates)) {
        return "did you mean \"" + *found + "\"?";
    }
    std::string text;
    std::size_t listed = 0;
    for (const auto& candidate : candidates) {
        if (listed == listed_candidates) {
            text += ", and " + std::to_string(candidates.size() - listed) + " more";
            break;
        }
        text += listed == 0 ? "one of: " : ", ";
        text += candidate;
        ++listed;
    }
    return text;
}

} // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string_view> candidates) {
    return nearest(name, candidates);
}
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& candidates) {
    return nearest(name, candidates);
}
std::string nearest_hint(std::string_view name, std::span<const std::string_view> candidates) {
    return hint(name, candidates);
}
std::string nearest_hint(std::string_view name, const std::vector<std::string>& candidates) {
    return hint(name, candidates);
}

} // namespace shardplan::sim
