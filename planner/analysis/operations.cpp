#include "planner/analysis/calendar.hpp"
#include "simulator/io/data_dir.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan {

void describe(sim::FieldVisitor& v, Operations& x) {
    field(v, {"name", "name", "Name of the file.", true}, x.name);
    field(v, {"note", "note", "What else one should know."}, x.note);
    field(v, {"stops", "stops", "Unplanned stops per second and node.", true}, x.stops);
    field(v, {"restart", "restart", "Time from a stop to the first new step.", true}, x.restart);
    field(v, {"save_per_node", "checkpoint rate", "What one node writes to shared storage.", true},
          x.save_per_node);
    field(v,
          {"power_overhead", "power overhead", "Energy of the building over energy of the devices.",
           true},
          x.power_overhead);
}

sim::Result<Operations> load_operations(const std::string& name_or_path) {
    const bool is_path = name_or_path.find('/') != std::string::npos ||
                         name_or_path.find(".json") != std::string::npos;
    const std::string path =
        is_path ? name_or_path
                : sim::data_dir() + "/topologies/operations/" + name_or_path + ".json";
    const auto content = sim::read_file(path);
    if (!content) {
        return content.error();
    }
    auto read = sim::read_described<Operations>(*content, path);
    if (!read) {
        return read.error();
    }
    for (const sim::Constant* constant :
         {&read->stops, &read->restart, &read->save_per_node, &read->power_overhead}) {
        if (!(constant->value > 0.0)) {
            return sim::Error{sim::ErrorCode::bad_input, path, "a value is not above 0",
                              "write figures above 0; a loss is left out by its flag"};
        }
    }
    return read;
}

} // namespace shardplan::plan
