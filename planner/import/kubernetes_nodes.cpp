#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/yaml.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"

// A list of Node objects. Where a node hangs is told by labels, whose keys differ by provider: a
// label counts as a level of the fabric if the last word of its key is one that people use for
// levels. A level is kept only if it nests in the one above.
namespace shardplan::plan::readers {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;
using sim::JsonValue;

/// Words for levels, from the top down. Cloud providers number theirs from the top.
constexpr std::array<std::string_view, 18> level_words = {"region",     "zone",
                                                          "datacenter", "fabric",
                                                          "core",       "network-node-layer-1",
                                                          "superpod",   "spine",
                                                          "pod",        "network-node-layer-2",
                                                          "hpc-island", "network-block",
                                                          "block",      "rack",
                                                          "subblock",   "network-node-layer-3",
                                                          "leaf",       "accelerator"};

std::optional<std::size_t> rank_of(std::string_view key) {
    const std::size_t slash = key.rfind('/');
    std::string word =
        sim::lower_case(slash == std::string_view::npos ? key : key.substr(slash + 1));
    for (const std::string_view prefix : {"topology-", "gce-topology-", "rdma."}) {
        if (word.starts_with(prefix)) {
            word.erase(0, prefix.size());
        }
    }
    const auto at = std::find(level_words.begin(), level_words.end(), word);
    if (at == level_words.end()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(at - level_words.begin());
}

struct Node {
    FabricNode facts;
    std::map<std::string, std::string> labels; ///< of levels only
};

std::string string_of(const std::optional<JsonValue>& value) {
    return value && value->is_string() ? *value->as_string() : std::string();
}

/// "8", 8 or "2113456Ki" without its unit; -1: not there.
std::int64_t amount_of(const std::optional<JsonValue>& value) {
    if (!value) {
        return -1;
    }
    std::int64_t amount = -1;
    if (value->is_string()) {
        amount = text::leading_whole(*value->as_string()).value_or(-1);
    } else if (const auto number = value->as_int()) {
        amount = *number;
    }
    return amount > 1'000'000'000'000 ? -1 : amount;
}

class Reader {
public:
    explicit Reader(std::string_view source) { out_.source = source; }

    sim::Result<ForeignCluster> read(const JsonValue& root) {
        const auto items = root.find("items");
        const JsonValue list = items && items->is_array() ? *items : root;
        if (list.is_array()) {
            for (std::size_t i = 0; i < list.size(); ++i) {
                read_node(list.at(i));
            }
        } else {
            read_node(list);
        }
        if (nodes_.empty()) {
            return Error{ErrorCode::bad_input, root.where(),
                         "the list holds no node with a name and a status",
                         "export it with `kubectl get nodes -o json`"};
        }
        build();
        return std::move(out_);
    }

private:
    void read_node(const JsonValue& item) {
        const std::string kind = string_of(item.find("kind"));
        const auto metadata = item.find("metadata");
        const auto status = item.find("status");
        const std::string name = metadata ? string_of(metadata->find("name")) : "";
        if (name.empty() || !status || (!kind.empty() && kind != "Node")) {
            out_.lose(0, item.where() + ", which is no node");
            return;
        }
        Node node;
        node.facts.name = name;
        const auto allocatable = status->find("allocatable");
        const auto capacity = status->find("capacity");
        read_resources(node.facts, allocatable ? *allocatable : *status);
        if (capacity) {
            FabricNode whole;
            read_resources(whole, *capacity);
            if (whole.gpus > node.facts.gpus) {
                node.facts.trouble =
                    std::to_string(node.facts.gpus) + " of " + std::to_string(whole.gpus) + " GPUs";
            }
        }
        if (const auto labels = metadata->find("labels")) {
            read_labels(node, *labels);
        }
        read_health(node.facts, item, *status);
        nodes_.push_back(std::move(node));
    }

    static void read_resources(FabricNode& node, const JsonValue& resources) {
        for (const std::string& key : resources.keys()) {
            const std::int64_t amount = amount_of(resources.find(key));
            if (amount < 0) {
                continue;
            }
            if (key.ends_with("/gpu")) {
                node.gpus = std::max<std::int64_t>(node.gpus, 0) + amount;
            } else if (key.starts_with("rdma/") || key.ends_with("/efa") ||
                       text::holds(key, "rdma")) {
                node.nics = std::max<std::int64_t>(node.nics, 0) + amount;
            } else if (key == "cpu") {
                node.cores = amount;
            }
        }
    }

    void read_labels(Node& node, const JsonValue& labels) {
        for (const std::string& key : labels.keys()) {
            const std::string value = string_of(labels.find(key));
            if (key.ends_with("gpu.product") || key.ends_with("gpu.product-name") ||
                key.ends_with("gke-accelerator")) {
                node.facts.product = value;
            } else if (!value.empty() && rank_of(key)) {
                node.labels[key] = value;
                keys_.insert(key);
            }
        }
    }

    static void read_health(FabricNode& node, const JsonValue& item, const JsonValue& status) {
        const auto spec = item.find("spec");
        const auto closed = spec ? spec->find("unschedulable") : std::nullopt;
        if (closed && (string_of(closed) == "true" || (closed->is_bool() && *closed->as_bool()))) {
            node.trouble = "cordoned";
        }
        const auto conditions = status.find("conditions");
        for (std::size_t i = 0; conditions && i < conditions->size(); ++i) {
            const JsonValue condition = conditions->at(i);
            if (string_of(condition.find("type")) == "Ready" &&
                string_of(condition.find("status")) != "True") {
                node.trouble = "not ready";
            }
        }
    }

    /// Fewer devices than its neighbours of the same product is a degraded node.
    void find_degraded() {
        std::map<std::string, std::map<std::int64_t, int>> counts;
        for (const Node& node : nodes_) {
            ++counts[node.facts.product][node.facts.gpus];
        }
        for (Node& node : nodes_) {
            const auto& of_kind = counts[node.facts.product];
            const auto usual =
                std::max_element(of_kind.begin(), of_kind.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; });
            if (node.facts.trouble.empty() && node.facts.gpus < usual->first) {
                node.facts.trouble = std::to_string(std::max<std::int64_t>(node.facts.gpus, 0)) +
                                     " of " + std::to_string(usual->first) + " GPUs";
            }
        }
    }

    /// Keys of levels, from the top down, that part the nodes into nested sets.
    std::vector<std::string> levels() {
        std::vector<std::string> keys(keys_.begin(), keys_.end());
        std::stable_sort(keys.begin(), keys.end(), [](const std::string& a, const std::string& b) {
            return *rank_of(a) < *rank_of(b);
        });
        std::vector<std::string> kept;
        // From the leaf up, as the leaf is what counts most.
        for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
            if (kept.empty() || nests(kept.back(), *key)) {
                kept.push_back(*key);
            } else {
                out_.lose(0, "label " + in_quotes(*key) + ": its groups cut through those of " +
                                 in_quotes(kept.back()));
            }
        }
        std::reverse(kept.begin(), kept.end());
        return kept;
    }

    /// Each value of `below` lies within one value of `above`.
    bool nests(const std::string& below, const std::string& above) {
        std::map<std::string, std::string> up;
        for (const Node& node : nodes_) {
            const auto low = node.labels.find(below);
            const auto high = node.labels.find(above);
            if (low == node.labels.end() || high == node.labels.end()) {
                continue;
            }
            const auto [at, fresh] = up.emplace(low->second, high->second);
            if (!fresh && at->second != high->second) {
                return false;
            }
        }
        return true;
    }

    void build() {
        find_degraded();
        const std::vector<std::string> keys = levels();
        FabricBuilder builder(out_);
        builder.view().level_word = "group";
        for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
            builder.view().level_names.push_back(key->substr(key->rfind('/') + 1));
        }
        std::set<std::string> names;
        std::map<std::pair<std::string, std::string>, std::size_t> groups;
        for (Node& node : nodes_) {
            if (!names.insert(node.facts.name).second) {
                out_.lose(0, "a second node " + in_quotes(node.facts.name));
                continue;
            }
            std::optional<std::size_t> above;
            for (const std::string& key : keys) {
                const auto label = node.labels.find(key);
                if (label == node.labels.end()) {
                    continue;
                }
                const auto [entry, fresh] = groups.emplace(*label, std::size_t{0});
                if (fresh) {
                    // Two levels may use the same word for a group.
                    const bool taken = builder.has_switch(label->second);
                    entry->second =
                        builder.add_switch(taken ? key + "=" + label->second : label->second, 0);
                    if (above) {
                        builder.hang_switch(*above, entry->second, 0);
                    }
                }
                above = entry->second;
            }
            if (above) {
                builder.hang_node(*above, node.facts.name, 0);
            }
            const std::size_t at = builder.add_node(node.facts.name, 0);
            const auto leaf = builder.view().nodes[at].leaf;
            builder.view().nodes[at] = node.facts;
            builder.view().nodes[at].leaf = leaf;
        }
    }

    ForeignCluster out_;
    std::vector<Node> nodes_;
    std::set<std::string> keys_;
};

} // namespace

sim::Result<ForeignCluster> kubernetes_nodes(std::string_view text, std::string_view source) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string_view::npos && text[first] == '{';
    const auto root = is_json ? sim::JsonValue::parse(text, source) : parse_yaml(text, source);
    if (!root) {
        return root.error();
    }
    return Reader(source).read(*root);
}

} // namespace shardplan::plan::readers
