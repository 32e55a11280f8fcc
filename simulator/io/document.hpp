#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// A file `*.shardplan.json`: everything that was given, and the layouts chosen for it, best first.
/// What `plan -o` and `estimate -o` write and every verb that takes a plan reads.
struct Document {
    std::string tool_version;
    Scenario scenario;
    std::vector<PlanEntry> plans;
    std::string baseline; ///< layout others are compared with; empty: the first plan
    std::vector<Calibration> calibrations; ///< attached; the scenario holds the one in use

    friend bool operator==(const Document&, const Document&) = default;
};

Headline headline_of(const Estimate& estimate);

/// The text of a document file. Its "hash" is content_hash_of the rest.
std::string write_document(const Document& document);
/// Errors: not a document, written by a later format, changed by hand (with the hash it should
/// carry), a layout that cannot be read or does not fill the cluster, a scenario that makes no
/// sense.
Result<Document> parse_document(std::string_view text, std::string_view source_name);

Status write_document_file(const std::string& path, const Document& document);
Result<Document> read_document_file(const std::string& path);

void describe(FieldVisitor& v, Headline& x);
void describe(FieldVisitor& v, PlanEntry& x);

} // namespace shardplan::sim
