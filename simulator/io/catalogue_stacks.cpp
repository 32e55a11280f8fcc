#include <algorithm>
#include <utility>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/catalogue_files.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {

namespace {

/// Longer chains are a circle, or nobody can follow them.
constexpr std::size_t longest_chain = 8;

Result<JsonValue> parse_file(const std::string& path) {
    const Result<std::string> text = read_file(path);
    if (!text) {
        return text.error();
    }
    return JsonValue::parse(*text, path);
}

/// The built-in file whose profile has this name or alias; empty if there is none.
Result<std::string> built_in_stack(const std::string& name) {
    const Result<std::vector<std::string>> names = detail::names_in(detail::stack_folder);
    if (!names) {
        return names.error();
    }
    for (const std::string& candidate : *names) {
        if (detail::same_name(candidate, name)) {
            return detail::path_of_built_in(detail::stack_folder, candidate);
        }
    }
    for (const std::string& candidate : *names) {
        const std::string path = detail::path_of_built_in(detail::stack_folder, candidate);
        const Result<JsonValue> json = parse_file(path);
        if (!json) {
            return json.error();
        }
        const std::optional<JsonValue> aliases = json->find("aliases");
        for (std::size_t i = 0; aliases && i < aliases->size(); ++i) {
            const Result<std::string> alias = aliases->at(i).as_string();
            if (alias && detail::same_name(*alias, name)) {
                return path;
            }
        }
    }
    return std::string();
}

Error unknown_stack(const std::string& name) {
    const Result<std::vector<std::string>> names = detail::names_in(detail::stack_folder);
    return names ? detail::unknown_name("stack", name, *names) : names.error();
}

/// The file and the ones it is derived from, the root last.
Result<std::vector<JsonValue>> chain_of(std::string path) {
    std::vector<JsonValue> chain;
    while (true) {
        Result<JsonValue> json = parse_file(path);
        if (!json) {
            return std::move(json).error();
        }
        chain.push_back(std::move(json).value());
        const std::optional<JsonValue> base = chain.back().find("derived_from");
        if (!base) {
            return chain;
        }
        const Result<std::string> name = base->as_string();
        if (!name) {
            return name.error();
        }
        if (name->empty()) {
            return chain;
        }
        if (chain.size() == longest_chain) {
            return Error{ErrorCode::bad_input, base->where(),
                         "more than " + std::to_string(longest_chain) +
                             " profiles are derived from one another",
                         "break the circle"};
        }
        Result<std::string> next = built_in_stack(*name);
        if (!next) {
            return std::move(next).error();
        }
        if (next->empty()) {
            Error error = unknown_stack(*name);
            error.where = base->where();
            return error;
        }
        path = std::move(next).value();
    }
}

Result<StackProfile> load_chain(const std::string& path) {
    const Result<std::vector<JsonValue>> chain = chain_of(path);
    if (!chain) {
        return chain.error();
    }
    StackProfile stack;
    for (auto json = chain->rbegin(); json != chain->rend(); ++json) {
        // What a profile is called is not inherited.
        stack.name.clear();
        stack.title.clear();
        stack.derived_from.clear();
        stack.version.clear();
        stack.note.clear();
        stack.aliases.clear();
        Result<StackProfile> over = read_described_over(std::move(stack), *json);
        if (!over) {
            return std::move(over).error();
        }
        stack = std::move(over).value();
    }
    if (stack.name.empty()) {
        return Error{ErrorCode::bad_input, path + ": /name", "the stack has no name", "name it"};
    }
    if (Status status = check_stack(stack, path); !status) {
        return std::move(status).error();
    }
    return stack;
}

} // namespace

Result<StackProfile> load_stack(const std::string& name_or_path) {
    if (detail::is_path(name_or_path)) {
        return load_chain(name_or_path);
    }
    const Result<std::string> path = built_in_stack(name_or_path);
    if (!path) {
        return path.error();
    }
    return path->empty() ? Result<StackProfile>(unknown_stack(name_or_path)) : load_chain(*path);
}

Result<Loaded<StackProfile>> load_stack_or_generic(const std::string& name,
                                                   const std::string& version) {
    constexpr std::size_t year_digits = 4;
    const bool has_year =
        version.size() >= year_digits && version.find_first_not_of("0123456789") >= year_digits;
    Result<std::string> path =
        has_year ? built_in_stack(name + "-" + version.substr(0, year_digits)) : std::string();
    if (path && path->empty()) {
        path = built_in_stack(name);
    }
    if (!path) {
        return path.error();
    }
    Result<StackProfile> stack = load_chain(
        path->empty() ? detail::path_of_built_in(detail::stack_folder, "generic") : *path);
    if (!stack) {
        return std::move(stack).error();
    }
    Loaded<StackProfile> loaded{std::move(stack).value(), {}};
    if (path->empty()) {
        loaded.value.name = name;
        loaded.assumptions.push_back({"stack", "generic", "no profile of " + in_quotes(name),
                                      "constants of a typical stack, with wide bands"});
    }
    return loaded;
}

} // namespace shardplan::sim
