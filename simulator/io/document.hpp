#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/engine/measurement.hpp"
#include "simulator/estimate/estimate.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// What a plan promised when the document was written. Kept so that a later version of the program
/// can say what it sees differently.
struct Headline {
    Verdict verdict = Verdict::fits;
    Bytes margin; ///< usable - reserved of the deciding class; negative: short by
    Bytes peak;   ///< reserved, of the deciding class
    Seconds step_time;
    Seconds step_time_low;
    Seconds step_time_high;
    std::optional<Seconds> simulated_step_time; ///< as the engine plays it, if it was played
    double tokens_per_second = 0.0;
    double mfu = 0.0;

    friend bool operator==(const Headline&, const Headline&) = default;
};

/// One layout of a document.
struct PlanEntry {
    std::string layout; ///< text form, dp stated
    Headline headline;
    std::string reason; ///< one sentence: why it stands where it stands

    friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

/// A file `*.shardplan.json`: everything that was given, the layouts chosen for it, best first, and
/// what was measured of them. What `plan -o` and `estimate -o` write and every verb that takes a
/// plan reads.
struct Document {
    std::string tool_version;
    Scenario scenario;
    std::vector<PlanEntry> plans;
    std::string baseline; ///< layout others are compared with; empty: the first plan
    std::vector<Calibration> calibrations; ///< attached; the scenario holds the one in use
    std::vector<Measurement> measurements; ///< runs of its plans, in the order they were attached

    friend bool operator==(const Document&, const Document&) = default;
};

/// A document as it stands in a file.
struct DocumentFile {
    std::string format;
    std::int64_t version = 0;
    std::string hash;
    Document document;
};

Headline headline_of(const Estimate& estimate);

/// The text of a document file. Its "hash" is content_hash_of the rest.
std::string write_document(const Document& document);
/// Errors: not a document, written by a later format, changed by hand (with the hash it should
/// carry), a layout that cannot be read or does not fill the cluster, a scenario that makes no
/// sense, a measurement that contradicts itself or is of a layout that no plan has.
Result<Document> parse_document(std::string_view text, std::string_view source_name);

Status write_document_file(const std::string& path, const Document& document);
Result<Document> read_document_file(const std::string& path);

/// Adds a run of one of its plans to the document at `path`. Errors: the file's; a measurement that
/// the document could not be read with; the file is then as it was.
Status attach_to_document_file(const std::string& path, Measurement measurement);
/// The same with a calibration, which replaces an attached one of the same id.
Status attach_to_document_file(const std::string& path, Calibration calibration);

/// What a file says was measured: the measurement that it is, or those attached to the document
/// that it is, whose name they get as their plan. Errors: the file's; none is attached.
Result<std::vector<Measurement>> read_measurements_file(const std::string& path);
/// The calibration that a file is, or of a document the one attached last, or else in use. Errors:
/// the file's; the document has none.
Result<Calibration> read_calibration_file(const std::string& path);

void describe(FieldVisitor& v, DocumentFile& x);
void describe(FieldVisitor& v, Headline& x);
void describe(FieldVisitor& v, PlanEntry& x);

} // namespace shardplan::sim
