#include "simulator/io/cell_reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim::detail {
namespace {

/// Parameters of a model and bytes are the largest counts of a record; products of two others stay
/// far below what 64 bits hold.
constexpr std::int64_t largest_count = std::int64_t{1} << 50;
constexpr std::int64_t largest_size = std::int64_t{1} << 31;

bool is_blank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

} // namespace

CellReader::CellReader(std::optional<JsonValue> object, std::vector<Error>& problems)
    : object_(std::move(object)), problems_(&problems) {
    if (object_ && object_->is_null()) {
        object_.reset();
    }
    if (object_ && !object_->is_object()) {
        report(*object_, "this must be an object");
        object_.reset();
    }
}

void CellReader::get(std::string_view key, std::optional<std::int64_t>& out) const {
    const auto cell = find(key);
    if (!cell) {
        return;
    }
    const auto number = cell->as_int();
    if (!number) {
        report(*cell, "this must be a whole number");
    } else if (*number < 0) {
        report(*cell, "this must not be negative");
    } else if (*number > (key.starts_with("params") || key.ends_with("_bytes") ? largest_count
                                                                               : largest_size)) {
        report(*cell, "this is larger than any model, cluster or layout");
    } else {
        out = *number;
    }
}

void CellReader::get(std::string_view key, std::optional<double>& out) const {
    const auto cell = find(key);
    if (!cell) {
        return;
    }
    const auto number = cell->as_double();
    if (!number) {
        report(*cell, "this must be a number");
    } else if (!std::isfinite(*number) || *number < 0.0) {
        report(*cell, "this must be a finite number that is not negative");
    } else {
        out = *number;
    }
}

void CellReader::get(std::string_view key, std::optional<bool>& out) const {
    if (const auto cell = find(key)) {
        if (const auto flag = cell->as_bool()) {
            out = *flag;
        } else {
            report(*cell, "this must be true or false");
        }
    }
}

void CellReader::get(std::string_view key, bool& out) const {
    std::optional<bool> flag;
    get(key, flag);
    out = flag.value_or(out);
}

void CellReader::get(std::string_view key, std::optional<std::string>& out) const {
    if (const auto cell = find(key)) {
        if (const auto text = cell->as_string()) {
            out = *text;
        } else {
            report(*cell, "this must be text");
        }
    }
}

void CellReader::get(std::string_view key, std::string& out) const {
    std::optional<std::string> text;
    get(key, text);
    out = text.value_or(out);
}

void CellReader::get(std::string_view key, std::vector<std::string>& out) const {
    const auto cell = find(key);
    if (!cell) {
        return;
    }
    if (!cell->is_array()) {
        report(*cell, "this must be a list of texts");
        return;
    }
    for (std::size_t i = 0; i < cell->size(); ++i) {
        if (const auto text = cell->at(i).as_string()) {
            out.push_back(*text);
        } else {
            report(cell->at(i), "this must be text");
        }
    }
}

std::vector<CellReader> CellReader::items(std::string_view key) const {
    std::vector<CellReader> out;
    const auto cell = find(key);
    if (cell && !cell->is_array()) {
        report(*cell, "this must be a list");
    } else if (cell) {
        for (std::size_t i = 0; i < cell->size(); ++i) {
            out.emplace_back(cell->at(i), *problems_);
        }
    }
    return out;
}

std::optional<JsonValue> CellReader::find(std::string_view key) const {
    auto cell = object_ ? object_->find(key) : std::nullopt;
    if (cell && cell->is_null()) {
        cell.reset();
    }
    return cell;
}

void CellReader::report(const JsonValue& cell, std::string_view what) const {
    problems_->push_back({ErrorCode::bad_input, cell.where(),
                          std::string(what) + ", found " + in_quotes(cell.text()),
                          "the value is taken as not known; write null if it is not"});
}

void for_each_line(std::string_view text, std::string_view source_name,
                   std::vector<Error>& problems,
                   const std::function<void(const JsonValue&, std::int64_t)>& take) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) {
        text.remove_prefix(byte_order_mark.size());
    }
    std::int64_t line_number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++line_number;
        if (is_blank(line)) {
            continue;
        }
        const std::string where = std::string(source_name) + ":" + std::to_string(line_number);
        const auto json = JsonValue::parse(line, where);
        if (!json) {
            Error lost = json.error();
            lost.hint = "this line is left out; each line must be one whole JSON object";
            problems.push_back(std::move(lost));
        } else if (!json->is_object()) {
            problems.push_back({ErrorCode::bad_input, where, "this line is not a JSON object",
                                "it is left out; write one record per line as {\"id\": ...}"});
        } else {
            take(*json, line_number);
        }
    }
}

Error no_record(std::string_view source_name, const std::vector<Error>& problems,
                std::string_view what, std::string_view parts) {
    if (!problems.empty()) {
        Error first = problems.front();
        first.hint =
            "no line of the file is a " + std::string(what) + "; write one JSON object per line";
        return first;
    }
    return Error{ErrorCode::bad_input, std::string(source_name),
                 "there is no " + std::string(what) + " in it",
                 "write one JSON object per line, with " + std::string(parts)};
}

} // namespace shardplan::sim::detail
