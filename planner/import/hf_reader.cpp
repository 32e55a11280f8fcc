#include "planner/import/hf_reader.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::plan::hf {

namespace {

/// As the largest width of a model file.
constexpr std::int64_t largest_size = std::int64_t{1} << 28;

/// Cuts the text before the first `separator` off the front of `rest`.
std::string_view next_piece(std::string_view& rest, char separator) {
    const std::size_t end = rest.find(separator);
    const std::string_view piece = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return piece;
}

std::string yes_no(bool value) { return value ? "true" : "false"; }

} // namespace

std::string_view first_key(std::string_view keys) { return next_piece(keys, '|'); }

Reader::Reader(sim::JsonValue object, std::string prefix, std::string class_name,
               Findings& findings)
    : object_(std::move(object)),
      prefix_(std::move(prefix)),
      class_name_(std::move(class_name)),
      findings_(&findings) {}

std::optional<sim::JsonValue> Reader::find(std::string_view keys) {
    while (!keys.empty()) {
        std::string_view path = next_piece(keys, '|');
        const std::string_view top = path.substr(0, path.find('.'));
        std::optional<sim::JsonValue> value = object_;
        while (value && !path.empty()) {
            value = value->find(next_piece(path, '.'));
        }
        if (value && !value->is_null()) {
            used_.insert(std::string(top));
            return value;
        }
        if (outer_ && top == "tie_word_embeddings") {
            const auto around = outer_->find(top);
            if (around && !around->is_null()) {
                return around;
            }
        }
    }
    return std::nullopt;
}

std::optional<std::int64_t> Reader::integer(const sim::JsonValue& value, std::int64_t lo) {
    if (value.is_string()) {
        findings_->fail({sim::ErrorCode::bad_input, value.where(),
                         "a number is needed, not the text " + value.text(),
                         "write the number without quotes"});
        return std::nullopt;
    }
    const sim::Result<std::int64_t> number = value.as_int();
    if (!number) {
        findings_->fail(number.error());
        return std::nullopt;
    }
    if (*number < lo || *number > largest_size) {
        findings_->fail(
            {sim::ErrorCode::bad_input, value.where(),
             std::to_string(*number) + " is not a possible size",
             "a whole number from " + std::to_string(lo) + " to " + std::to_string(largest_size)});
        return std::nullopt;
    }
    return *number;
}

std::int64_t Reader::size(std::string_view keys, std::int64_t class_default) {
    if (const auto value = find(keys)) {
        return integer(*value, 1).value_or(1);
    }
    const std::string key = prefix_ + std::string(first_key(keys));
    if (class_default == no_default) {
        findings_->missing.push_back(key);
        return 1;
    }
    findings_->omitted.emplace_back(first_key(keys));
    findings_->assume(key, std::to_string(class_default), origin(), "the file leaves it out");
    return class_default;
}

std::optional<std::int64_t> Reader::size_if(std::string_view keys, std::int64_t lo) {
    const auto value = find(keys);
    return value ? integer(*value, lo) : std::nullopt;
}

bool Reader::flag(std::string_view keys, bool class_default, std::string_view note) {
    if (const auto stated = flag_if(keys)) {
        return *stated;
    }
    if (!note.empty()) {
        findings_->assume(prefix_ + std::string(first_key(keys)), yes_no(class_default), origin(),
                          std::string(note));
    }
    return class_default;
}

std::optional<bool> Reader::flag_if(std::string_view keys) {
    const auto value = find(keys);
    if (!value) {
        return std::nullopt;
    }
    const sim::Result<bool> stated = value->as_bool();
    if (!stated) {
        findings_->fail(stated.error());
        return std::nullopt;
    }
    return *stated;
}

double Reader::real(std::string_view keys, double class_default, double lo, double hi) {
    const auto value = find(keys);
    if (!value) {
        return class_default;
    }
    const sim::Result<double> number = value->as_double();
    if (!number) {
        findings_->fail(number.error());
        return class_default;
    }
    if (!(*number >= lo && *number <= hi)) {
        findings_->fail({sim::ErrorCode::bad_input, value->where(),
                         value->text() + " is out of range",
                         "a number from " + std::to_string(lo) + " to " + std::to_string(hi)});
        return class_default;
    }
    return *number;
}

std::string Reader::text(std::string_view keys) {
    const auto value = find(keys);
    if (!value || !value->is_string()) {
        return {};
    }
    const sim::Result<std::string> text = value->as_string();
    return text ? *text : std::string{};
}

std::optional<std::vector<std::string>> Reader::texts(std::string_view keys) {
    const auto value = find(keys);
    if (!value) {
        return std::nullopt;
    }
    std::vector<std::string> out;
    if (!value->is_array()) {
        findings_->fail({sim::ErrorCode::bad_input, value->where(), "a list is needed",
                         R"(for example ["full_attention", "sliding_attention"])"});
        return std::nullopt;
    }
    for (std::size_t i = 0; i < value->size(); ++i) {
        const sim::Result<std::string> item = value->at(i).as_string();
        if (!item) {
            findings_->fail(item.error());
            return std::nullopt;
        }
        out.push_back(*item);
    }
    return out;
}

std::optional<std::vector<std::int64_t>> Reader::integers(std::string_view keys) {
    const auto value = find(keys);
    if (!value) {
        return std::nullopt;
    }
    std::vector<std::int64_t> out;
    if (!value->is_array()) {
        findings_->fail({sim::ErrorCode::bad_input, value->where(), "a list of numbers is needed",
                         "for example [0, 1]"});
        return std::nullopt;
    }
    for (std::size_t i = 0; i < value->size(); ++i) {
        const auto item = integer(value->at(i), 0);
        if (!item) {
            return std::nullopt;
        }
        out.push_back(*item);
    }
    return out;
}

void Reader::derived(std::string_view key, std::int64_t value, std::string_view rule) {
    if (!object_.find(key)) { // null is a statement: derive it
        findings_->omitted.emplace_back(key);
    }
    findings_->assume(prefix_ + std::string(key), std::to_string(value), origin(),
                      std::string(rule));
}

std::string Reader::where(std::string_view key) const {
    std::string pointer = prefix_ + std::string(key);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    return findings_->source_name + ": /" + pointer;
}

void Reader::fail(std::string_view key, std::string what, std::string hint) {
    findings_->fail({sim::ErrorCode::bad_input, where(key), std::move(what), std::move(hint)});
}

void Reader::unsupported(std::string_view key, std::string what, std::string hint) {
    findings_->fail({sim::ErrorCode::unsupported, where(key), std::move(what), std::move(hint)});
}

} // namespace shardplan::plan::hf
