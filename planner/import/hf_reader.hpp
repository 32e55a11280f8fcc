#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/import/hf_config.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::hf {

/// No sensible class default exists: the field must be in the file.
inline constexpr std::int64_t no_default = 0;

/// What the readers of one file share: the notes they make, and the first thing that is wrong.
struct Findings {
    std::string source_name;
    std::vector<sim::Assumption> assumptions;
    std::vector<std::string> omitted;
    std::vector<std::string> missing; ///< keys without value and without known default
    std::optional<sim::Error> error;  ///< the first one

    void fail(sim::Error e) {
        if (!error) {
            error = std::move(e);
        }
    }
    /// Two readers of one key make one note.
    void assume(const std::string& path, std::string value, std::string origin, std::string note) {
        sim::Assumption made{"model." + path, std::move(value), std::move(origin), std::move(note)};
        for (const sim::Assumption& known : assumptions) {
            if (known.path == made.path) {
                return;
            }
        }
        assumptions.push_back(std::move(made));
    }
};

/// Reads one JSON object of a config by keys. Keys are given as alternatives, "n_embd|d_model", the
/// first one being the name used in messages; a dot descends into an object, "attn_config.alibi".
/// null counts as absent. Problems go to the Findings and a harmless value is returned, so that one
/// pass finds everything that is missing.
class Reader {
public:
    /// `prefix`: "text_config." for a nested object, for messages. `class_name`: whose defaults are
    /// taken, "LlamaConfig".
    Reader(sim::JsonValue object, std::string prefix, std::string class_name, Findings& findings);

    /// The value of the first key that is there.
    [[nodiscard]] std::optional<sim::JsonValue> find(std::string_view keys);
    [[nodiscard]] bool has(std::string_view keys) { return find(keys).has_value(); }

    /// A size of at least 1. Absent: `class_default`, recorded as omitted; without one, missing.
    std::int64_t size(std::string_view keys, std::int64_t class_default);
    /// A size of at least `lo`, if it is there.
    std::optional<std::int64_t> size_if(std::string_view keys, std::int64_t lo = 1);
    /// True or false. Absent: `class_default`, recorded with `note` unless that is empty.
    bool flag(std::string_view keys, bool class_default, std::string_view note);
    std::optional<bool> flag_if(std::string_view keys);
    /// A number in [lo, hi]; absent: `class_default`.
    double real(std::string_view keys, double class_default, double lo, double hi);
    /// A text; absent or not a text: empty.
    std::string text(std::string_view keys);
    /// A list of texts; absent: nothing. Elements of another type are an error.
    std::optional<std::vector<std::string>> texts(std::string_view keys);
    /// A list of whole numbers; absent: nothing.
    std::optional<std::vector<std::int64_t>> integers(std::string_view keys);

    /// Records that `key` was derived as the class derives it when it is left out.
    void derived(std::string_view key, std::int64_t value, std::string_view rule);
    /// Records an error at a key.
    void fail(std::string_view key, std::string what, std::string hint);
    void unsupported(std::string_view key, std::string what, std::string hint);

    /// The object around a nested text config: some files state there whether tables are tied.
    void set_outer(sim::JsonValue outer) { outer_ = std::move(outer); }

    [[nodiscard]] const sim::JsonValue& object() const { return object_; }
    [[nodiscard]] const std::string& prefix() const { return prefix_; }
    [[nodiscard]] std::string origin() const { return "class default of " + class_name_; }
    [[nodiscard]] Findings& findings() { return *findings_; }
    /// Top-level keys of the object that were asked for and found.
    [[nodiscard]] const std::set<std::string>& used() const { return used_; }

private:
    [[nodiscard]] std::string where(std::string_view key) const;
    std::optional<std::int64_t> integer(const sim::JsonValue& value, std::int64_t lo);

    sim::JsonValue object_;
    std::optional<sim::JsonValue> outer_;
    std::string prefix_;
    std::string class_name_;
    Findings* findings_;
    std::set<std::string> used_;
};

/// The first alternative of "a|b|c".
std::string_view first_key(std::string_view keys);

} // namespace shardplan::plan::hf
