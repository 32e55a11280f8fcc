#include "planner/cli/layout_input.hpp"

namespace shardplan::plan::cli {

sim::Result<sim::Layout> layout_from(std::string_view text, std::string_view where,
                                     const sim::Scenario& scenario, sim::LayoutTables& tables) {
    const auto parsed = sim::parse_layout(text, where, tables);
    if (!parsed) {
        return parsed.error();
    }
    std::int64_t devices = sim::device_count(scenario.cluster);
    if (scenario.job.constraints.idle_devices) {
        const std::int64_t replica = sim::rank_count(parsed->layout) / parsed->layout.dp;
        const std::int64_t used =
            parsed->dp_given ? sim::rank_count(parsed->layout) : devices / replica * replica;
        if (used > 0 && used <= devices) {
            devices = used;
        }
    }
    return sim::complete_layout(*parsed, devices, where);
}

sim::Status write_plan(const std::string& output, const sim::Document& document,
                       const Console& console) {
    if (output == "-") {
        console.out << sim::write_document(document);
        return sim::Done{};
    }
    const auto status = sim::write_document_file(output, document);
    if (status) {
        console.err << "wrote " << output << '\n';
    }
    return status;
}

} // namespace shardplan::plan::cli
