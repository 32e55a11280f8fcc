#include "planner/cli/table.hpp"

#include <algorithm>
#include <string_view>

namespace shardplan::plan::cli {
namespace {

/// Characters of a UTF-8 text: bytes that do not continue another.
std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

} // namespace

void Table::add(std::vector<Cell> row) {
    row.resize(columns_.size(), Cell(""));
    rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out, bool color, int indent) const {
    std::vector<std::size_t> widths;
    bool has_titles = false;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        widths.push_back(width_of(columns_[c].title));
        has_titles = has_titles || !columns_[c].title.empty();
        for (const auto& row : rows_) {
            widths[c] = std::max(widths[c], width_of(row[c].text));
        }
    }
    const auto print_row = [&](const std::vector<Cell>& row) {
        std::string blank(static_cast<std::size_t>(indent), ' ');
        for (std::size_t c = 0; c < row.size(); ++c) {
            const std::size_t fill = widths[c] - width_of(row[c].text);
            if (columns_[c].align == Align::right) {
                blank.append(fill, ' ');
            }
            if (!row[c].text.empty()) {
                out << blank << styled(row[c].text, row[c].style, color);
                blank.clear();
            }
            if (columns_[c].align == Align::left) {
                blank.append(fill, ' ');
            }
            blank += "  ";
        }
        out << '\n';
    };
    if (has_titles) {
        std::vector<Cell> titles;
        for (const Column& column : columns_) {
            titles.emplace_back(column.title, Style::faint);
        }
        print_row(titles);
    }
    for (const auto& row : rows_) {
        print_row(row);
    }
}

} // namespace shardplan::plan::cli
