#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/json.hpp"
#include "simulator/io/json_tree.hpp"
#include "simulator/spec/fields.hpp"

/// The reader of described types and the checks it shares with `--set`; private to simulator/io.
namespace shardplan::sim::detail {

/// Keys for people, allowed in any object that has no field of that name.
std::span<const std::string_view> annotation_keys();

/// An Error if `value` lies outside the bounds of the field.
std::optional<Error> bounds_error(const FieldMeta& meta, Dimension dimension, double value,
                                  std::string_view where);
std::optional<Error> integer_bounds_error(const FieldMeta& meta, std::int64_t value,
                                          std::string_view where);
/// "no such choice" with the nearest of `names`.
Error choice_error(const FieldMeta& meta, std::span<const std::string_view> names,
                   std::string_view given, std::string_view where);
/// ".key", or ".{key}" if the key has signs that a path gives a meaning.
std::string path_step(std::string_view key);

/// Fills what it visits from a tree. After the first Error it visits on without effect.
class JsonReader final : public FieldVisitor {
public:
    /// `where`, and after it pointers from `base_pointer`, begin each Error.
    JsonReader(std::string source, std::string base_pointer, ReadMode mode, ReadNotes* notes)
        : source_(std::move(source)),
          base_pointer_(std::move(base_pointer)),
          mode_(mode),
          notes_(notes) {}

    /// The next visit takes this value, whatever the key of the field.
    void next_is(const JsonNode& node) { element_ = &node; }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

    void integer(const FieldMeta& meta, std::int64_t& value) override;
    void quantity(const FieldMeta& meta, Dimension dimension, double& base) override;
    void flag(const FieldMeta& meta, bool& value) override;
    void text(const FieldMeta& meta, std::string& value) override;
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override;
    void list(const FieldMeta& meta, ListAccess& items) override;
    void map(const FieldMeta& meta, MapAccess& items) override;
    void object(const FieldMeta& meta, ObjectAccess& fields) override;
    bool optional(const FieldMeta& meta, bool present) override;

private:
    /// The object whose fields are being visited; `json` is nullptr where it is absent itself.
    struct Scope {
        const JsonObject* json;
        Scope* outer;
        std::vector<std::string> known;
        std::optional<Error> missing;
    };

    /// The node of a field; nullptr if there is none (or an Error stops the visit). `expected`
    /// tells what to write where it is required.
    const JsonNode* take(const FieldMeta& meta, std::string_view expected);
    /// Whether `take` found nothing because the field is absent and its default stands.
    [[nodiscard]] bool keeps_default() const { return !error_ && default_stands_; }
    void note_default(const FieldMeta& meta, std::string value);
    /// A number whose default stands: noted, unless it is illegal, which makes the field required.
    void check_default(const FieldMeta& meta, std::string_view expected, double value,
                       std::string text);
    /// Reports a field as missing once the object around it is known to have no misspelt key.
    void report_missing(const FieldMeta& meta, std::string_view expected);
    /// An Error for a value of the wrong type.
    void wrong_type(const FieldMeta& meta, const JsonNode& node, std::string_view expected,
                    std::string hint);
    void fail(Error error);
    void finish(Scope& scope);
    void visit_scope(const JsonObject* json, ObjectAccess& fields);
    /// Reads one element or entry under a step of the path.
    template <class Visit>
    void descend(std::string pointer_step, std::string path_step, const Visit& visit);
    [[nodiscard]] std::string where(const FieldMeta& meta) const;

    std::string source_;
    std::string base_pointer_;
    ReadMode mode_;
    ReadNotes* notes_;
    std::vector<std::string> pointer_steps_;
    std::vector<std::string> path_steps_;
    Scope* scope_ = nullptr;
    const JsonNode* element_ = nullptr;
    bool at_element_ = false; ///< the node last taken was given by next_is
    bool default_stands_ = false;
    std::optional<Error> error_;
};

} // namespace shardplan::sim::detail
