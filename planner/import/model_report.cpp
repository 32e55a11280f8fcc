#include "planner/import/model_report.hpp"

namespace shardplan::plan {

ModelReport report_model(const ImportedModel& model) {
    ModelReport out;
    out.counts = sim::count_parameters(model.model);
    out.omitted = model.omitted;
    for (const sim::ParameterCounts::OfPart& part : out.counts.parts) {
        if (part.role == sim::PartRole::trunk) {
            out.text_params = part.total;
        }
    }
    if (const sim::Part* trunk = sim::trunk_of(model.model)) {
        for (const sim::Run& run : trunk->runs) {
            const sim::BlockKind& kind =
                model.model.block_kinds[static_cast<std::size_t>(run.kind)];
            out.moe_layers += kind.ffn.kind == sim::FfnKind::moe ? run.count : 0;
        }
    }
    constexpr std::int64_t multiple = 128; // Megatron's default make-vocab-size-divisible-by
    for (const std::int64_t tp : {1, 2, 4, 8}) {
        out.padded_vocab.emplace_back(tp,
                                      sim::padded_vocab(model.model.embedding.vocab, multiple, tp));
    }
    return out;
}

void write_model_report(sim::JsonWriter& json, const ModelReport& report) {
    json.member("params", report.counts.total)
        .member("params_without_mtp", report.counts.total)
        .member("active_params", report.counts.active)
        .member("active_params_without_mtp", report.counts.active)
        .member("text_params", report.text_params)
        .member("moe_layers", report.moe_layers);
    json.begin_object("padded_vocab");
    for (const auto& [tp, rows] : report.padded_vocab) {
        json.member(std::to_string(tp), rows);
    }
    json.end_object();
    json.begin_array("omitted");
    for (const std::string& key : report.omitted) {
        json.value(key);
    }
    json.end_array();
    json.begin_object("parameters")
        .member("total", report.counts.total)
        .member("active", report.counts.active)
        .member("embedding", report.counts.embedding)
        .member("mtp", report.counts.mtp);
    json.begin_array("parts");
    for (const sim::ParameterCounts::OfPart& part : report.counts.parts) {
        json.begin_object()
            .member("name", part.name)
            .member("role", std::string(sim::name_of(part.role)))
            .member("total", part.total)
            .end_object();
    }
    json.end_array();
    json.begin_array("block_kinds");
    for (const sim::ParameterCounts::OfKind& kind : report.counts.block_kinds) {
        json.begin_object()
            .member("name", kind.name)
            .member("per_block", kind.per_block)
            .member("blocks", kind.blocks)
            .end_object();
    }
    json.end_array();
    json.end_object();
}

} // namespace shardplan::plan
