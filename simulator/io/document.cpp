#include "simulator/io/document.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {
namespace {

constexpr std::string_view format_name = "shardplan-document";
constexpr std::int64_t format_version = 1;
constexpr const char* how_to_make = "make one with `shardplan plan ... -o plan.shardplan.json`";

/// A document as it stands in a file.
struct DocumentFile {
    std::string format;
    std::int64_t version = 0;
    std::string tool_version;
    std::string hash;
    Scenario scenario;
    std::vector<PlanEntry> plans;
    std::string baseline;
    std::vector<Calibration> calibrations;
};

void describe(FieldVisitor& v, DocumentFile& x) {
    field(v, {"format", "format", "Always shardplan-document.", true}, x.format);
    field(v, {"format_version", "format version", "Version of this form.", true}, x.version);
    field(v, {"tool_version", "tool version", "Version of the program that wrote it."},
          x.tool_version);
    field(v, {"hash", "hash", "Tells whether the rest was changed after it was written.", true},
          x.hash);
    field(v, {"scenario", "scenario", "Everything that was given.", true}, x.scenario);
    field(v, {"plans", "plans", "Layouts chosen for it, best first.", true}, x.plans);
    field(v, {"baseline", "baseline", "Layout others are compared with; empty: the first plan."},
          x.baseline);
    field(v, {"calibrations", "calibrations", "Attached calibrations."}, x.calibrations);
}

std::string hash_of(DocumentFile file) {
    file.hash.clear();
    return content_hash_of(file);
}

Error not_a_document(const JsonValue& json) {
    const bool hf_config = json.find("model_type") || json.find("architectures");
    return {ErrorCode::bad_input, std::string(json.source_name()),
            hf_config ? "this is a model config, not a document" : "this is not a document",
            how_to_make};
}

Status check_scenario(const Scenario& s, const std::string& source) {
    if (const auto status = check_model(s.model, source); !status) {
        return status;
    }
    for (const Status& status : {
             check_cluster(s.cluster, source + ": scenario.cluster"),
             check_job(s.job, source + ": scenario.job"),
             check_stack(s.stack, source + ": scenario.stack"),
         }) {
        if (!status) {
            return status;
        }
    }
    for (const Device& device : s.devices) {
        if (const auto status = check_device(device, source + ": scenario.devices"); !status) {
            return status;
        }
    }
    if (s.devices.size() != s.cluster.node_groups.size()) {
        return Error{ErrorCode::bad_input, source + ": /scenario/devices",
                     std::to_string(s.devices.size()) + " devices for " +
                         std::to_string(s.cluster.node_groups.size()) + " node groups",
                     "one device per node group, in the same order"};
    }
    return Done{};
}

Status check_layouts(const DocumentFile& file, const std::string& source) {
    std::vector<std::pair<std::string, const std::string*>> texts;
    for (std::size_t i = 0; i < file.plans.size(); ++i) {
        texts.emplace_back(source + ": /plans/" + std::to_string(i) + "/layout",
                           &file.plans[i].layout);
    }
    if (!file.baseline.empty()) {
        texts.emplace_back(source + ": /baseline", &file.baseline);
    }
    for (const auto& [where, text] : texts) {
        LayoutTables tables;
        const auto parsed = parse_layout(*text, where, tables);
        if (!parsed) {
            return parsed.error();
        }
        const std::int64_t devices = file.scenario.job.constraints.idle_devices
                                         ? rank_count(parsed->layout)
                                         : device_count(file.scenario.cluster);
        if (const auto whole = complete_layout(*parsed, devices, where); !whole) {
            return whole.error();
        }
    }
    return Done{};
}

} // namespace

void describe(FieldVisitor& v, Headline& x) {
    field(v, {"verdict", "verdict", "Whether the layout fits."}, x.verdict);
    field(v, {"margin", "margin", "Usable less reserved memory of the deciding class."}, x.margin);
    field(v, {"peak", "peak memory", "Reserved memory of the deciding class."}, x.peak);
    field(v, {"step_time", "step time", "Time of one optimizer step."}, x.step_time);
    field(v, {"step_time_low", "least step time", "Lower end of its band."}, x.step_time_low);
    field(v, {"step_time_high", "most step time", "Upper end of its band."}, x.step_time_high);
    field(v,
          {"simulated_step_time", "simulated step time",
           "The same as the engine plays it; plans are ranked by it."},
          x.simulated_step_time);
    field(v, {"tokens_per_second", "tokens per second", "Of all devices together."},
          x.tokens_per_second);
    field(v, {"mfu", "model flops utilization", "Share of the dense peak."}, x.mfu);
}

void describe(FieldVisitor& v, PlanEntry& x) {
    field(v, {"layout", "layout", "Text form of the layout.", true}, x.layout);
    field(v, {"headline", "headline", "What was estimated when this was written."}, x.headline);
    field(v, {"reason", "reason", "Why it stands where it stands."}, x.reason);
}

Headline headline_of(const Estimate& estimate) {
    Headline out;
    out.verdict = estimate.verdict;
    out.margin = estimate.margin;
    const auto deciding = static_cast<std::size_t>(estimate.deciding_class);
    if (deciding < estimate.classes.size()) {
        out.peak = estimate.classes[deciding].reserved.value;
    }
    out.step_time = estimate.time.total.value;
    out.step_time_low = estimate.time.total.low;
    out.step_time_high = estimate.time.total.high;
    out.tokens_per_second = estimate.tokens_per_second;
    out.mfu = estimate.mfu;
    return out;
}

std::string write_document(const Document& document) {
    DocumentFile file{
        std::string(format_name), format_version, document.tool_version, "",
        document.scenario,        document.plans, document.baseline,     document.calibrations};
    file.hash = hash_of(file);
    return write_described(file);
}

Result<Document> parse_document(std::string_view text, std::string_view source_name) {
    const std::string source(source_name);
    const auto json = JsonValue::parse(text, source_name);
    if (!json) {
        return json.error();
    }
    const auto format = json->find("format");
    const auto name = format ? format->as_string() : Result<std::string>(std::string());
    if (!name || *name != format_name) {
        return not_a_document(*json);
    }
    if (const auto version = json->find("format_version")) {
        const auto number = version->as_int();
        if (number && (*number > format_version || *number < 1)) {
            return Error{ErrorCode::unsupported, version->where(),
                         "this document is of format version " + std::to_string(*number) +
                             ", and this program reads up to " + std::to_string(format_version),
                         "use the program that wrote it, or a later one"};
        }
    }
    auto file = read_described<DocumentFile>(*json);
    if (!file) {
        return file.error();
    }
    if (const std::string hash = hash_of(*file); hash != file->hash) {
        return Error{ErrorCode::bad_input, source + ": /hash",
                     "the document was changed after it was written, or damaged: its hash is not " +
                         in_quotes(file->hash),
                     std::string(how_to_make) + "; if the change is meant, write \"hash\": \"" +
                         hash + "\""};
    }
    if (const auto status = check_scenario(file->scenario, source); !status) {
        return status.error();
    }
    if (file->plans.empty()) {
        return Error{ErrorCode::bad_input, source + ": /plans", "the document holds no plan",
                     how_to_make};
    }
    if (const auto status = check_layouts(*file, source); !status) {
        return status.error();
    }
    return Document{std::move(file->tool_version), std::move(file->scenario),
                    std::move(file->plans), std::move(file->baseline),
                    std::move(file->calibrations)};
}

Status write_document_file(const std::string& path, const Document& document) {
    return write_file(path, write_document(document));
}

Result<Document> read_document_file(const std::string& path) {
    const auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_document(*text, path);
}

} // namespace shardplan::sim
