#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "planner/cli/console.hpp"

namespace shardplan::plan::cli {

enum class Align { left, right };

/// One cell; the style colours it on a terminal.
struct Cell {
    std::string text;
    Style style = Style::plain;

    Cell(std::string t, Style s = Style::plain) : text(std::move(t)), style(s) {} // NOLINT
    Cell(const char* t, Style s = Style::plain) : text(t), style(s) {}            // NOLINT
};

/// Rows in columns that line up: two spaces between columns, no lines, no space at the end of a
/// row, so that a pipe can cut it.
class Table {
public:
    struct Column {
        std::string title;
        Align align = Align::left;
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    /// Missing cells are empty; cells beyond the columns are not kept.
    void add(std::vector<Cell> row);
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    /// `indent` spaces before each row. Titles are left out if all are empty.
    void print(std::ostream& out, bool color, int indent = 0) const;

private:
    std::vector<Column> columns_;
    std::vector<std::vector<Cell>> rows_;
};

} // namespace shardplan::plan::cli
