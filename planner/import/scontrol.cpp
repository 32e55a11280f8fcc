#include <algorithm>

#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// Words of the form Key=Value; a node begins with NodeName and goes on over indented lines, or
// stands on one line with --oneliner. Values with blanks (Reason=...) lose their later words, which
// nothing here needs.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

constexpr std::size_t most_nodes = 131072;
/// RealMemory is in MiB.
constexpr std::int64_t most_mib = std::int64_t{1} << 32;

/// "gpu:h100:8(S:0-1),nvme:1" -> product and count.
void read_gres(FabricNode& node, std::string_view gres) {
    // Commas inside of brackets part sockets, not resources.
    std::string flat;
    int depth = 0;
    for (const char c : gres) {
        depth += c == '(' || c == '[' ? 1 : 0;
        if (depth == 0) {
            flat += c;
        }
        depth -= (c == ')' || c == ']') && depth > 0 ? 1 : 0;
    }
    std::int64_t gpus = 0;
    for (const std::string_view piece : text::split(flat, ',')) {
        const auto parts = text::split(piece, ':');
        if (parts.front() != "gpu") {
            continue;
        }
        const auto count = text::whole(parts.back());
        gpus += count && *count >= 0 && *count <= 256 ? *count : 1;
        if (parts.size() > 2 || (parts.size() == 2 && !count)) {
            node.product = parts[1];
        }
    }
    node.gpus = gpus;
}

/// States in which Slurm places no job, as they appear between plus signs.
std::string trouble_in(std::string_view state) {
    const std::string small = sim::lower_case(state);
    for (const char* word : {"down", "drain", "fail", "not_responding", "maint", "unknown",
                             "power_down", "powered_down", "future"}) {
        if (text::holds(small, word)) {
            return "state " + std::string(state);
        }
    }
    return {};
}

void read_word(FabricNode& node, std::string_view key, std::string_view value) {
    if (key == "Gres") {
        read_gres(node, value);
    } else if (key == "State") {
        node.trouble = trouble_in(value);
    } else if (key == "CPUTot") {
        node.cores = std::clamp<std::int64_t>(text::whole(value).value_or(0), 0, 1 << 20);
    } else if (key == "RealMemory") {
        const std::int64_t mib =
            std::clamp<std::int64_t>(text::whole(value).value_or(0), 0, most_mib);
        node.memory = sim::Bytes(static_cast<double>(mib) * 0x1p20);
    }
}

} // namespace

sim::Result<ForeignCluster> scontrol_nodes(std::string_view text, std::string_view source) {
    ForeignCluster out;
    out.source = source;
    FabricBuilder builder(out);
    builder.view().level_word = "node";
    FabricNode* at = nullptr; // of the lines that are being read
    for (const text::Line& line : text::lines_of(text)) {
        for (const std::string_view word : text::words(line.text)) {
            const std::size_t equals = word.find('=');
            if (equals == std::string_view::npos) {
                continue;
            }
            const std::string_view key = word.substr(0, equals);
            const std::string_view value = word.substr(equals + 1);
            if (key == "NodeName") {
                const std::size_t before = builder.view().nodes.size();
                if (before >= most_nodes || value.empty()) {
                    at = nullptr;
                    continue;
                }
                at = &builder.view().nodes[builder.add_node(std::string(value), line.number)];
                if (builder.view().nodes.size() == before) {
                    out.lose(line.number, "a second description of node " + in_quotes(value));
                    at = nullptr;
                }
            } else if (at != nullptr) {
                read_word(*at, key, value);
            }
        }
    }
    if (out.fabric->nodes.empty()) {
        return Error{ErrorCode::bad_input, std::string(source), "no line names a node",
                     "print them with `scontrol show node`"};
    }
    return out;
}

} // namespace shardplan::plan::readers
