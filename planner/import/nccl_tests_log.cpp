#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "planner/import/import_text.hpp"
#include "planner/import/log_row.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

// A log holds tables of one or more programs, among whatever else the ranks printed. A row may be
// broken over lines and carry tags of ranks; the programs' own comments begin with '#'.
namespace shardplan::plan::readers {
namespace {

using sim::CollectiveRecord;
using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using text::Line;

constexpr std::size_t most_rows = 1U << 17;

/// Names of the programs, and of the collective each times.
constexpr std::pair<std::string_view, std::string_view> programs[] = {
    {"all_reduce_perf", "all_reduce"},
    {"all_gather_perf", "all_gather"},
    {"reduce_scatter_perf", "reduce_scatter"},
    {"alltoallv_perf", "all_to_all_v"},
    {"alltoall_perf", "all_to_all"},
    {"broadcast_perf", "broadcast"},
    {"reduce_perf", "reduce"},
    {"sendrecv_perf", "send_recv"},
    {"gather_perf", "gather"},
    {"scatter_perf", "scatter"},
    {"hypercube_perf", "hypercube"}};

std::string collective_in(std::string_view line) {
    for (const auto& [program, collective] : programs) {
        const std::size_t at = line.find(program);
        // "reduce_perf" also ends "all_reduce_perf", which stands before it in the table.
        if (at != std::string_view::npos && (at == 0 || line[at - 1] != '_')) {
            return std::string(collective);
        }
    }
    return {};
}

/// What the ranks of one table say about themselves.
struct Ranks {
    std::int64_t count = 0;
    std::set<std::string> hosts;
    std::string device;
};

class Reader {
public:
    explicit Reader(std::string_view source) {
        out_.source = source;
        out_.log.emplace();
    }

    sim::Result<ForeignCluster> read(std::string_view text) {
        for (const Line& line : text::lines_of(text)) {
            read_line(line);
        }
        end_pending();
        if (out_.log->rows == 0) {
            return Error{ErrorCode::bad_input, out_.source, "no row of a table can be read",
                         "give the whole output of a program of nccl-tests"};
        }
        finish();
        return std::move(out_);
    }

private:
    void read_line(const Line& line) {
        const std::string_view body = without_tags(line.text);
        if (text::trim(body).empty()) {
            return;
        }
        if (text::holds(body, "NCCL WARN")) {
            ++out_.log->warnings;
            if (out_.log->warnings <= 20) {
                out_.find("nccl-warning", line.number,
                          "the library warns: " +
                              in_quotes(text::trim(body.substr(body.find("NCCL WARN") + 9))),
                          "rows behind it may be slow for that reason");
            }
            return;
        }
        if (text::holds(body, "NCCL INFO")) {
            read_info(body);
            return;
        }
        if (const std::string name = collective_in(body); !name.empty()) {
            if (name != collective_ && !collective_.empty()) {
                ranks_ = {};
            }
            collective_ = name;
        }
        const std::string_view trimmed = text::trim(body);
        if (trimmed.front() == '#') {
            read_comment(trimmed);
        } else if (trimmed.starts_with("NCCL version")) {
            const auto found = text::words(trimmed);
            library_ = found.size() > 2 ? std::string(found[2]) : std::string();
        } else {
            read_words(body, line.number);
        }
    }

    void read_info(std::string_view body) {
        constexpr std::pair<std::string_view, std::string_view> nets[] = {
            {"NET/IB : Using", "infiniband"},
            {"NET/OFI", "efa"},
            {"NET/Socket : Using", "ethernet"}};
        for (const auto& [mark, kind] : nets) {
            if (fabric_.empty() && text::holds(body, mark)) {
                fabric_ = text::holds(body, "/RoCE") ? "roce" : kind;
            }
        }
        const std::size_t set = body.find(" set by environment to ");
        const std::size_t name = body.find("NCCL_");
        if (set != std::string_view::npos && name < set && env_.size() < 4096) {
            std::string_view value = body.substr(set + 23);
            value = value.substr(0, value.find_last_not_of(". ") + 1);
            const std::string entry =
                std::string(body.substr(name, set - name)) + "=" + std::string(value);
            if (!text::holds(env_, entry)) {
                env_ += (env_.empty() ? "" : " ") + entry;
            }
        }
    }

    void read_comment(std::string_view comment) {
        const auto found = text::words(comment.substr(1));
        if (found.empty()) {
            return;
        }
        if (found.front() == "Rank" && found.size() > 5) {
            read_rank(comment, found);
        } else if (found.front() == "nThread") {
            ranks_ = {}; // a new program begins
        } else if (found.front() == "size" && text::holds(comment, "busbw")) {
            has_root_ = text::holds(comment, " root ");
            old_check_ = text::holds(comment, " error");
            ++tables_;
        } else if (text::holds(comment, "Out of bounds values") && text::holds(comment, "FAILED")) {
            out_.find("wrong-results", 0,
                      "the program says that its results are wrong: " +
                          in_quotes(text::trim(comment.substr(1))),
                      "timings of a wrong result are worth nothing: mend the machine first");
        } else if (text::holds(comment, "Avg bus bandwidth") && found.size() > 4) {
            out_.facts.push_back({"average of the program", std::string(found.back()) + " GB/s"});
        }
    }

    /// "Rank  0 Group  0 Pid 1201 on node-a device  0 [0x10] NVIDIA A100-SXM4-40GB".
    void read_rank(std::string_view comment, const std::vector<std::string_view>& found) {
        ++ranks_.count;
        for (std::size_t i = 0; i + 1 < found.size(); ++i) {
            if (found[i] == "on") {
                ranks_.hosts.insert(std::string(found[i + 1]));
            }
        }
        out_.log->hosts.assign(ranks_.hosts.begin(), ranks_.hosts.end());
        const std::size_t close = comment.rfind(']');
        if (ranks_.device.empty() && close != std::string_view::npos) {
            ranks_.device = text::trim(comment.substr(close + 1));
        }
    }

    void read_words(std::string_view body, std::int64_t number) {
        const auto found = text::words(body);
        if (begins_row(found)) {
            end_pending();
            pending_.assign(found.begin(), found.end());
            pending_line_ = number;
        } else if (!pending_.empty() && goes_on(found)) {
            pending_.insert(pending_.end(), found.begin(), found.end());
        } else {
            return; // what a library or a launcher printed
        }
        if (is_whole(pending_, has_root_)) {
            end_pending();
        }
    }

    void end_pending() {
        if (pending_.empty()) {
            return;
        }
        const auto row = read_row(pending_, has_root_);
        pending_.clear();
        if (!row) {
            out_.lose(pending_line_, "a row that breaks off before its first timing");
            return;
        }
        if (row->broken) {
            out_.lose(pending_line_,
                      "the second half of the row of " + std::to_string(row->size) + " bytes");
        }
        if (out_.log->rows >= static_cast<std::int64_t>(most_rows)) {
            out_.lose(pending_line_, "rows beyond the first " + std::to_string(most_rows));
            return;
        }
        ++out_.log->rows;
        add(*row);
    }

    void add(const LogRow& row) {
        for (const bool in_place : {false, true}) {
            const auto& timing = in_place ? row.in_place : row.out_of_place;
            if (!timing) {
                continue;
            }
            CollectiveRecord record;
            record.source = out_.source;
            record.id = out_.source + ":" + std::to_string(pending_line_) + (in_place ? "i" : "o");
            record.system = out_.source;
            record.line = pending_line_;
            record.collective = collective_;
            record.curve = out_.source + "#" + std::to_string(tables_) + " " + collective_ +
                           (in_place ? " in place" : "");
            record.size_bytes = row.size;
            record.time_us = timing->time_us;
            record.algbw_gbytes = timing->algbw;
            record.busbw_gbytes = timing->busbw;
            record.in_place = in_place;
            record.dtype = row.type;
            record.quality = "measured";
            record.library = "nccl";
            describe_machine(record);
            // "error" of old programs is a difference of floats, "#wrong" of new ones a count.
            const double wrong = timing->wrong.value_or(0.0);
            if (old_check_ ? wrong > 1e-2 : wrong > 0.0) {
                record.fault = "wrong results";
                record.fault_noted = true;
                out_.log->wrong +=
                    old_check_ ? 1 : static_cast<std::int64_t>(std::min(wrong, 1e15));
                out_.find("wrong-results", pending_line_,
                          text::counted(static_cast<std::int64_t>(std::min(wrong, 1e15)),
                                        "wrong element") +
                              " at " + std::to_string(row.size) + " bytes",
                          "timings of a wrong result are worth nothing: mend the machine first");
            }
            constexpr std::int64_t scorable_size = 16 << 20;
            record.scorable = row.size >= scorable_size && !record.fault_noted;
            out_.log->records.push_back(std::move(record));
        }
    }

    void describe_machine(CollectiveRecord& record) const {
        if (ranks_.count > 0) {
            record.gpus = ranks_.count;
            record.nodes = static_cast<std::int64_t>(ranks_.hosts.size());
            if (*record.nodes > 0 && ranks_.count % *record.nodes == 0) {
                record.ranks_per_node = ranks_.count / *record.nodes;
            }
        } else if (const auto inferred = ranks_behind(record)) {
            record.gpus = inferred;
            record.ranks_inferred = true;
        }
        if (!ranks_.device.empty()) {
            record.device = ranks_.device;
        }
        if (!fabric_.empty()) {
            record.fabric.kind = fabric_;
        }
        if (!library_.empty()) {
            record.library_version = library_;
        }
        if (!env_.empty()) {
            record.env = env_;
            record.algorithm = variable("NCCL_ALGO");
            record.protocol = variable("NCCL_PROTO");
        }
    }

    [[nodiscard]] std::optional<std::string> variable(std::string_view name) const {
        for (const std::string_view word : text::words(env_)) {
            if (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=') {
                return std::string(word.substr(name.size() + 1));
            }
        }
        return std::nullopt;
    }

    /// From the factor between the two bandwidths: 2 (n - 1) / n or (n - 1) / n.
    static std::optional<std::int64_t> ranks_behind(const CollectiveRecord& record) {
        const double algbw = record.algbw_gbytes.value_or(0.0);
        const double busbw = record.busbw_gbytes.value_or(0.0);
        double whole = 0.0;
        if (record.collective == "all_reduce") {
            whole = 2.0;
        } else if (record.collective == "all_gather" || record.collective == "reduce_scatter" ||
                   record.collective == "all_to_all") {
            whole = 1.0;
        }
        // Two digits behind the point: below this the factor is mostly rounding.
        constexpr double least_algbw = 1.0;
        if (whole == 0.0 || algbw < least_algbw || busbw <= 0.0 || busbw >= whole * algbw) {
            return std::nullopt;
        }
        const double ranks = whole / (whole - busbw / algbw);
        if (ranks < 1.5 || ranks > 64.0) { // beyond, one rank changes less than the rounding
            return std::nullopt;
        }
        return static_cast<std::int64_t>(std::lround(ranks));
    }

    void finish() {
        find_cliff();
        if (collective_.empty() && infer_all_reduce()) {
            collective_ = "all_reduce";
        }
        if (collective_.empty()) {
            out_.lose(0, "which collective was timed: no program is named (all_reduce_perf, ...)");
        }
        std::set<std::string> names;
        double most = 0.0;
        for (const CollectiveRecord& record : out_.log->records) {
            if (!record.collective.empty()) {
                names.insert(record.collective);
            }
            most = std::max(most, record.busbw_gbytes.value_or(0.0));
        }
        if (!names.empty()) {
            out_.facts.push_back({"collective", text::listed({names.begin(), names.end()})});
        }
        if (ranks_.count > 0) {
            out_.facts.push_back(
                {"ranks",
                 std::to_string(ranks_.count) + " on " +
                     text::counted(static_cast<std::int64_t>(ranks_.hosts.size()), "host") +
                     (ranks_.device.empty() ? "" : ", " + ranks_.device)});
        }
        if (!env_.empty()) {
            out_.facts.push_back({"environment", env_});
        }
        out_.facts.push_back({"largest busbw", sim::to_text(sim::Bandwidth(most * 1e9))});
    }

    /// A program that is not named: all-reduce alone has a busbw above its algbw, by 2 (n - 1) / n.
    bool infer_all_reduce() {
        const bool above = std::any_of(
            out_.log->records.begin(), out_.log->records.end(), [](const CollectiveRecord& record) {
                constexpr double least_algbw = 1.0; // below, both are mostly rounding
                return *record.algbw_gbytes >= least_algbw &&
                       *record.busbw_gbytes > 1.05 * *record.algbw_gbytes;
            });
        for (CollectiveRecord& record : out_.log->records) {
            record.collective = above ? "all_reduce" : record.collective;
        }
        return above;
    }

    /// A larger message that moves at less than half the rate of the one before: a switch of
    /// algorithm that went wrong, a cache or a buffer that overflows, a card that stumbles.
    void find_cliff() {
        std::map<std::string, const CollectiveRecord*> last;
        for (CollectiveRecord& record : out_.log->records) {
            const CollectiveRecord*& before = last[record.curve];
            mark_behind_cliff(record, before);
            if (before != nullptr && *record.size_bytes > *before->size_bytes &&
                *record.busbw_gbytes < 0.5 * *before->busbw_gbytes) {
                if (!out_.log->cliff_at || *record.size_bytes < *out_.log->cliff_at) {
                    out_.log->cliff_at = record.size_bytes;
                }
                out_.find("cliff", record.line,
                          "the bandwidth falls from " +
                              sim::to_text(sim::Bandwidth(*before->busbw_gbytes * 1e9)) + " to " +
                              sim::to_text(sim::Bandwidth(*record.busbw_gbytes * 1e9)) + " at " +
                              sim::to_text(sim::Bytes(static_cast<double>(*record.size_bytes))) +
                              (*record.in_place ? ", in place" : ""),
                          "a larger message should not move slower: look at the algorithm taken, "
                          "and at every card");
            }
            before = &record;
        }
    }

    /// Rows below a cliff measure whatever went wrong, and so do larger ones until the bandwidth is
    /// back. `before`: the row before it in its curve.
    void mark_behind_cliff(CollectiveRecord& record, const CollectiveRecord* before) {
        double& best = best_[record.curve];
        if (before == nullptr || *record.size_bytes <= *before->size_bytes) {
            best = 0.0; // the sizes begin anew
        }
        if (*record.busbw_gbytes < 0.5 * best) {
            record.fault = record.fault.value_or("behind a cliff: smaller messages reached " +
                                                 sim::to_text(sim::Bandwidth(best * 1e9)));
            record.fault_noted = true;
            record.scorable = false;
        }
        best = std::max(best, *record.busbw_gbytes);
    }

    ForeignCluster out_;
    Ranks ranks_;
    std::map<std::string, double> best_; ///< busbw so far, by curve
    std::string collective_;
    std::string library_;
    std::string fabric_;
    std::string env_;
    std::vector<std::string> pending_;
    std::int64_t pending_line_ = 0;
    int tables_ = 0;
    bool has_root_ = true;
    bool old_check_ = false;
};

} // namespace

sim::Result<ForeignCluster> nccl_tests_log(std::string_view text, std::string_view source) {
    return Reader(source).read(text);
}

} // namespace shardplan::plan::readers
