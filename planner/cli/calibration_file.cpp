#include "planner/cli/calibration_file.hpp"

#include <fmt/format.h>

#include "simulator/io/document.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {

bool is_kept(const CalibrateVerbOptions& options) {
    return !options.output.empty() || !options.attach.empty();
}

sim::Result<bool> keep_calibration(const CalibrateVerbOptions& options,
                                   const sim::Calibration& calibration, const Console& console) {
    if (!options.attach.empty()) {
        const auto attached = sim::attach_to_document_file(options.attach, calibration);
        if (!attached) {
            return attached.error();
        }
    }
    const std::string file = write_described(calibration) + "\n";
    if (options.output == "-") {
        console.out << file;
        return true;
    }
    if (!options.output.empty()) {
        if (const auto written = sim::write_file(options.output, file); !written) {
            return written.error();
        }
    }
    return false;
}

void print_kept(const CalibrateVerbOptions& options, const Console& console) {
    if (!options.output.empty()) {
        console.out << fmt::format("\nWritten to {0}; use it with --calibration {0}\n",
                                   options.output);
    }
    if (!options.attach.empty()) {
        console.out << fmt::format("\nAttached to {0}; use it with --calibration {0}\n",
                                   options.attach);
    }
}

} // namespace shardplan::plan::cli
