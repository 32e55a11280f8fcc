#include "planner/cli/empty_value.hpp"

#include <algorithm>

namespace shardplan::plan::cli {

std::optional<sim::Error> empty_value(const std::vector<std::string>& arguments) {
    std::string flag = "command line";
    for (const std::string& argument : arguments) {
        const bool is_flag = argument.size() > 1 && argument.front() == '-';
        const bool ends_there = is_flag && argument.find('=') + 1 == argument.size();
        if (ends_there) {
            flag = argument.substr(0, argument.size() - 1);
        }
        if (argument.empty() || ends_there) {
            return sim::Error{sim::ErrorCode::bad_input, flag, "the value is empty",
                              "give a value, or leave the flag out"};
        }
        flag = is_flag ? argument : "command line";
    }
    return std::nullopt;
}

} // namespace shardplan::plan::cli
