#include "simulator/io/measurement.hpp"

#include <algorithm>
#include <utility>

#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/own_format.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim {
namespace {

constexpr std::string_view format_name = "shardplan-measurement";
constexpr std::int64_t format_version = 1;
constexpr const char* how_to_make = "make one with `shardplan run PLAN --measure FILE`";

struct HashedPlan {
    Scenario scenario;
    std::string layout;
};

void describe(FieldVisitor& v, HashedPlan& x) {
    field(v, {"scenario", "scenario", "Everything that was given.", true}, x.scenario);
    field(v, {"layout", "layout", "Text form.", true}, x.layout);
}

/// What contradicts what, and where.
class Checks {
public:
    explicit Checks(const std::string& where) : where_(where) {}

    [[nodiscard]] Status steps(const Measurement& m) const {
        for (std::size_t i = 1; i < m.steps.size(); ++i) {
            if (m.steps[i].step <= m.steps[i - 1].step) {
                return bad("/steps/" + std::to_string(i) + "/step",
                           "step " + std::to_string(m.steps[i].step) + " comes after step " +
                               std::to_string(m.steps[i - 1].step),
                           "steps stand in rising order, each once");
            }
        }
        if (m.settling > static_cast<std::int64_t>(m.steps.size())) {
            return bad("/settling",
                       std::to_string(m.settling) + " of " + std::to_string(m.steps.size()) +
                           " steps count for nothing",
                       "write at most the number of steps");
        }
        return Done{};
    }

    [[nodiscard]] Status ranks(const Measurement& m) const {
        if (static_cast<std::int64_t>(m.per_rank.size()) != m.ranks) {
            return bad("/per_rank",
                       std::to_string(m.per_rank.size()) + " ranks are described, and " +
                           std::to_string(m.ranks) + " took part",
                       "one entry for each rank, in order");
        }
        for (std::size_t i = 0; i < m.per_rank.size(); ++i) {
            if (m.per_rank[i].rank != static_cast<std::int64_t>(i)) {
                return bad("/per_rank/" + std::to_string(i) + "/rank",
                           "rank " + std::to_string(m.per_rank[i].rank) + " stands in place " +
                               std::to_string(i),
                           "one entry for each rank, in order from 0");
            }
            for (const auto& [phase, bytes] : m.per_rank[i].phases) {
                if (!enum_from<Phase>(phase)) {
                    return bad("/per_rank/" + std::to_string(i) + "/phases",
                               "there is no phase " + in_quotes(phase),
                               nearest_hint(phase, EnumNames<Phase>::names));
                }
            }
            for (const auto& [group, bytes] : m.per_rank[i].sent) {
                if (!enum_from<Group>(group)) {
                    return bad("/per_rank/" + std::to_string(i) + "/sent",
                               "there is no group " + in_quotes(group),
                               nearest_hint(group, EnumNames<Group>::names));
                }
            }
        }
        return Done{};
    }

    [[nodiscard]] Status timeline(const Measurement& m) const {
        if (!m.timeline) return Done{};
        const std::vector<Span>& spans = m.timeline->spans;
        for (std::size_t i = 0; i < spans.size(); ++i) {
            const Span& span = spans[i];
            const std::string at = "/timeline/spans/" + std::to_string(i);
            if (span.track >= m.timeline->tracks.size()) {
                return bad(at + "/track", "there is no track " + std::to_string(span.track),
                           few(m.timeline->tracks.size(), "tracks"));
            }
            if (span.task >= m.tasks.size()) {
                return bad(at + "/task", "there is no task " + std::to_string(span.task),
                           few(m.tasks.size(), "tasks"));
            }
            if (span.t1 < span.t0) {
                return bad(at + "/t1", "the span ends before it begins", "t1 is at least t0");
            }
            if (i > 0 &&
                std::pair(span.track, span.t0) < std::pair(spans[i - 1].track, spans[i - 1].t0)) {
                return bad(at, "the span stands out of order", "spans stand by track, then time");
            }
        }
        return Done{};
    }

private:
    static std::string few(std::size_t count, const char* what) {
        return "there are " + std::to_string(count) + " " + what + ", counted from 0";
    }
    [[nodiscard]] Error bad(const std::string& at, std::string what, std::string hint) const {
        return {ErrorCode::bad_input, where_ + at, std::move(what), std::move(hint)};
    }

    const std::string& where_;
};

} // namespace

void describe(FieldVisitor& v, MeasurementFile& x) {
    field(v, {"format", "format", "Always shardplan-measurement.", true}, x.format);
    field(v, {"format_version", "format version", "Version of this form.", true}, x.version);
    describe(v, x.measurement);
}

Status check_measurement(const Measurement& m, const std::string& where) {
    const Checks check(where);
    for (const Status& status : {check.steps(m), check.ranks(m), check.timeline(m)}) {
        if (!status) return status;
    }
    return Done{};
}

std::string plan_hash(const Scenario& scenario, std::string_view layout) {
    return content_hash_of(HashedPlan{scenario, std::string(layout)});
}

std::string write_measurement(const Measurement& measurement) {
    return write_described(MeasurementFile{std::string(format_name), format_version, measurement});
}

Result<Measurement> parse_measurement(std::string_view text, std::string_view source_name) {
    const auto json = JsonValue::parse(text, source_name);
    if (!json) return json.error();
    if (const std::string name = format_of(*json); name != format_name) {
        const bool plan = name == "shardplan-document";
        return Error{ErrorCode::bad_input, std::string(source_name),
                     plan ? "this is a plan, not a measurement" : "this is not a measurement",
                     how_to_make};
    }
    if (const auto status = check_format_version(*json, format_version, "measurement"); !status) {
        return status.error();
    }
    auto file = read_described<MeasurementFile>(*json);
    if (!file) return file.error();
    const std::string where = std::string(source_name) + ": ";
    if (const auto status = check_measurement(file->measurement, where); !status) {
        return status.error();
    }
    return std::move(file->measurement);
}

Status write_measurement_file(const std::string& path, const Measurement& measurement) {
    return write_file(path, write_measurement(measurement));
}

Result<Measurement> read_measurement_file(const std::string& path) {
    const auto text = read_file(path);
    if (!text) return text.error();
    return parse_measurement(*text, path);
}

} // namespace shardplan::sim
