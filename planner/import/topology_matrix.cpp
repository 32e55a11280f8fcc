#include <algorithm>
#include <map>
#include <set>

#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// The print is a square matrix with the affinity of each device behind it, then a legend. People
// paste it from terminals, mails and logs: columns are told by tabs where there are any, cells that
// grew together are taken apart, and what cannot be read is lost alone.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using text::Line;

/// Most devices and cards of a node; more is no node.
constexpr std::size_t most_parts = 256;
/// NVLink counts above are two numbers that grew together.
constexpr std::int64_t most_links = 64;

bool is_gpu_name(std::string_view word) {
    return word.size() > 3 && word.substr(0, 3) == "GPU" && text::whole(word.substr(3)).has_value();
}

struct Row {
    std::string name;
    std::vector<Path> cells;
    std::int64_t numa = -1;
    std::string cores;
    std::int64_t line = 0;
};

/// One code at the front of a word, taken off it; nothing if there is none.
std::optional<Path> take_code(std::string_view& word) {
    constexpr std::pair<std::string_view, PathKind> codes[] = {
        {"PIX", PathKind::pix},    {"PXB", PathKind::pxb}, {"PHB", PathKind::phb},
        {"NODE", PathKind::node},  {"SYS", PathKind::sys}, {"SOC", PathKind::sys},
        {"N/A", PathKind::unknown}};
    if (word.starts_with("NV") && word.size() > 2 && word[2] >= '0' && word[2] <= '9') {
        std::size_t digits = 2;
        while (digits < word.size() && word[digits] >= '0' && word[digits] <= '9') {
            ++digits;
        }
        const auto links = text::whole(word.substr(2, digits - 2));
        word.remove_prefix(digits);
        if (!links || *links < 1 || *links > most_links) {
            return Path{};
        }
        return Path{PathKind::nvlink, *links};
    }
    for (const auto& [code, kind] : codes) {
        if (word.starts_with(code)) {
            word.remove_prefix(code.size());
            return Path{kind};
        }
    }
    if (word.starts_with("X")) {
        word.remove_prefix(1);
        return Path{PathKind::self};
    }
    return std::nullopt;
}

class Reader {
public:
    Reader(std::string_view text, std::string_view source) : lines_(text::lines_of(text)) {
        out_.source = source;
    }

    sim::Result<ForeignCluster> read() {
        std::size_t at = 0;
        while (at < lines_.size() && !read_header(lines_[at])) {
            ++at;
        }
        if (at == lines_.size()) {
            return Error{ErrorCode::bad_input, out_.source,
                         "no line names the columns of a topology matrix (GPU0 GPU1 ...)",
                         "paste the whole of `nvidia-smi topo -m`"};
        }
        for (++at; at < lines_.size(); ++at) {
            read_line(lines_[at]);
        }
        if (rows_.empty()) {
            return Error{ErrorCode::bad_input, out_.source,
                         "the matrix has a header but no row that can be read",
                         "paste the whole of `nvidia-smi topo -m`"};
        }
        build();
        return std::move(out_);
    }

private:
    bool read_header(const Line& line) {
        const auto found = text::words(line.text);
        if (found.empty() || !is_gpu_name(found.front()) ||
            (found.size() > 1 && !is_column(found[1]))) {
            return false;
        }
        for (const std::string_view word : found) {
            if (word == "CPU" || word == "NUMA") {
                numa_ = numa_ || word == "NUMA";
                in_names_ = false;
            }
            if (word == "Affinity" || word == "ID" || !in_names_) {
                numa_ = numa_ || word == "NUMA";
                continue;
            }
            if (columns_.size() < most_parts &&
                std::find(columns_.begin(), columns_.end(), word) == columns_.end()) {
                columns_.emplace_back(word);
            } else {
                out_.lose(line.number, "column " + in_quotes(word) + " stands twice");
            }
        }
        return true;
    }

    static bool is_column(std::string_view word) {
        std::string_view rest = word;
        return word == "CPU" ||
               (!take_code(rest) && word.find_first_of("0123456789") != std::string_view::npos);
    }

    void read_line(const Line& line) {
        const auto found = text::words(line.text);
        if (found.empty()) {
            return;
        }
        const std::string_view first = found.front();
        if (in_legend_ && found.size() == 2 && first.ends_with(":")) {
            legend_[std::string(first.substr(0, first.size() - 1))] = found[1];
            return;
        }
        if (first == "NIC" && found.size() > 1 && found[1].starts_with("Legend")) {
            in_legend_ = true;
            return;
        }
        if (first == "Legend:" || (found.size() > 1 && found[1] == "=")) {
            return;
        }
        const bool known = std::find(columns_.begin(), columns_.end(), first) != columns_.end();
        if (found.size() > 1 && (known || is_gpu_name(first)) && rest_is_cells(found)) {
            read_row(line, found);
        } else if (is_complaint(line.text)) {
            out_.find("missing-gpu", line.number, "the tool reports " + in_quotes(line.text),
                      "reset or replace the device; until then the node has fewer than it should");
        } else if (is_gpu_name(first) && found.size() > 1 && is_column(found[1])) {
            out_.lose(line.number, "a second matrix; only the first one is read");
            ++matrices_;
        } else {
            out_.lose(line.number, "the line " + in_quotes(line.text));
        }
    }

    static bool is_complaint(std::string_view line) {
        const std::string small = sim::lower_case(line);
        return text::holds(small, "unable to") || text::holds(small, "lost") ||
               text::holds(small, "error") || text::holds(small, "fail");
    }

    static bool rest_is_cells(const std::vector<std::string_view>& found) {
        std::string_view word = found[1];
        return take_code(word).has_value() || word == "?" || word.starts_with("#");
    }

    /// Cells of one row. Fields between tabs are trusted where their number fits.
    void read_row(const Line& line, const std::vector<std::string_view>& found) {
        const std::string name(found.front());
        if (matrices_ > 0) {
            return;
        }
        if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
            out_.lose(line.number, "row " + in_quotes(name) + " has no column");
            return;
        }
        if (row_of_.count(name) > 0) {
            out_.lose(line.number, "a second row " + in_quotes(name));
            return;
        }
        Row row;
        row.name = name;
        row.line = line.number;
        std::vector<std::string_view> fields(found.begin() + 1, found.end());
        auto by_tabs = text::split(line.text, '\t');
        if (by_tabs.size() > columns_.size() && by_tabs.front() == name) {
            fields.assign(by_tabs.begin() + 1, by_tabs.end());
        }
        read_cells(row, fields, line.number);
        row_of_[row.name] = rows_.size();
        rows_.push_back(std::move(row));
    }

    void read_cells(Row& row, const std::vector<std::string_view>& fields, std::int64_t number) {
        std::size_t field = 0;
        for (; field < fields.size() && row.cells.size() < columns_.size(); ++field) {
            std::string_view rest = fields[field];
            bool any = false;
            while (!rest.empty() && row.cells.size() < columns_.size()) {
                const auto code = take_code(rest);
                if (!code) {
                    break;
                }
                any = true;
                if (code->kind == PathKind::unknown) {
                    lose_cell(row, number, fields[field]);
                }
                row.cells.push_back(*code);
            }
            if (any && !rest.empty()) { // "SYS0-55": the affinity grew onto the last cell
                read_affinity(row, rest, fields, field + 1);
                break;
            }
            if (!any) {
                if (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
                    break; // the affinity: cells are missing
                }
                lose_cell(row, number, rest);
                row.cells.push_back({});
            }
        }
        if (row.cells.size() < columns_.size()) {
            out_.lose(number,
                      text::counted(static_cast<std::int64_t>(columns_.size() - row.cells.size()),
                                    "cell") +
                          " at the end of row " + in_quotes(row.name));
            row.cells.resize(columns_.size());
        } else if (field < fields.size() && row.cores.empty()) {
            read_affinity(row, fields[field], fields, field + 1);
        }
    }

    /// What follows the cells: processors, then the NUMA node.
    void read_affinity(Row& row, std::string_view cores,
                       const std::vector<std::string_view>& fields, std::size_t next) const {
        if (!cores.empty() && cores.front() >= '0' && cores.front() <= '9') {
            row.cores = cores;
        }
        if (numa_ && next < fields.size()) {
            row.numa = text::leading_whole(fields[next]).value_or(-1);
        }
    }

    void lose_cell(const Row& row, std::int64_t number, std::string_view cell) {
        const std::string& column = columns_[row.cells.size()];
        out_.lose(number, "cell " + row.name + " x " + column + ", which reads " + in_quotes(cell));
    }

    void build() {
        NodeView view;
        std::vector<std::size_t> order;
        for (const bool gpus : {true, false}) {
            for (std::size_t i = 0; i < columns_.size(); ++i) {
                if (is_gpu_name(columns_[i]) == gpus) {
                    order.push_back(i);
                    (gpus ? view.gpus : view.nics).push_back(part_of(columns_[i]));
                }
            }
        }
        view.paths.resize(order.size() * order.size());
        for (std::size_t a = 0; a < order.size(); ++a) {
            for (std::size_t b = 0; b < order.size(); ++b) {
                view.paths[a * order.size() + b] = cell_of(order[a], order[b]);
            }
        }
        find_gaps(view);
        set_cards_aside(view);
        out_.node = std::move(view);
    }

    NodePart part_of(const std::string& name) {
        NodePart part;
        part.name = name;
        const auto row = row_of_.find(name);
        if (row != row_of_.end()) {
            part.numa = rows_[row->second].numa;
            part.cores = rows_[row->second].cores;
            part.line = rows_[row->second].line;
        } else {
            out_.lose(0, "row " + in_quotes(name) + ", which is not there; read from its column");
        }
        if (!is_gpu_name(name)) {
            const auto legend = legend_.find(name);
            part.product = legend != legend_.end() ? legend->second : name;
        }
        return part;
    }

    /// A cell, or its mirror image where it is lost. Of two that disagree, the slower one.
    Path cell_of(std::size_t a, std::size_t b) {
        if (a == b) {
            return {PathKind::self};
        }
        const Path forth = raw_cell(a, b);
        const Path back = raw_cell(b, a);
        if (forth.kind == PathKind::unknown || forth.kind == PathKind::self) {
            return back.kind == PathKind::self ? Path{} : back;
        }
        if (back.kind == PathKind::unknown || back.kind == PathKind::self || back == forth) {
            return forth;
        }
        if (a < b) {
            out_.lose(0, "the rows of " + columns_[a] + " and " + columns_[b] +
                             " disagree about their link; the slower one is taken");
        }
        if (forth.kind == back.kind) {
            return {forth.kind, std::min(forth.links, back.links)};
        }
        return forth.kind > back.kind ? forth : back;
    }

    [[nodiscard]] Path raw_cell(std::size_t a, std::size_t b) const {
        const auto row = row_of_.find(columns_[a]);
        return row != row_of_.end() ? rows_[row->second].cells[b] : Path{};
    }

    /// Numbers of devices that are missing between those that are there.
    void find_gaps(NodeView& view) {
        std::set<std::int64_t> there;
        for (const NodePart& part : view.gpus) {
            there.insert(*text::whole(std::string_view(part.name).substr(3)));
        }
        if (there.empty() || *there.rbegin() >= static_cast<std::int64_t>(most_parts)) {
            return;
        }
        std::vector<std::string> gone;
        for (std::int64_t i = 0; i <= *there.rbegin(); ++i) {
            if (there.count(i) == 0) {
                gone.push_back("GPU" + std::to_string(i));
            }
        }
        if (!gone.empty()) {
            view.expected_gpus = *there.rbegin() + 1;
            out_.find("missing-gpu", 0,
                      text::listed(gone) + (gone.size() == 1 ? " is" : " are") +
                          " missing: the node is degraded, " + std::to_string(view.gpus.size()) +
                          " of " + std::to_string(view.expected_gpus) + " devices",
                      "plan for " + std::to_string(view.gpus.size()) +
                          " devices, or leave the node out until it is repaired");
        }
    }

    std::vector<Line> lines_;
    ForeignCluster out_;
    std::vector<std::string> columns_;
    std::vector<Row> rows_;
    std::map<std::string, std::size_t> row_of_;
    std::map<std::string, std::string> legend_;
    int matrices_ = 0;
    bool numa_ = false;
    bool in_names_ = true;
    bool in_legend_ = false;
};

} // namespace

sim::Result<ForeignCluster> topology_matrix(std::string_view text, std::string_view source) {
    return Reader(text, source).read();
}

} // namespace shardplan::plan::readers
