#include "simulator/units/result.hpp"

namespace shardplan::sim {

std::string to_text(const Error& error) {
    std::string text = error.where;
    if (!text.empty()) {
        text += ": ";
    }
    text += error.what;
    if (!error.hint.empty()) {
        text += " (" + error.hint + ")";
    }
    return text;
}

} // namespace shardplan::sim
