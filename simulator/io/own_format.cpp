#include "simulator/io/own_format.hpp"

namespace shardplan::sim {

std::string format_of(const JsonValue& json) {
    const auto format = json.find("format");
    const auto name = format ? format->as_string() : Result<std::string>(std::string());
    return name ? *name : "";
}

Status check_format_version(const JsonValue& json, std::int64_t newest, std::string_view noun) {
    const auto version = json.find("format_version");
    const auto number = version ? version->as_int() : Result<std::int64_t>(newest);
    if (number && (*number > newest || *number < 1)) {
        return Error{ErrorCode::unsupported, version->where(),
                     "this " + std::string(noun) + " is of format version " +
                         std::to_string(*number) + ", and this program reads up to " +
                         std::to_string(newest),
                     "use the program that wrote it, or a later one"};
    }
    return Done{};
}

} // namespace shardplan::sim
