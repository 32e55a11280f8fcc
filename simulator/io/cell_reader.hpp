#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/io/json.hpp"

/// The reader of measured records, one JSON object per line; private to simulator/io.
namespace shardplan::sim::detail {

/// Reads known keys of one object of a record. A value of a wrong type is reported and counts as
/// not known: one bad cell must not lose the row.
class CellReader {
public:
    CellReader(std::optional<JsonValue> object, std::vector<Error>& problems);

    [[nodiscard]] CellReader section(std::string_view key) const { return {find(key), *problems_}; }
    void get(std::string_view key, std::optional<std::int64_t>& out) const;
    void get(std::string_view key, std::optional<double>& out) const;
    void get(std::string_view key, std::optional<bool>& out) const;
    void get(std::string_view key, bool& out) const;
    void get(std::string_view key, std::optional<std::string>& out) const;
    void get(std::string_view key, std::string& out) const;
    void get(std::string_view key, std::vector<std::string>& out) const;
    /// The elements of a list of objects.
    [[nodiscard]] std::vector<CellReader> items(std::string_view key) const;

private:
    [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
    void report(const JsonValue& cell, std::string_view what) const;

    std::optional<JsonValue> object_;
    std::vector<Error>* problems_;
};

/// Gives `take` each line that is a JSON object, with its number from 1; empty lines are skipped,
/// lines that are something else are told in `problems`.
void for_each_record_line(std::string_view text, std::string_view source_name,
                          std::vector<Error>& problems,
                          const std::function<void(const JsonValue&, std::int64_t)>& take);

} // namespace shardplan::sim::detail
