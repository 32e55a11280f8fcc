#include <fmt/format.h>

#include "planner/cli/inputs.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "planner/import/load_model.hpp"
#include "planner/import/model_report.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

void write_json(const Console& console, const ImportedModel& imported, const ModelReport& report) {
    const sim::ModelSpec& model = imported.model;
    sim::JsonWriter json;
    json.begin_object()
        .member("name", model.name)
        .member("family", model.family)
        .member("source", model.source);
    write_model_report(json, report);
    json.member("checkpoint_dtype", imported.checkpoint_dtype)
        .member("quantization", imported.quantization);
    json.begin_array("assumptions");
    for (const sim::Assumption& assumption : imported.assumptions) {
        json.value(assumption);
    }
    json.end_array();
    json.begin_array("unknown_keys");
    for (const std::string& key : model.unknown_keys) {
        json.value(key);
    }
    json.end_array().member("model", model).end_object();
    console.out << json.str();
}

std::string attention_words(const sim::Attention& a) {
    switch (a.kind) {
        case sim::AttentionKind::none:
            return "no attention";
        case sim::AttentionKind::linear:
        case sim::AttentionKind::ssm:
            return std::string(name_of(a.kind));
        case sim::AttentionKind::mla:
            return fmt::format("mla, {} heads, ranks {} and {}", a.heads, a.q_rank, a.kv_rank);
        case sim::AttentionKind::mha:
        case sim::AttentionKind::gqa:
            break;
    }
    std::string out = fmt::format("{} heads of {}", a.heads, a.qk_head_dim);
    if (a.kv_heads != a.heads) {
        out += fmt::format(", {} KV heads", a.kv_heads);
    }
    if (a.window > 0) {
        out += fmt::format(", window {}", a.window);
    }
    return out;
}

std::string ffn_words(const sim::Ffn& f) {
    switch (f.kind) {
        case sim::FfnKind::none:
            return "no ffn";
        case sim::FfnKind::linear:
            return "one linear map";
        case sim::FfnKind::moe: {
            std::string out =
                fmt::format("{} experts of {}, top {}", f.experts, f.expert_width, f.top_k);
            return f.shared_width > 0 ? fmt::format("{}, shared {}", out, f.shared_width) : out;
        }
        case sim::FfnKind::dense:
            break;
    }
    return fmt::format("{}ffn {}", f.gated ? "gated " : "", f.width);
}

void print_shape(const Console& console, const sim::ModelSpec& model, const ModelReport& report) {
    print_heading(console.out, "Parts", console.color);
    Table parts({{"part", Align::left},
                 {"role", Align::left},
                 {"hidden", Align::right},
                 {"parameters", Align::right}});
    for (std::size_t i = 0; i < report.counts.parts.size() && i < model.parts.size(); ++i) {
        const auto& part = report.counts.parts[i];
        parts.add({part.name, std::string(name_of(part.role)),
                   sim::group_digits(model.parts[i].hidden), sim::group_digits(part.total)});
    }
    parts.print(console.out, console.color, 2);

    print_heading(console.out, "Blocks", console.color);
    Table blocks({{"kind", Align::left},
                  {"count", Align::right},
                  {"parameters each", Align::right},
                  {"attention", Align::left},
                  {"network", Align::left}});
    for (std::size_t i = 0; i < report.counts.block_kinds.size(); ++i) {
        const auto& kind = report.counts.block_kinds[i];
        const sim::BlockKind& shape = model.block_kinds[i];
        blocks.add({kind.name, std::to_string(kind.blocks), sim::group_digits(kind.per_block),
                    attention_words(shape.attention), ffn_words(shape.ffn)});
    }
    blocks.print(console.out, console.color, 2);
}

void print_text(const Console& console, const ImportedModel& imported, const ModelReport& report) {
    const sim::ModelSpec& model = imported.model;
    const sim::ParameterCounts& counts = report.counts;
    Table table({{"", Align::left}, {"", Align::right}, {"", Align::left}});
    console.out << styled(model.name, Style::strong, console.color);
    if (!model.family.empty()) {
        console.out << " (" << model.family << ")";
    }
    console.out << "\n\n";
    table.add({"parameters",
               {sim::group_digits(counts.total), Style::strong},
               scaled_count(static_cast<double>(counts.total))});
    table.add({"active",
               {sim::group_digits(counts.active), Style::strong},
               "for one token, less the experts it is not sent to"});
    table.add({"embedding", sim::group_digits(counts.embedding), "token table and untied head"});
    if (counts.mtp > 0) {
        table.add({"mtp", sim::group_digits(counts.mtp), "beside the parameters above"});
    }
    table.add({"vocabulary", sim::group_digits(model.embedding.vocab),
               model.embedding.tied ? "tied" : "untied"});
    if (model.max_positions > 0) {
        table.add({"positions", sim::group_digits(model.max_positions),
                   std::string(name_of(model.embedding.positions))});
    }
    table.print(console.out, console.color);
    print_shape(console, model, report);
    if (!imported.checkpoint_dtype.empty() || !imported.quantization.empty()) {
        console.out << "\ncheckpoint: " << imported.checkpoint_dtype
                    << (imported.quantization.empty() ? "" : " " + imported.quantization) << '\n';
    }
    print_assumptions(console.out, imported.assumptions, console.color);
    if (!model.unknown_keys.empty()) {
        console.out << "\nnot understood, and without effect: "
                    << fmt::format("{}", fmt::join(model.unknown_keys, ", ")) << '\n';
    }
}

} // namespace

int run_model(const ModelOptions& options, const Console& console) {
    if (const auto status = check_sets(options.sets, {"model"}); !status) {
        return fail(console, status.error());
    }
    auto imported = load_model(options.model);
    if (!imported) {
        return fail(console, imported.error());
    }
    if (const auto status = apply_sets(imported->model, "model", options.sets); !status) {
        return fail(console, status.error());
    }
    if (const auto status = sim::check_model(imported->model, options.model); !status) {
        return fail(console, status.error());
    }
    const ModelReport report = report_model(*imported);
    if (console.json) {
        write_json(console, *imported, report);
    } else {
        print_text(console, *imported, report);
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
