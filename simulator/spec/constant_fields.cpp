#include <algorithm>
#include <array>
#include <cstddef>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

namespace {

/// The units a Constant may have: base units only, since its value is a bare number.
constexpr std::array<std::string_view, 10> base_units = {"",       "B", "s",      "FLOP", "B/s",
                                                         "FLOP/s", "W", "FLOP/B", "s/B",  "1/s"};

/// The unit is text in the type and one of a few in files, so that "GB/s" beside a value in B/s is
/// refused and not off by 10^9.
void describe_unit(FieldVisitor& v, const FieldMeta& meta, std::string& unit) {
    const auto found = std::find(base_units.begin(), base_units.end(), unit);
    if (found == base_units.end()) {
        v.text(meta, unit);
        return;
    }
    auto index = static_cast<std::size_t>(found - base_units.begin());
    v.choice(meta, base_units, index);
    unit = base_units[index];
}

} // namespace

void describe(FieldVisitor& v, Constant& x) {
    field(v,
          {.key = "value",
           .label = "value",
           .doc = "The number, in the unit given.",
           .required = true},
          x.value);
    describe_unit(v,
                  {.key = "unit",
                   .label = "unit",
                   .doc = "A base unit; empty for ratios, factors and counts.",
                   .required = true},
                  x.unit);
    field(v,
          {.key = "origin",
           .label = "origin",
           .doc = "What kind of evidence the value rests on.",
           .required = true},
          x.origin);
    field(v,
          {.key = "source",
           .label = "source",
           .doc = "The sheet, file of a repository, data file or reason behind the value.",
           .required = true},
          x.source);
    field(v,
          {.key = "version",
           .label = "version",
           .doc = "Version of the software or hardware it holds for; empty: any."},
          x.version);
    field(v,
          {.key = "lo",
           .label = "lowest",
           .doc = "Lower end of the plausible range; 0 together with hi: no range is known."},
          x.lo);
    field(v,
          {.key = "hi",
           .label = "highest",
           .doc = "Upper end of the plausible range; 0 together with lo: no range is known."},
          x.hi);
    field(v,
          {.key = "sigma",
           .label = "uncertainty",
           .doc = "Relative standard deviation of the value, for bands.",
           .lo = 0.0},
          x.sigma);
    field(v,
          {.key = "unconfirmed",
           .label = "unconfirmed",
           .doc = "Fitted to a single group of runs; its spread is that of the plausible range."},
          x.unconfirmed);
}

} // namespace shardplan::sim
