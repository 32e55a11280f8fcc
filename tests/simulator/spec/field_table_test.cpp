#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/io/json.hpp"
#include "simulator/spec/constants.hpp"
#include "simulator/spec/scenario.hpp"
#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

FieldInfo row(const std::string& path) {
    const auto table = field_table<Cart>("cart");
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const FieldInfo& info) { return info.path == path; });
    EXPECT_NE(found, table.end()) << path;
    return found == table.end() ? FieldInfo{} : *found;
}

TEST(FieldTable, HasOneRowForEachPlainValueInOrder) {
    std::vector<std::string> paths;
    for (const FieldInfo& info : field_table<Cart>("")) {
        paths.push_back(info.path);
    }
    EXPECT_EQ(paths, (std::vector<std::string>{"name",
                                               "seats",
                                               "slope",
                                               "memory",
                                               "link",
                                               "power",
                                               "open",
                                               "colour",
                                               "spare.spokes",
                                               "spare.turn",
                                               "wheels[].spokes",
                                               "wheels[].turn",
                                               "degrees[]",
                                               "loads[]",
                                               "grid[][]",
                                               "stripes[]",
                                               "peaks{}",
                                               "named{}.spokes",
                                               "named{}.turn",
                                               "trailer.spokes",
                                               "trailer.turn",
                                               "lamp"}));
}

TEST(FieldTable, RowsSayWhatAPersonMustKnow) {
    const FieldInfo seats = row("cart.seats");
    EXPECT_EQ(seats.type, "integer");
    EXPECT_EQ(seats.default_text, "4");
    EXPECT_EQ(seats.label, "seats");
    EXPECT_EQ(seats.doc, "People it carries.");
    EXPECT_EQ(seats.lo, 1.0);
    EXPECT_EQ(seats.hi, 8.0);
    EXPECT_FALSE(seats.required);
    EXPECT_TRUE(row("cart.name").required);
    EXPECT_EQ(row("cart.memory").type, "bytes");
    EXPECT_EQ(row("cart.memory").default_text, "80 GiB");
    EXPECT_EQ(row("cart.power").type, "watts");
    EXPECT_EQ(row("cart.slope").type, "number");
    EXPECT_EQ(row("cart.colour").choices, (std::vector<std::string>{"red", "green", "dark_blue"}));
}

TEST(FieldTable, AbsentOptionalFieldsDefaultToNone) {
    EXPECT_EQ(row("cart.link").default_text, "none");
    EXPECT_EQ(row("cart.link").type, "bandwidth");
    EXPECT_EQ(row("cart.trailer.turn").default_text, "2 s");
    EXPECT_EQ(row("cart.colour").default_text, "green");
}

TEST(FieldTable, ListsOfPlainValuesShowWhatTheyHold) {
    EXPECT_EQ(row("cart.degrees[]").default_text, "1,2");
    EXPECT_EQ(row("cart.loads[]").default_text, "");
    EXPECT_EQ(row("cart.wheels[].turn").default_text, "2 s");
}

TEST(Constant, IsReadWithItsProvenance) {
    const std::string text =
        R"({"value": 2e-06, "unit": "s", "origin": "own_measurement", "source": "a run",
            "lo": 1e-06, "hi": 3e-06, "sigma": 0.2})";
    const auto constant = read_described<Constant>(text, "c.json");
    ASSERT_TRUE(constant) << to_text(constant.error());
    EXPECT_EQ(*constant,
              (Constant{2e-6, "s", Origin::own_measurement, "a run", "", 1e-6, 3e-6, 0.2}));
    EXPECT_EQ(read_described<Constant>(write_described(*constant), "").value(), *constant);
}

TEST(Constant, IsNoLongerUnconfirmedWhereAnotherOneIsStatedOverIt) {
    FabricProfile base;
    base.step_latency = {2e-6, "s", Origin::fitted_to_runs, "a run", "", 1e-6, 3e-6, 0.3, true};
    const auto over = [&](const char* text) {
        const auto json = JsonValue::parse(text, "c.json");
        EXPECT_TRUE(json);
        return read_described_over(base, *json).value().step_latency;
    };
    EXPECT_TRUE(over(R"({"step_latency": {"value": 1e-06}})").unconfirmed);
    const Constant stated = over(
        R"({"step_latency": {"value": 1e-06, "unit": "s", "origin": "assumed", "source": "x"}})");
    EXPECT_FALSE(stated.unconfirmed);
    EXPECT_EQ(stated.value, 1e-6);
}

TEST(Constant, AllAreFoundAndCanBeChangedWhereverTheyStand) {
    Scenario scenario;
    scenario.devices.resize(2);
    scenario.fabrics.resize(1);
    std::vector<std::string> paths;
    for_each_constant(scenario, "s",
                      [&](const std::string& path, const FieldMeta& /*meta*/, Constant& c) {
                          paths.push_back(path);
                          c.value = static_cast<double>(paths.size());
                      });
    for (const char* path : {"s.stack.time.launch", "s.devices[1].compute.matrix_efficiency",
                             "s.fabrics[0].step_latency"}) {
        EXPECT_EQ(std::count(paths.begin(), paths.end(), path), 1) << path;
    }
    EXPECT_EQ(scenario.fabrics[0].ramp.value, static_cast<double>(paths.size()));
    EXPECT_EQ(scenario.devices[0].compute.matrix_efficiency.value + 1.0,
              scenario.devices[0].compute.narrow_matrix_efficiency.value);
}

TEST(Constant, OnlyBaseUnitsAreAccepted) {
    const auto constant = read_described<Constant>(
        R"({"value": 50, "unit": "GB/s", "origin": "datasheet", "source": "a sheet"})", "c.json");
    ASSERT_FALSE(constant);
    EXPECT_EQ(constant.error().where, "c.json: /unit");
    EXPECT_NE(constant.error().hint.find("\"B/s\""), std::string::npos);
}

} // namespace
} // namespace shardplan::sim
