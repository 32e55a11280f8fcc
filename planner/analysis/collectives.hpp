#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/analysis/validate.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/collective_record.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/spec/assumption.hpp"
#include "simulator/spec/calibration.hpp"
#include "simulator/units/result.hpp"

/// Published timings of collectives predicted with the functions the planner prices layouts with,
/// and the predictions compared with what was measured.
namespace shardplan::plan {

/// The prediction for one collective record.
struct CollectivePrediction {
    std::string id;
    std::string skipped; ///< why there is no prediction; empty: there is one
    double time_us = 0.0;
    std::string algorithm; ///< chosen or forced, "ring"
    std::string protocol;  ///< "simple"
    std::string flag;      ///< why the measurement is no yardstick; empty: it is one
    std::vector<sim::Assumption> notes;

    friend bool operator==(const CollectivePrediction&, const CollectivePrediction&) = default;
};

/// Sizes that behave alike: calls, protocols, bandwidth.
enum class SizeBand { below_64_kib, to_16_mib, from_16_mib };
SizeBand band_of(std::int64_t bytes);
/// "< 64 KiB", "64 KiB to 16 MiB", ">= 16 MiB".
std::string_view name_of(SizeBand band);

/// Errors (predicted / measured - 1) of the rows that share a key.
struct CollectiveGroup {
    std::string system, collective;
    SizeBand band = SizeBand::from_16_mib;
    std::int64_t records = 0;
    std::int64_t skipped = 0;
    std::int64_t flagged = 0; ///< predicted, but not counted in `time`
    ErrorFigures time;
    /// Large messages stand so far below what the links should give that the system is probably
    /// mistuned; empty: they do not.
    std::string remark;

    friend bool operator==(const CollectiveGroup&, const CollectiveGroup&) = default;
};

/// One line of the acceptance table: medians over rows, or over systems of their median error.
struct CollectiveBar {
    std::string what;
    std::int64_t systems = 0;
    std::int64_t rows = 0;
    double median = 0.0;
    double worst = 0.0;     ///< system
    double within_15 = 0.0; ///< share of the systems whose median is at most 15 %
    std::string worst_system;

    friend bool operator==(const CollectiveBar&, const CollectiveBar&) = default;
};

/// Where a record is measured, in the planner's terms: the scenario has no model, and the ranks of
/// the collective are the data-parallel group of `layout`.
struct CollectiveSetup {
    sim::Scenario scenario;
    sim::Layout layout;
    std::vector<sim::Assumption> notes;

    [[nodiscard]] sim::GroupPath path() const;
};

/// Turns records into setups; keeps the catalogue, so one object serves a whole file. What the
/// record leaves open (cards, links of a mesh) comes from the machine, or without one from the
/// first built-in cluster of the same device, with a note.
class CollectiveReproducer {
public:
    /// `machine`: where every record was measured; its nodes and fabric are taken as they are where
    /// the ranks fill them. Errors: data files that are missing or broken.
    static sim::Result<CollectiveReproducer> make(std::optional<sim::Cluster> machine = {});
    /// Errors: what is missing or contradicts; `what` is the reason for skipping the record.
    [[nodiscard]] sim::Result<CollectiveSetup> reproduce(const sim::CollectiveRecord& record) const;

private:
    CollectiveReproducer() = default;
    [[nodiscard]] const sim::NodeTemplate* typical_node(const std::string& device) const;
    [[nodiscard]] sim::Result<sim::Cluster> on_machine(sim::Cluster cluster,
                                                       const std::string& device,
                                                       bool one_node) const;

    sim::Catalogue catalogue_;
    std::vector<sim::Cluster> clusters_;
    std::optional<sim::Cluster> machine_;
};

/// Predicts every record, in order. `calibration` replaces constants of the networks; `machine` as
/// in CollectiveReproducer. Errors: data files that are missing or broken, a calibration that names
/// no constant.
sim::Result<std::vector<CollectivePrediction>> predict_collectives(
    const std::vector<sim::CollectiveRecord>& records, const sim::Calibration& calibration,
    const std::optional<sim::Cluster>& machine = {});

/// What to say of large messages whose median error is `median`; empty: nothing.
std::string remark_on(double median);

/// Figures by system, collective and band, in the order they first appear.
std::vector<CollectiveGroup> score_collectives(
    const std::vector<sim::CollectiveRecord>& records,
    const std::vector<CollectivePrediction>& predictions);
/// All-reduce of the scorable rows over systems; other collectives over rows; the smaller bands
/// over systems (measured or read off a chart, device known, no fault noted).
std::vector<CollectiveBar> collective_bars(const std::vector<sim::CollectiveRecord>& records,
                                           const std::vector<CollectivePrediction>& predictions);

} // namespace shardplan::plan
