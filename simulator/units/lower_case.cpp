#include "simulator/units/lower_case.hpp"

namespace shardplan::sim {

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

} // namespace shardplan::sim
