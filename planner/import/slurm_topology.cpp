#include <algorithm>

#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// One record per line, keys without regard to case, '#' begins a comment. A switch may be named
// before the line that describes it, so children are hung when all lines are read.
namespace shardplan::plan::readers {
namespace {

using sim::in_quotes;
using text::Line;

struct Record {
    std::string kind; ///< "switchname", "blockname", "ringname"
    std::string name;
    std::string nodes;
    std::string switches;
    std::string sizes; ///< of BlockSizes
    std::string speed;
};

class Reader {
public:
    explicit Reader(std::string_view source) : builder_(out_) { out_.source = source; }

    sim::Result<ForeignCluster> read(std::string_view text) {
        Line joined;
        for (Line& line : text::lines_of(text)) {
            const bool goes_on = !joined.text.empty();
            joined = {goes_on ? joined.number : line.number, joined.text + line.text};
            if (joined.text.ends_with("\\") && joined.text.size() < 65536) {
                joined.text.pop_back();
                continue;
            }
            read_line(joined);
            joined = {};
        }
        if (!joined.text.empty()) {
            read_line(joined);
        }
        hang_children();
        return std::move(out_);
    }

private:
    void read_line(const Line& line) {
        const std::string_view trimmed =
            text::trim(std::string_view(line.text).substr(0, line.text.find('#')));
        if (trimmed.empty()) {
            return;
        }
        Record record;
        for (const std::string_view word : text::words(trimmed)) {
            const std::size_t equals = word.find('=');
            const std::string key = sim::lower_case(word.substr(0, equals));
            const std::string value(equals == std::string_view::npos ? ""
                                                                     : word.substr(equals + 1));
            if (key == "switchname" || key == "blockname" || key == "ringname") {
                record.kind = key;
                record.name = value;
            } else if (key == "nodes") {
                record.nodes = value;
            } else if (key == "switches") {
                record.switches = value;
            } else if (key == "blocksizes") {
                record.sizes = value;
            } else if (key == "linkspeed") {
                record.speed = value;
            } else if (key != "level" && key != "blockindex" && key != "blocksize") {
                out_.lose(line.number, in_quotes(word));
            }
        }
        if (!record.sizes.empty()) {
            out_.facts.push_back({"block sizes", record.sizes + " nodes"});
        } else if (record.name.empty()) {
            out_.lose(line.number, "the line " + in_quotes(trimmed) + ", which names no switch");
        } else {
            add(record, line.number);
        }
    }

    void add(const Record& record, std::int64_t line) {
        if (record.kind != "switchname") {
            builder_.view().level_word = record.kind == "blockname" ? "block" : "ring";
        }
        if (builder_.has_switch(record.name)) {
            const std::int64_t first =
                builder_.view().switches[builder_.add_switch(record.name, line)].line;
            out_.find("duplicate-switch", line,
                      in_quotes(record.name) + " is described again (first in line " +
                          std::to_string(first) + "); what this line adds is taken along",
                      "merge the lines, or rename one");
        }
        const std::size_t at_switch = builder_.add_switch(record.name, line);
        if (record.nodes.empty() && record.switches.empty()) {
            out_.lose(line, in_quotes(record.name) + " has neither Nodes nor Switches");
        }
        // `scontrol show topology` repeats the nodes of all leaves on every switch above.
        if (!record.switches.empty()) {
            children_.push_back({at_switch, record.switches, line});
            return;
        }
        const auto names =
            builder_.expand(record.nodes, line, "nodes of " + in_quotes(record.name));
        for (const std::string& name : names) {
            builder_.hang_node(at_switch, name, line);
        }
    }

    void hang_children() {
        for (const Pending& pending : children_) {
            const auto names = builder_.expand(
                pending.names, pending.line,
                "switches of " + in_quotes(builder_.view().switches[pending.under].name));
            std::vector<std::string> missing;
            for (const std::string& name : names) {
                if (!builder_.has_switch(name)) {
                    missing.push_back(name);
                    continue;
                }
                builder_.hang_switch(pending.under, builder_.add_switch(name, pending.line),
                                     pending.line);
            }
            if (!missing.empty()) {
                out_.find("missing-switch", pending.line,
                          text::listed(missing) + (missing.size() == 1 ? " is" : " are") +
                              " named below " +
                              in_quotes(builder_.view().switches[pending.under].name) +
                              ", but no line describes " + (missing.size() == 1 ? "it" : "them"),
                          "add the missing line, or take the name out");
            }
        }
    }

    struct Pending {
        std::size_t under;
        std::string names;
        std::int64_t line;
    };

    ForeignCluster out_;
    FabricBuilder builder_;
    std::vector<Pending> children_;
};

} // namespace

sim::Result<ForeignCluster> slurm_topology(std::string_view text, std::string_view source) {
    return Reader(source).read(text);
}

} // namespace shardplan::plan::readers
