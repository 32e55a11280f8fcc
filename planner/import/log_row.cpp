#include "planner/import/log_row.hpp"

#include <algorithm>

#include "planner/import/import_text.hpp"

namespace shardplan::plan {
namespace {

/// "-1[0]": the tag of a rank grew onto a number.
std::string_view without_rank(std::string_view word) {
    if (word.ends_with("]")) {
        return word.substr(0, word.find('['));
    }
    return word;
}

bool is_number(std::string_view word) {
    const std::string_view bare = without_rank(word);
    return bare == "N/A" || text::decimal(bare).has_value();
}

/// A rank's tag that stands alone between columns.
bool is_tag(std::string_view word) {
    return word.size() > 2 && word.front() == '[' && word.back() == ']';
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Words behind size, count, type and operation, without tags.
std::vector<std::string_view> figures_of(const std::vector<std::string>& words, bool has_root) {
    std::vector<std::string_view> out;
    for (std::size_t i = 3; i < words.size(); ++i) {
        const std::string_view bare = without_rank(words[i]);
        const bool operation = i == 3 && !bare.empty() && is_letter(bare.front()) && bare != "N/A";
        if (!operation && !is_tag(words[i])) {
            out.push_back(bare);
        }
    }
    if (has_root && !out.empty()) {
        out.erase(out.begin());
    }
    return out;
}

/// Columns of one half: three where the program does not check its results.
constexpr std::size_t half = 4;

std::optional<LogTiming> timing_at(const std::vector<std::string_view>& figures, std::size_t at) {
    if (at + 3 > figures.size()) {
        return std::nullopt;
    }
    const auto time = text::decimal(figures[at]);
    const auto algbw = text::decimal(figures[at + 1]);
    const auto busbw = text::decimal(figures[at + 2]);
    constexpr double most = 1e12;
    if (!time || !algbw || !busbw || *time <= 0.0 || *algbw < 0.0 || *busbw < 0.0 || *time > most ||
        *algbw > most || *busbw > most) {
        return std::nullopt;
    }
    LogTiming timing{*time, *algbw, *busbw, std::nullopt};
    if (at + 3 < figures.size()) {
        timing.wrong = text::decimal(figures[at + 3]);
    }
    return timing;
}

} // namespace

std::string_view without_tags(std::string_view line) {
    std::string_view body = line;
    if (body.starts_with("[")) { // "[1,0]<stdout>:" of Open MPI
        const std::size_t close = body.find(">:");
        if (close != std::string_view::npos && body.find('<') < close && close < 40) {
            return body.substr(close + 2);
        }
    }
    const std::string_view trimmed = text::trim(body);
    const std::size_t colon = trimmed.find(": ");
    // "3: " of srun --label, "node-7: " of pdsh; not "NCCL version: ..." or "# ...".
    if (colon != std::string_view::npos && colon > 0 && colon < 40 && trimmed.front() != '#' &&
        trimmed.substr(0, colon).find_first_of(" \t:") == std::string_view::npos) {
        return trimmed.substr(colon + 2);
    }
    return body;
}

bool begins_row(const std::vector<std::string_view>& words) {
    if (words.size() < 3) {
        return false;
    }
    const auto size = text::whole(words[0]);
    const auto count = text::whole(words[1]);
    return size && count && *size >= 0 && *count >= 0 && is_letter(words[2].front()) &&
           words[2] != "N/A";
}

bool goes_on(const std::vector<std::string_view>& words) {
    return !words.empty() && std::all_of(words.begin(), words.end(), [](std::string_view word) {
        return is_number(word) || is_tag(word);
    });
}

bool is_whole(const std::vector<std::string>& words, bool has_root) {
    return figures_of(words, has_root).size() >= 2 * half;
}

std::optional<LogRow> read_row(const std::vector<std::string>& words, bool has_root) {
    const auto figures = figures_of(words, has_root);
    LogRow row;
    row.size = text::whole(words[0]).value_or(0);
    row.type = words[2];
    const std::size_t width = figures.size() == 6 ? 3 : half;
    row.out_of_place = timing_at(figures, 0);
    row.in_place = timing_at(figures, width);
    row.broken = figures.size() > width && !row.in_place;
    if (!row.out_of_place && !row.in_place) {
        return std::nullopt;
    }
    if (!row.out_of_place) {
        row.broken = true;
    }
    return row;
}

} // namespace shardplan::plan
