#include "planner/import/yaml.hpp"

#include <set>
#include <string>

#include <yaml-cpp/yaml.h>

namespace shardplan::plan {
namespace {

using sim::Error;
using sim::ErrorCode;

constexpr std::size_t most_values = 4'000'000;
constexpr int deepest = 60; // below the limit of the JSON reader

/// False where the limits are reached.
bool write(const YAML::Node& node, sim::JsonWriter& json, std::size_t& values, int depth) {
    if (++values > most_values || depth > deepest) {
        return false;
    }
    switch (node.Type()) {
        case YAML::NodeType::Map: {
            json.begin_object();
            std::set<std::string> seen;
            for (const auto& entry : node) {
                const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
                if (!seen.insert(key).second) {
                    continue; // the first one counts, as a repeated key is no JSON
                }
                json.key(key);
                if (!write(entry.second, json, values, depth + 1)) {
                    return false;
                }
            }
            json.end_object();
            return true;
        }
        case YAML::NodeType::Sequence:
            json.begin_array();
            for (const auto& item : node) {
                if (!write(item, json, values, depth + 1)) {
                    return false;
                }
            }
            json.end_array();
            return true;
        case YAML::NodeType::Scalar:
            json.value(node.Scalar());
            return true;
        default:
            json.value(nullptr);
            return true;
    }
}

Error too_large(std::string_view source) {
    return Error{ErrorCode::bad_input, std::string(source),
                 "the text holds more than " + std::to_string(most_values) +
                     " values, or is nested deeper than " + std::to_string(deepest),
                 "give a smaller file"};
}

} // namespace

sim::Result<sim::JsonValue> parse_yaml(std::string_view text, std::string_view source) {
    try {
        const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
        sim::JsonWriter json(sim::Indent::compact);
        std::size_t values = 0;
        if (documents.size() != 1) {
            json.begin_array();
        }
        for (const YAML::Node& document : documents) {
            if (!write(document, json, values, 0)) {
                return too_large(source);
            }
        }
        if (documents.size() != 1) {
            json.end_array();
        }
        return sim::JsonValue::parse(json.str(), source);
    } catch (const YAML::Exception& e) {
        return Error{ErrorCode::bad_input,
                     std::string(source) + ":" + std::to_string(e.mark.line + 1) + ":" +
                         std::to_string(e.mark.column + 1),
                     "the text is no YAML: " + e.msg, "mend the line, or export the file again"};
    }
}

} // namespace shardplan::plan
