#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// Completion of command lines, generated from the table of verbs, so that it cannot lag behind it.
namespace shardplan::plan::cli {

/// What a value may be.
enum class ValueKind {
    none,  ///< the flag stands alone
    any,   ///< cannot be guessed
    file,  ///< a path
    model, ///< a name of `shardplan list models`, or a path
    cluster,
    job,
    stack,
    feature,
    device,
    list,  ///< what `shardplan list` can list
    shell, ///< what this file can write for
};

struct CompletedFlag {
    std::string name; ///< "--model"
    std::string doc;
    ValueKind value = ValueKind::any;
};

struct CompletedVerb {
    std::string name;
    std::string doc;
    std::vector<CompletedFlag> flags;
    std::vector<ValueKind> positionals;
};

/// What a flag or positional of this name takes.
ValueKind value_kind_of(std::string_view name);

/// The script for "bash", "zsh" or "fish". Errors: another shell.
sim::Result<std::string> completion_script(const std::vector<CompletedVerb>& verbs,
                                           std::string_view shell);

/// The table itself, for programs.
std::string verb_table_json(const std::vector<CompletedVerb>& verbs);

} // namespace shardplan::plan::cli
