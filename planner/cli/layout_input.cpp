#include "planner/cli/layout_input.hpp"

#include "planner/analysis/vary.hpp"

namespace shardplan::plan::cli {

sim::Result<sim::Layout> layout_from(std::string_view text, std::string_view where,
                                     const sim::Scenario& scenario, sim::LayoutTables& tables) {
    return layout_for(text, where, scenario, tables);
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
