#include "planner/cli/command_line_error.hpp"

#include <algorithm>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan::cli {

sim::Error command_line_error(const std::string& verb, const std::vector<std::string>& known,
                              const std::vector<std::string>& arguments,
                              const std::string& parser_says) {
    sim::Error error{
        sim::ErrorCode::bad_input, "command line", parser_says,
        verb.empty() ? "see `shardplan --help`" : "see `shardplan " + verb + " --help`"};
    if (arguments.empty()) {
        error.what = "a verb is missing";
        error.hint =
            "start with `shardplan plan --model llama-3-70b --cluster dgx-h100`, or see "
            "`shardplan --help`";
        return error;
    }
    for (const std::string& argument : arguments) {
        const std::string name = argument.substr(0, argument.find('='));
        const bool is_flag = name.rfind("--", 0) == 0 && name.size() > 2;
        if (std::find(known.begin(), known.end(), name) != known.end() ||
            (!is_flag && !verb.empty())) {
            continue;
        }
        error.what =
            is_flag ? "there is no flag " + name : "there is no verb " + sim::in_quotes(name);
        if (const auto nearest = sim::nearest_name(name, known)) {
            error.hint = "did you mean " + *nearest + "? " + error.hint;
        }
        break;
    }
    return error;
}

} // namespace shardplan::plan::cli
