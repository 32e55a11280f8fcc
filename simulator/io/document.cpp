#include "simulator/io/document.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/measurement.hpp"
#include "simulator/io/own_format.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {
namespace {

constexpr std::string_view format_name = "shardplan-document";
constexpr std::int64_t format_version = 1;
constexpr const char* how_to_make = "make one with `shardplan plan ... -o plan.shardplan.json`";

std::string hash_of(DocumentFile file) {
    file.hash.clear();
    return content_hash_of(file);
}

/// The same of the text as it stands, so that fields which came later are no change of it.
std::string hash_as_written(const JsonValue& json) {
    std::string text;
    const std::vector<std::string> keys = json.keys();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        text += (i == 0 ? "{\"" : ",\"") + keys[i] + "\":";
        text += keys[i] == "hash" ? "\"\"" : json.at(i).text();
    }
    return content_hash(text + "}");
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

Status check_layouts(const Document& document, const std::string& source) {
    std::vector<std::pair<std::string, const std::string*>> texts;
    for (std::size_t i = 0; i < document.plans.size(); ++i) {
        texts.emplace_back(source + ": /plans/" + std::to_string(i) + "/layout",
                           &document.plans[i].layout);
    }
    if (!document.baseline.empty()) {
        texts.emplace_back(source + ": /baseline", &document.baseline);
    }
    for (const auto& [where, text] : texts) {
        LayoutTables tables;
        const auto parsed = parse_layout(*text, where, tables);
        if (!parsed) {
            return parsed.error();
        }
        const std::int64_t devices = document.scenario.job.constraints.idle_devices
                                         ? rank_count(parsed->layout)
                                         : device_count(document.scenario.cluster);
        if (const auto whole = complete_layout(*parsed, devices, where); !whole) {
            return whole.error();
        }
    }
    return Done{};
}

Status check_measurements(const Document& document, const std::string& source) {
    for (std::size_t i = 0; i < document.measurements.size(); ++i) {
        const Measurement& m = document.measurements[i];
        const std::string where = source + ": /measurements/" + std::to_string(i);
        if (const auto status = check_measurement(m, where); !status) {
            return status;
        }
        const bool planned =
            std::any_of(document.plans.begin(), document.plans.end(),
                        [&](const PlanEntry& entry) { return entry.layout == m.layout; });
        if (!planned) {
            return Error{ErrorCode::bad_input, where + "/layout",
                         "no plan of the document has the layout that ran, " + m.layout,
                         "attach a run of one of its plans"};
        }
    }
    return Done{};
}

/// Changes the document at `path`, which is written only if it can be read again.
template <class Change>
Status change_document_file(const std::string& path, const Change& change) {
    auto document = read_document_file(path);
    if (!document) {
        return document.error();
    }
    change(*document);
    const std::string text = write_document(*document);
    if (const auto back = parse_document(text, path); !back) {
        return back.error();
    }
    return write_file(path, text);
}

/// The text of a file, and whether it is a document.
struct NamedText {
    std::string text;
    bool document = false;
};

Result<NamedText> read_named(const std::string& path) {
    auto text = read_file(path);
    if (!text) {
        return text.error();
    }
    const auto json = JsonValue::parse(*text, path);
    if (!json) {
        return json.error();
    }
    return NamedText{std::move(*text), format_of(*json) == format_name};
}

} // namespace

void describe(FieldVisitor& v, DocumentFile& x) {
    Document& d = x.document;
    field(v, {"format", "format", "Always shardplan-document.", true}, x.format);
    field(v, {"format_version", "format version", "Version of this form.", true}, x.version);
    field(v, {"tool_version", "tool version", "Version of the program that wrote it."},
          d.tool_version);
    field(v, {"hash", "hash", "Tells whether the rest was changed after it was written.", true},
          x.hash);
    field(v, {"scenario", "scenario", "Everything that was given.", true}, d.scenario);
    field(v, {"plans", "plans", "Layouts chosen for it, best first.", true}, d.plans);
    field(v, {"baseline", "baseline", "Layout others are compared with; empty: the first plan."},
          d.baseline);
    field(v, {"calibrations", "calibrations", "Attached calibrations."}, d.calibrations);
    field(v, {"measurements", "measurements", "Attached runs of its plans."}, d.measurements);
}

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
    DocumentFile file{std::string(format_name), format_version, "", document};
    file.hash = hash_of(file);
    return write_described(file);
}

Result<Document> parse_document(std::string_view text, std::string_view source_name) {
    const std::string source(source_name);
    const auto json = JsonValue::parse(text, source_name);
    if (!json) {
        return json.error();
    }
    if (format_of(*json) != format_name) {
        return not_a_document(*json);
    }
    if (const auto status = check_format_version(*json, format_version, "document"); !status) {
        return status.error();
    }
    auto file = read_described<DocumentFile>(*json);
    if (!file) {
        return file.error();
    }
    const std::string hash = hash_of(*file);
    if (hash != file->hash && hash_as_written(*json) != file->hash) {
        return Error{ErrorCode::bad_input, source + ": /hash",
                     "the document was changed after it was written, or damaged: its hash is not " +
                         in_quotes(file->hash),
                     std::string(how_to_make) + "; if the change is meant, write \"hash\": \"" +
                         hash + "\""};
    }
    const Document& document = file->document;
    if (const auto status = check_scenario(document.scenario, source); !status) {
        return status.error();
    }
    if (document.plans.empty()) {
        return Error{ErrorCode::bad_input, source + ": /plans", "the document holds no plan",
                     how_to_make};
    }
    for (const auto check : {check_layouts, check_measurements}) {
        if (const auto status = check(document, source); !status) {
            return status.error();
        }
    }
    return std::move(file->document);
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

Status attach_to_document_file(const std::string& path, Measurement measurement) {
    return change_document_file(
        path, [&](Document& document) { document.measurements.push_back(std::move(measurement)); });
}

Status attach_to_document_file(const std::string& path, Calibration calibration) {
    return change_document_file(path, [&](Document& document) {
        std::erase_if(document.calibrations,
                      [&](const Calibration& old) { return old.id == calibration.id; });
        document.calibrations.push_back(std::move(calibration));
    });
}

Result<std::vector<Measurement>> read_measurements_file(const std::string& path) {
    const auto named = read_named(path);
    if (!named) {
        return named.error();
    }
    if (!named->document) {
        auto one = parse_measurement(named->text, path);
        if (!one) {
            return one.error();
        }
        return std::vector<Measurement>{std::move(*one)};
    }
    auto document = parse_document(named->text, path);
    if (!document) {
        return document.error();
    }
    if (document->measurements.empty()) {
        return Error{ErrorCode::not_found, path, "this plan holds no measurement",
                     "run it: `shardplan run " + path + " --attach`"};
    }
    for (Measurement& m : document->measurements) {
        m.plan = path;
    }
    return std::move(document->measurements);
}

Result<Calibration> read_calibration_file(const std::string& path) {
    const auto named = read_named(path);
    if (!named) {
        return named.error();
    }
    if (!named->document) {
        return load_calibration(path);
    }
    auto document = parse_document(named->text, path);
    if (!document) {
        return document.error();
    }
    if (!document->calibrations.empty()) {
        return std::move(document->calibrations.back());
    }
    if (document->scenario.calibration == Calibration{}) {
        return Error{ErrorCode::not_found, path, "this plan holds no calibration",
                     "make one: `shardplan calibrate FILE --attach " + path + "`"};
    }
    return std::move(document->scenario.calibration);
}

} // namespace shardplan::sim
