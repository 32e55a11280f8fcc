#include "planner/cli/completion.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "simulator/io/json.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr const char* listed = "models clusters devices stacks jobs features";
constexpr const char* shells = "bash zsh fish";

/// The kind of `shardplan list` that holds the names of a value; empty: none does.
std::string_view list_of(ValueKind kind) {
    switch (kind) {
        case ValueKind::model:
            return "models";
        case ValueKind::cluster:
            return "clusters";
        case ValueKind::job:
            return "jobs";
        case ValueKind::stack:
            return "stacks";
        case ValueKind::feature:
            return "features";
        case ValueKind::device:
            return "devices";
        default:
            return "";
    }
}

bool takes_files(ValueKind kind) {
    return kind == ValueKind::file ||
           (!list_of(kind).empty() && kind != ValueKind::feature && kind != ValueKind::device);
}

/// Text between single quotes of a shell.
std::string quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return out + "'";
}

/// The names come from the program when they are asked for: its data may grow.
constexpr const char* bash_names = R"(_shardplan_names() {
    shardplan list "$1" --color never 2>/dev/null | awk 'NF { print $1 }'
}
)";

/// A shell command that prints the values, one a line or many; empty: none can be told.
std::string values_command(ValueKind kind) {
    if (!list_of(kind).empty()) {
        return fmt::format("$(_shardplan_names {})", list_of(kind));
    }
    if (kind == ValueKind::list) {
        return listed;
    }
    return kind == ValueKind::shell ? shells : "";
}

std::string bash_reply(ValueKind kind) {
    std::string out;
    if (const std::string values = values_command(kind); !values.empty()) {
        out = fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))", values);
    }
    if (takes_files(kind)) {
        out += (out.empty() ? "COMPREPLY=(" : "; COMPREPLY+=(") +
               std::string("$(compgen -f -- \"$word\"))");
    }
    return out.empty() ? "COMPREPLY=()" : out;
}

std::string bash_verb(const CompletedVerb& verb) {
    std::string out = fmt::format("    {})\n        case \"$before\" in\n", verb.name);
    std::string all;
    for (const CompletedFlag& flag : verb.flags) {
        all += (all.empty() ? "" : " ") + flag.name;
        if (flag.value != ValueKind::none) {
            out += fmt::format("        {}) {}; return ;;\n", flag.name, bash_reply(flag.value));
        }
    }
    out += fmt::format(
        "        esac\n        if [[ \"$word\" == -* ]]; then\n"
        "            COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n        else\n            {}\n"
        "        fi\n        ;;\n",
        all, bash_reply(verb.positionals.empty() ? ValueKind::any : verb.positionals.front()));
    return out;
}

std::string bash_script(const std::vector<CompletedVerb>& verbs) {
    std::string names;
    for (const CompletedVerb& verb : verbs) {
        names += (names.empty() ? "" : " ") + verb.name;
    }
    std::string out = "# bash completion of shardplan: source <(shardplan completion bash)\n";
    out += bash_names;
    out +=
        "_shardplan() {\n    local word=\"${COMP_WORDS[COMP_CWORD]}\"\n"
        "    local before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n    COMPREPLY=()\n"
        "    if [[ $COMP_CWORD -eq 1 ]]; then\n";
    out += fmt::format(
        "        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n        return\n"
        "    fi\n    case \"${{COMP_WORDS[1]}}\" in\n",
        names);
    for (const CompletedVerb& verb : verbs) {
        out += bash_verb(verb);
    }
    return out + "    esac\n}\ncomplete -F _shardplan shardplan\n";
}

/// zsh runs the script of bash through its own adapter.
std::string zsh_script(const std::vector<CompletedVerb>& verbs) {
    return "# zsh completion of shardplan: source <(shardplan completion zsh)\n"
           "autoload -U +X bashcompinit && bashcompinit\n" +
           bash_script(verbs);
}

std::string fish_script(const std::vector<CompletedVerb>& verbs) {
    std::string out =
        "# fish completion of shardplan: shardplan completion fish | source\n"
        "function __shardplan_names\n"
        "    shardplan list $argv[1] --color never 2>/dev/null | string match -r '^\\\\s*\\\\S+' | "
        "string trim\nend\ncomplete -c shardplan -f\n";
    const auto values = [](ValueKind kind) {
        std::string text = list_of(kind).empty()
                               ? values_command(kind)
                               : fmt::format("(__shardplan_names {})", list_of(kind));
        std::string flags = text.empty() ? "" : fmt::format(" -a \"{}\"", text);
        return flags + (takes_files(kind) ? " -F" : "");
    };
    for (const CompletedVerb& verb : verbs) {
        out += fmt::format("complete -c shardplan -n __fish_use_subcommand -a {} -d {}\n",
                           verb.name, quoted(verb.doc));
        const std::string when =
            fmt::format("complete -c shardplan -n '__fish_seen_subcommand_from {}'", verb.name);
        for (const CompletedFlag& flag : verb.flags) {
            out += fmt::format("{} -l {}{} -d {}\n", when, flag.name.substr(2),
                               flag.value == ValueKind::none ? "" : " -x" + values(flag.value),
                               quoted(flag.doc));
        }
        for (const ValueKind kind : verb.positionals) {
            if (const std::string given = values(kind); !given.empty()) {
                out += when + given + "\n";
            }
        }
    }
    return out;
}

} // namespace

ValueKind value_kind_of(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, ValueKind>, 32> kinds = {{
        {"--model", ValueKind::model},
        {"model", ValueKind::model},
        {"--cluster", ValueKind::cluster},
        {"cluster", ValueKind::cluster},
        {"--node", ValueKind::cluster},
        {"--device", ValueKind::device},
        {"--job", ValueKind::job},
        {"--stack", ValueKind::stack},
        {"--feature", ValueKind::feature},
        {"--calibration", ValueKind::file},
        {"--output", ValueKind::file},
        {"--report", ValueKind::file},
        {"--runs", ValueKind::file},
        {"--kernels", ValueKind::file},
        {"--collectives", ValueKind::file},
        {"timings", ValueKind::file},
        {"--trace", ValueKind::file},
        {"--html", ValueKind::file},
        {"--over", ValueKind::file},
        {"--measurement", ValueKind::file},
        {"--measure", ValueKind::file},
        {"--attach", ValueKind::file},
        {"--data", ValueKind::file},
        {"--save", ValueKind::file},
        {"--sweep", ValueKind::file},
        {"--offload-dir", ValueKind::file},
        {"--hostfile", ValueKind::file},
        {"plan-file", ValueKind::file},
        {"a", ValueKind::file},
        {"b", ValueKind::file},
        {"what", ValueKind::list},
        {"shell", ValueKind::shell},
    }};
    for (const auto& [known, kind] : kinds) {
        if (known == name) {
            return kind;
        }
    }
    return ValueKind::any;
}

std::string verb_table_json(const std::vector<CompletedVerb>& verbs) {
    sim::JsonWriter json;
    json.begin_object().begin_array("verbs");
    for (const CompletedVerb& verb : verbs) {
        json.begin_object().member("name", verb.name).member("summary", verb.doc);
        json.begin_array("flags");
        for (const CompletedFlag& flag : verb.flags) {
            json.begin_object()
                .member("name", flag.name)
                .member("doc", flag.doc)
                .member("takes_value", flag.value != ValueKind::none)
                .end_object();
        }
        json.end_array().end_object();
    }
    return json.end_array().end_object().str();
}

sim::Result<std::string> completion_script(const std::vector<CompletedVerb>& verbs,
                                           std::string_view shell) {
    if (shell == "bash") {
        return bash_script(verbs);
    }
    if (shell == "zsh") {
        return zsh_script(verbs);
    }
    if (shell == "fish") {
        return fish_script(verbs);
    }
    const std::vector<std::string> known = {"bash", "zsh", "fish"};
    return sim::Error{sim::ErrorCode::bad_input, "completion",
                      "there is no completion for " + sim::in_quotes(shell),
                      sim::nearest_hint(shell, known)};
}

} // namespace shardplan::plan::cli
