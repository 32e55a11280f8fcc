#include <fmt/format.h>

#include "planner/analysis/diff.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_terms.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

struct Sides {
    DiffSide a;
    DiffSide b;
};

sim::Result<Sides> sides_from(const DiffOptions& options) {
    const bool one_file = options.b.empty();
    auto first = sim::read_document_file(options.a);
    if (!first) {
        return first.error();
    }
    const std::int64_t plan_b = options.plan_b > 0 ? options.plan_b : one_file ? 2 : 1;
    const auto named = [&](const std::string& file, std::int64_t plan) {
        return one_file || options.plan_a > 1 || options.plan_b > 0
                   ? fmt::format("{}, plan {}", file, plan)
                   : file;
    };
    auto a = diff_side(*first, named(options.a, options.plan_a), options.plan_a);
    if (!a) {
        return a.error();
    }
    auto second = one_file ? std::move(first) : sim::read_document_file(options.b);
    if (!second) {
        return second.error();
    }
    auto b = diff_side(*second, named(one_file ? options.a : options.b, plan_b), plan_b);
    if (!b) {
        return b.error();
    }
    return Sides{std::move(*a), std::move(*b)};
}

void print_headline(const Console& console, const Sides& sides) {
    const sim::Estimate& a = sides.a.priced.estimate;
    const sim::Estimate& b = sides.b.priced.estimate;
    Table table({{"", Align::left}, {"a", Align::left}, {"b", Align::left}, {"", Align::right}});
    const auto number = [&](const char* name, double x, double y, const auto& text) {
        table.add({name, text(x), text(y), {signed_percent(x, y), Style::strong}});
    };
    table.add({"", sides.a.name, sides.b.name});
    table.add(
        {"layout", {sides.a.priced.layout, Style::strong}, {sides.b.priced.layout, Style::strong}});
    table.add({"verdict",
               {std::string(name_of(a.verdict)), style_of(a.verdict)},
               {std::string(name_of(b.verdict)), style_of(b.verdict)}});
    table.add({"to spare", signed_amount(a.margin.value(), sim::Dimension::bytes),
               signed_amount(b.margin.value(), sim::Dimension::bytes)});
    const auto seconds = [](double v) { return sim::format_quantity(v, sim::Dimension::seconds); };
    number("step time", a.time.total.value.value(), b.time.total.value.value(), seconds);
    number("tokens/s/GPU", a.tokens_per_second_per_device, b.tokens_per_second_per_device,
           scaled_count);
    number("MFU", a.mfu, b.mfu, percent);
    if (a.money_per_million_tokens > 0.0 && b.money_per_million_tokens > 0.0) {
        number("money per million tokens", a.money_per_million_tokens, b.money_per_million_tokens,
               [](double v) { return fmt::format("{:.3g}", v); });
    }
    table.print(console.out, console.color);
}

void write_side(sim::JsonWriter& json, const char* key, const DiffSide& side) {
    json.begin_object(key).member("name", side.name).key("estimate");
    write_estimate(json, {side.priced.layout, side.priced.estimate});
    json.end_object();
}

void write_json(const Console& console, const Sides& sides, const PlanDiff& diff) {
    sim::JsonWriter json;
    json.begin_object();
    write_side(json, "a", sides.a);
    write_side(json, "b", sides.b);
    write_fields(json, "inputs", diff.inputs);
    write_fields(json, "layout", diff.layout);
    write_terms(json, "memory_bytes", diff.memory);
    write_terms(json, "host_bytes", diff.host);
    write_terms(json, "exposed_s", diff.time);
    write_terms(json, "hidden_s", diff.hidden);
    write_terms(json, "link_bytes_per_step", diff.links);
    json.begin_array("stale");
    for (const std::string& text : diff.stale) {
        json.value(text);
    }
    json.end_array().end_object();
    console.out << json.str();
}

void print_text(const Console& console, const Sides& sides, const PlanDiff& diff) {
    print_headline(console, sides);
    if (diff.inputs.empty() && diff.layout.empty()) {
        console.out << "\nthe inputs and the layouts are the same\n";
    }
    print_fields(console, "Layout", diff.layout, diff.layout.size());
    print_fields(console, "Inputs that differ", diff.inputs, most_fields_shown);
    print_terms(console, "Step time by kind", diff.time, sim::Dimension::seconds);
    print_terms(console, "Hidden under compute", diff.hidden, sim::Dimension::seconds);
    print_terms(console, "Memory at the peak, deciding class", diff.memory, sim::Dimension::bytes);
    print_terms(console, "Sent by one device per step", diff.links, sim::Dimension::bytes);
    for (const std::string& text : diff.stale) {
        console.err << "note: " << text << '\n';
    }
}

} // namespace

int run_diff(const DiffOptions& options, const Console& console) {
    const auto sides = sides_from(options);
    if (!sides) {
        return fail(console, sides.error());
    }
    for (const DiffSide* side : {&sides->a, &sides->b}) {
        if (!side->priced.legal()) {
            return fail(console, {sim::ErrorCode::bad_input, side->name,
                                  "its layout is not legal: " + side->priced.refusals.front().rule,
                                  "see `shardplan estimate` for the nearest legal one"});
        }
    }
    const PlanDiff diff = diff_plans(sides->a, sides->b);
    if (console.json) {
        write_json(console, *sides, diff);
    } else {
        print_text(console, *sides, diff);
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
