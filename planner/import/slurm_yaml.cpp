#include <algorithm>

#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/yaml.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// A list of topologies, of which a cluster uses one by default: tree, block, ring, torus3d or flat.
// Places are named by JSON pointer, as the text is read as the value it stands for.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using sim::JsonValue;

std::string text_of(const JsonValue& object, std::string_view key) {
    const auto value = object.find(key);
    if (!value || !value->is_string()) {
        return {};
    }
    return *value->as_string();
}

class Reader {
public:
    explicit Reader(std::string_view source) : builder_(out_) { out_.source = source; }

    sim::Result<ForeignCluster> read(const JsonValue& root) {
        const auto chosen = choose(root);
        if (!chosen) {
            return Error{ErrorCode::bad_input, out_.source,
                         "no topology in the list is of kind tree, block, ring, torus3d or flat",
                         "write \"tree: {switches: [...]}\" or \"block: {...}\" in its entry"};
        }
        out_.facts.push_back({"topology", text_of(*chosen, "topology")});
        if (const auto tree = chosen->find("tree")) {
            read_groups(*tree, "switches", "switch");
        } else if (const auto block = chosen->find("block")) {
            builder_.view().level_word = "block";
            read_sizes(*block);
            read_groups(*block, "blocks", "block");
        } else if (const auto ring = chosen->find("ring")) {
            builder_.view().level_word = "ring";
            read_groups(*ring, "rings", "ring");
        } else if (const auto torus = chosen->find("torus3d")) {
            builder_.view().level_word = "torus";
            read_groups(*torus, "toruses", "name");
        } else {
            out_.facts.push_back({"fabric", "flat: all nodes are equally far from one another"});
        }
        hang_children();
        return std::move(out_);
    }

private:
    static bool is_topology(const JsonValue& item) {
        for (const char* kind : {"tree", "block", "ring", "torus3d", "flat"}) {
            if (item.find(kind)) {
                return true;
            }
        }
        return false;
    }

    /// The default one of the list, else the first.
    std::optional<JsonValue> choose(const JsonValue& root) {
        std::optional<JsonValue> chosen;
        std::vector<std::string> left_out;
        for (std::size_t i = 0; root.is_array() && i < root.size(); ++i) {
            const JsonValue item = root.at(i);
            if (!item.is_object() || !is_topology(item)) {
                out_.lose(0, item.where() + ", which describes no topology");
                continue;
            }
            const bool is_default = sim::lower_case(text_of(item, "cluster_default")) == "true";
            if (!chosen || is_default) {
                if (chosen) {
                    left_out.push_back(text_of(*chosen, "topology"));
                }
                chosen = item;
            } else {
                left_out.push_back(text_of(item, "topology"));
            }
        }
        if (!left_out.empty()) {
            out_.facts.push_back({"other topologies of the file", text::listed(left_out)});
        }
        return chosen;
    }

    void read_sizes(const JsonValue& block) {
        const auto sizes = block.find("block_sizes");
        std::vector<std::string> texts;
        for (std::size_t i = 0; sizes && i < sizes->size(); ++i) {
            if (const auto size = sizes->at(i).as_string()) {
                texts.push_back(*size);
            }
        }
        if (!texts.empty()) {
            out_.facts.push_back({"block sizes", text::listed(texts) + " nodes"});
        }
    }

    void read_groups(const JsonValue& parent, std::string_view list, std::string_view name_key) {
        const auto groups = parent.find(list);
        if (!groups || !groups->is_array()) {
            out_.lose(0, parent.where() + ", which has no list \"" + std::string(list) + "\"");
            return;
        }
        for (std::size_t i = 0; i < groups->size(); ++i) {
            const JsonValue group = groups->at(i);
            const std::string name = text_of(group, name_key);
            if (name.empty()) {
                out_.lose(0, group.where() + ", which has no name");
                continue;
            }
            if (builder_.has_switch(name)) {
                out_.find("duplicate-switch", 0,
                          in_quotes(name) + " is described again at " + group.where(),
                          "merge the entries, or rename one");
            }
            const std::size_t at = builder_.add_switch(name, 0);
            hang_nodes(at, group);
            if (const std::string below = text_of(group, "children"); !below.empty()) {
                children_.push_back({at, below, group.where()});
            }
        }
    }

    void hang_nodes(std::size_t at, const JsonValue& group) {
        const auto names = builder_.expand(text_of(group, "nodes"), 0, group.where());
        for (const std::string& name : names) {
            builder_.hang_node(at, name, 0);
        }
    }

    void hang_children() {
        for (const Pending& pending : children_) {
            const auto names = builder_.expand(pending.names, 0, pending.where);
            for (const std::string& name : names) {
                if (builder_.has_switch(name)) {
                    builder_.hang_switch(pending.under, builder_.add_switch(name, 0), 0);
                } else {
                    out_.find(
                        "missing-switch", 0,
                        in_quotes(name) + ", named at " + pending.where + ", is not described",
                        "add it, or take the name out");
                }
            }
        }
    }

    struct Pending {
        std::size_t under;
        std::string names;
        std::string where;
    };

    ForeignCluster out_;
    FabricBuilder builder_;
    std::vector<Pending> children_;
};

} // namespace

sim::Result<ForeignCluster> slurm_yaml(std::string_view text, std::string_view source) {
    const auto root = parse_yaml(text, source);
    if (!root) {
        return root.error();
    }
    return Reader(source).read(*root);
}

} // namespace shardplan::plan::readers
