#include "planner/import/yaml.hpp"

#include <set>
#include <sstream>
#include <string>

#include <yaml-cpp/eventhandler.h>
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

/// Notes whether a document holds anything, and where the parser stands.
class Progress : public YAML::EventHandler {
public:
    void OnDocumentStart(const YAML::Mark& mark) override { at(mark, false); }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { at(mark, false); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { at(mark, true); }
    void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  const std::string& /*value*/) override {
        at(mark, true);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/,
                         YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
        at(mark, true);
    }
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                    YAML::EmitterStyle::value /*style*/) override {
        at(mark, true);
    }
    void OnMapEnd() override {}

    bool holds_something = false;
    YAML::Mark reached = YAML::Mark::null_mark();

private:
    void at(const YAML::Mark& where, bool something) {
        reached = where;
        holds_something = holds_something || something;
    }
};

Error no_yaml(std::string_view source, const YAML::Mark& mark, const std::string& why) {
    return Error{ErrorCode::bad_input,
                 std::string(source) + ":" + std::to_string(mark.line + 1) + ":" +
                     std::to_string(mark.column + 1),
                 "the text is no YAML: " + why, "mend the line, or export the file again"};
}

/// yaml-cpp 0.7 reads empty documents without end where a sign of a list stands alone, and a single
/// document only up to there. So each is watched first: two empty ones in a row are no text.
sim::Status check_documents(const std::string& text, std::string_view source) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    for (int empty = 0; empty < 2;) {
        Progress progress;
        if (!parser.HandleNextDocument(progress)) {
            return sim::Done{};
        }
        empty = progress.holds_something ? 0 : empty + 1;
        if (empty == 2) {
            return no_yaml(source, progress.reached, "a sign that belongs to nothing");
        }
    }
    return sim::Done{};
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
        const std::string copy(text);
        if (const sim::Status status = check_documents(copy, source); !status) {
            return status.error();
        }
        const std::vector<YAML::Node> documents = YAML::LoadAll(copy);
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
        return no_yaml(source, e.mark, e.msg);
    }
}

} // namespace shardplan::plan
