#include "planner/cli/present_terms.hpp"

#include <cmath>

#include <fmt/format.h>

#include "planner/cli/table.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {

std::string signed_amount(double value, sim::Dimension dimension) {
    const std::string text = sim::format_quantity(std::abs(value), dimension);
    return value == 0.0 ? "" : (value > 0.0 ? "+" : "-") + text;
}

std::string signed_percent(double a, double b) {
    return a > 0.0 && a != b ? fmt::format("{:+.1f} %", 100.0 * (b / a - 1.0)) : "";
}

void print_terms(const Console& console, const char* title, const std::vector<DiffTerm>& terms,
                 sim::Dimension dimension) {
    if (terms.empty()) {
        return;
    }
    print_heading(console.out, title, console.color);
    Table table({{"", Align::left},
                 {"a", Align::right},
                 {"b", Align::right},
                 {"b - a", Align::right},
                 {"", Align::right}});
    double a = 0.0;
    double b = 0.0;
    for (const DiffTerm& term : terms) {
        a += term.a;
        b += term.b;
        table.add({term.name,
                   sim::format_quantity(term.a, dimension),
                   sim::format_quantity(term.b, dimension),
                   {signed_amount(term.change(), dimension), Style::strong},
                   signed_percent(term.a, term.b)});
    }
    table.add({{"together", Style::faint},
               sim::format_quantity(a, dimension),
               sim::format_quantity(b, dimension),
               {signed_amount(b - a, dimension), Style::strong},
               signed_percent(a, b)});
    table.print(console.out, console.color, 2);
}

void print_fields(const Console& console, const char* title, const std::vector<DiffField>& fields,
                  std::size_t most) {
    if (fields.empty()) {
        return;
    }
    print_heading(console.out, title, console.color);
    Table table({{"", Align::left}, {"a", Align::left}, {"b", Align::left}});
    for (std::size_t i = 0; i < fields.size() && i < most; ++i) {
        const auto shown = [](const std::string& text) { return text.empty() ? "-" : text; };
        table.add({fields[i].path, shown(fields[i].a), {shown(fields[i].b), Style::strong}});
    }
    table.print(console.out, console.color, 2);
    if (fields.size() > most) {
        console.out << "  and " << fields.size() - most << " more; --json lists all\n";
    }
}

void write_terms(sim::JsonWriter& json, const char* key, const std::vector<DiffTerm>& terms) {
    json.begin_array(key);
    for (const DiffTerm& term : terms) {
        json.begin_object()
            .member("term", term.name)
            .member("a", term.a)
            .member("b", term.b)
            .member("change", term.change())
            .end_object();
    }
    json.end_array();
}

void write_fields(sim::JsonWriter& json, const char* key, const std::vector<DiffField>& fields) {
    json.begin_array(key);
    for (const DiffField& field : fields) {
        json.begin_object()
            .member("path", field.path)
            .member("a", field.a)
            .member("b", field.b)
            .end_object();
    }
    json.end_array();
}

} // namespace shardplan::plan::cli
