#include <algorithm>

#include "planner/import/import_text.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan::text {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

Error bad_list(std::string_view list, std::string_view where, std::string why) {
    return Error{ErrorCode::bad_input, std::string(where),
                 in_quotes(list) + " is no list of names: " + std::move(why),
                 "write names and ranges, as in node-[1-9,12]"};
}

Error too_many(std::string_view list, std::string_view where) {
    return bad_list(list, where, "it stands for more than " + std::to_string(most_names));
}

/// Pieces at commas outside of brackets.
sim::Result<std::vector<std::string_view>> pieces_of(std::string_view list,
                                                     std::string_view where) {
    std::vector<std::string_view> out;
    bool inside = false;
    std::size_t start = 0;
    for (std::size_t i = 0; i <= list.size(); ++i) {
        const char c = i < list.size() ? list[i] : ',';
        if (c == '[' || c == ']') {
            if ((c == '[') == inside) {
                return bad_list(list, where, "its brackets do not match");
            }
            inside = c == '[';
        } else if (c == ',' && (!inside || i == list.size())) {
            if (const std::string_view piece = trim(list.substr(start, i - start));
                !piece.empty()) {
                out.push_back(piece);
            }
            start = i + 1;
        }
    }
    if (inside) {
        return bad_list(list, where, "its brackets do not match");
    }
    return out;
}

std::string padded(std::int64_t number, std::size_t width) {
    const std::string digits = std::to_string(number);
    return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

/// "1-3,07" as texts.
sim::Result<std::vector<std::string>> numbers_of(std::string_view inside, std::string_view where) {
    std::vector<std::string> out;
    for (const std::string_view piece : split(inside, ',')) {
        const std::size_t dash = piece.find('-');
        const std::string_view first = piece.substr(0, dash);
        if (dash == std::string_view::npos) {
            if (piece.empty()) {
                return bad_list(inside, where, "a number is missing");
            }
            out.emplace_back(piece);
            continue;
        }
        const auto from = whole(first);
        const auto to = whole(piece.substr(dash + 1));
        if (!from || !to || *from < 0 || *to < *from) {
            return bad_list(inside, where, in_quotes(piece) + " is no range");
        }
        if (*to - *from >= static_cast<std::int64_t>(most_names) || out.size() > most_names) {
            return too_many(inside, where);
        }
        for (std::int64_t i = *from; i <= *to; ++i) {
            out.push_back(padded(i, first.size()));
        }
    }
    return out;
}

} // namespace

sim::Result<std::vector<std::string>> expand_hosts(std::string_view list, std::string_view where) {
    const auto pieces = pieces_of(list, where);
    if (!pieces) {
        return pieces.error();
    }
    std::vector<std::string> out;
    for (std::string_view piece : *pieces) {
        std::vector<std::string> names = {""};
        while (!piece.empty()) {
            const std::size_t open = std::min(piece.find('['), piece.size());
            for (std::string& name : names) {
                name += piece.substr(0, open);
            }
            if (open == piece.size()) {
                break;
            }
            const std::size_t close = piece.find(']', open);
            const auto numbers = numbers_of(piece.substr(open + 1, close - open - 1), where);
            if (!numbers) {
                return numbers.error();
            }
            if (numbers->size() > most_names / names.size()) {
                return too_many(list, where);
            }
            std::vector<std::string> longer;
            for (const std::string& name : names) {
                for (const std::string& number : *numbers) {
                    longer.push_back(name + number);
                }
            }
            names = std::move(longer);
            piece.remove_prefix(close + 1);
        }
        if (out.size() + names.size() > most_names) {
            return too_many(list, where);
        }
        out.insert(out.end(), names.begin(), names.end());
    }
    return out;
}

} // namespace shardplan::plan::text
