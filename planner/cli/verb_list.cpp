#include <array>
#include <string>
#include <vector>

#include "planner/cli/list_json.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "planner/import/load_model.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/stack_features.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan::cli {
namespace {

using Entries = sim::Result<std::vector<sim::CatalogueEntry>>;

Entries list_features() {
    std::vector<sim::CatalogueEntry> out;
    const auto& names = sim::EnumNames<sim::Feature>::names;
    for (std::size_t i = 0; i < names.size(); ++i) {
        out.push_back(
            {std::string(names[i]), std::string(sim::doc_of(static_cast<sim::Feature>(i)))});
    }
    return out;
}

struct Kind {
    std::string_view name;
    Entries (*list)();
};

constexpr std::array<Kind, 6> kinds = {{
    {"models", list_models},
    {"clusters", sim::list_clusters},
    {"devices", sim::list_devices},
    {"stacks", sim::list_stacks},
    {"jobs", sim::list_jobs},
    {"features", list_features},
}};

int print(const Kind& kind, const std::vector<sim::CatalogueEntry>& entries,
          const Console& console) {
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().begin_array(kind.name);
        for (const sim::CatalogueEntry& entry : entries) {
            json.begin_object().member("name", entry.name).member("summary", entry.summary);
            if (const auto status = write_details(json, kind.name, entry.name); !status) {
                return fail(console, status.error());
            }
            json.end_object();
        }
        json.end_array().end_object();
        console.out << json.str();
        return exit_code::yes;
    }
    Table table({{"", Align::left}, {"", Align::left}});
    for (const sim::CatalogueEntry& entry : entries) {
        table.add({{entry.name, Style::strong}, entry.summary});
    }
    table.print(console.out, console.color);
    return exit_code::yes;
}

} // namespace

int run_list(const ListOptions& options, const Console& console) {
    std::vector<std::string> names;
    for (const Kind& kind : kinds) {
        if (kind.name == options.what) {
            const Entries entries = kind.list();
            return entries ? print(kind, *entries, console) : fail(console, entries.error());
        }
        names.emplace_back(kind.name);
    }
    return fail(console, {sim::ErrorCode::bad_input, "list",
                          "there is no list of " + sim::in_quotes(options.what),
                          sim::nearest_hint(options.what, names)});
}

} // namespace shardplan::plan::cli
