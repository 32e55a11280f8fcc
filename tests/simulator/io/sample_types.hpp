#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulator/spec/fields.hpp"

/// A described type with one field of each kind, for the tests of whatever works on all of them.
namespace shardplan::sim {

enum class Colour { red, green, dark_blue };
template <>
struct EnumNames<Colour> {
    static constexpr std::array<std::string_view, 3> names = {"red", "green", "dark_blue"};
};

struct Wheel {
    std::int64_t spokes = 0;
    Seconds turn = Seconds(2.0);

    friend bool operator==(const Wheel&, const Wheel&) = default;
};

struct Cart {
    std::string name;
    std::int64_t seats = 4;
    double slope = 0.5;
    Bytes memory = Bytes(85899345920.0);
    std::optional<Bandwidth> link;
    double power = 0.0;
    bool open = false;
    Colour colour = Colour::green;
    Wheel spare = {8, Seconds(2.0)};
    std::vector<Wheel> wheels;
    std::vector<std::int64_t> degrees = {1, 2};
    std::vector<Bytes> loads;
    std::vector<std::vector<std::int64_t>> grid;
    std::vector<Colour> stripes;
    std::map<std::string, FlopRate> peaks;
    std::map<std::string, Wheel> named;
    std::optional<Wheel> trailer;
    std::optional<Colour> lamp;

    friend bool operator==(const Cart&, const Cart&) = default;
};

inline void describe(FieldVisitor& v, Wheel& x) {
    field(v, {"spokes", "spokes", "Number of spokes.", true, 1, 64}, x.spokes);
    field(v, {"turn", "turn", "Time of one turn.", false, 0.0}, x.turn);
}

inline void describe(FieldVisitor& v, Cart& x) {
    field(v, {"name", "name", "What it is called.", true}, x.name);
    field(v, {"seats", "seats", "People it carries.", false, 1, 8}, x.seats);
    field(v, {"slope", "slope", "Steepest slope.", false, 0.0, 1.0}, x.slope);
    field(v, {"memory", "memory", "Memory on board.", false, 1024.0, 1e15}, x.memory);
    field(v, {"link", "link", "Bandwidth of the link.", false, 0.0}, x.link);
    v.quantity({"power", "power", "Power drawn.", false, 0.0}, Dimension::watts, x.power);
    field(v, {"open", "open", "Without a roof."}, x.open);
    field(v, {"colour", "colour", "Colour of the paint."}, x.colour);
    field(v, {"spare", "spare wheel", "The spare wheel."}, x.spare);
    field(v, {"wheels", "wheels", "The wheels."}, x.wheels);
    field(v, {"degrees", "degrees", "Degrees allowed.", false, 1, 1024}, x.degrees);
    field(v, {"loads", "loads", "What it carries.", false, 0.0}, x.loads);
    field(v, {"grid", "grid", "A table of counts."}, x.grid);
    field(v, {"stripes", "stripes", "Colours of the stripes."}, x.stripes);
    field(v, {"peaks", "peaks", "Peak rates by format."}, x.peaks);
    field(v, {"named", "named wheels", "Wheels by name."}, x.named);
    field(v, {"trailer", "trailer", "A wheel behind."}, x.trailer);
    field(v, {"lamp", "lamp", "Colour of the lamp."}, x.lamp);
}

/// A type whose part has no legal default.
struct Barrow {
    std::string name;
    Wheel wheel;

    friend bool operator==(const Barrow&, const Barrow&) = default;
};

inline void describe(FieldVisitor& v, Barrow& x) {
    field(v, {"name", "name", "What it is called."}, x.name);
    field(v, {"wheel", "wheel", "Its one wheel."}, x.wheel);
}

/// A Cart with every field away from its default.
inline Cart full_cart() {
    Cart cart;
    cart.name = "quote \" backslash \\ line\nend \u00B5 \x01";
    cart.seats = 7;
    cart.slope = 0.1;
    cart.memory = Bytes(3e9);
    cart.link = Bandwidth(50e9);
    cart.power = 700.0;
    cart.open = true;
    cart.colour = Colour::dark_blue;
    cart.spare = {12, Seconds(0.25)};
    cart.wheels = {{3, Seconds(1e-6)}, {4, Seconds(1.0 / 3.0)}};
    cart.degrees = {8, 16, 32};
    cart.loads = {Bytes(1.0), Bytes(1e9)};
    cart.grid = {{1, 2}, {}, {3}};
    cart.stripes = {Colour::red, Colour::dark_blue};
    cart.peaks = {{"bf16", FlopRate(989e12)}, {"a.b/c~d", FlopRate(1.0)}, {"", FlopRate(2.0)}};
    cart.named = {{"notes", {5, Seconds(1.0)}}};
    cart.trailer = Wheel{6, Seconds(3.0)};
    cart.lamp = Colour::red;
    return cart;
}

} // namespace shardplan::sim
