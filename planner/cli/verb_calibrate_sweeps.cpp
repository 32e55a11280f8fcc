#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/sweep_fit.hpp"
#include "planner/cli/calibration_file.hpp"
#include "planner/cli/fabric_report.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {
namespace {

/// Beyond it a repeated product says that the machine did something else besides.
constexpr double steady = 0.1;

struct Input {
    std::vector<sim::Sweep> sweeps;
    std::vector<sim::Error> problems;
    std::string input; ///< names and content hashes
};

sim::Result<Input> read(const std::vector<std::string>& files) {
    Input out;
    for (const std::string& path : files) {
        const auto text = sim::read_file(path);
        if (!text) {
            return text.error();
        }
        auto file = sim::parse_sweeps(*text, path);
        if (!file) {
            return file.error();
        }
        std::move(file->sweeps.begin(), file->sweeps.end(), std::back_inserter(out.sweeps));
        std::move(file->problems.begin(), file->problems.end(), std::back_inserter(out.problems));
        out.input += (out.input.empty() ? "" : ", ") + path.substr(path.find_last_of('/') + 1) +
                     " " + sim::content_hash(*text);
    }
    return out;
}

std::string number(double value) { return value == 0.0 ? "" : fmt::format("{:.4g}", value); }

void print_rates(const Console& console, const DeviceFit& fit) {
    Table table({{"constant", Align::left},
                 {"before", Align::right},
                 {"after", Align::right},
                 {"", Align::left},
                 {"samples", Align::right},
                 {"residual", Align::right}});
    for (const FittedRate& rate : fit.rates) {
        table.add({rate.path, number(rate.before), fmt::format("{:.4g}", rate.after), rate.unit,
                   std::to_string(rate.samples), percent(rate.residual)});
    }
    table.print(console.out, console.color, 2);
}

void print_samples(const Console& console, const DeviceFit& fit) {
    Table table({{"samples of", Align::left},
                 {"rows", Align::right},
                 {"error before", Align::right},
                 {"after", Align::right},
                 {"p90 after", Align::right}});
    for (const SampleErrors& one : fit.errors) {
        table.add({one.kind, std::to_string(one.after.rows), percent(one.before.median),
                   percent(one.after.median), percent(one.after.p90)});
    }
    console.out << '\n';
    table.print(console.out, console.color, 2);
}

void print_sweep(const Console& console, const SweepFit& fit) {
    const sim::SweepMachine& m = fit.machine;
    print_heading(console.out,
                  fmt::format("{} rank{} of {} thread{}: {}", m.ranks, m.ranks == 1 ? "" : "s",
                              m.threads, m.threads == 1 ? "" : "s", fit.device.device),
                  console.color);
    console.out << fmt::format("  {}, {} cores, {}, {}, {}\n", m.cpu, m.cores, m.compiler,
                               m.instructions, m.date);
    console.out << fmt::format("  spread of a product repeated {} times: {:.1f} %\n", m.probes,
                               100.0 * m.probe_spread);
    if (m.probe_spread > steady) {
        console.err << fmt::format(
            "warning: the machine was busy with something else: a product "
            "repeated {} times spread by {:.0f} %\n",
            m.probes, 100.0 * m.probe_spread);
    }
    if (fit.device.alone > 0.0) {
        console.out << fmt::format("  a rank computes {:.2f} times as fast while the others wait\n",
                                   fit.device.alone);
    }
    print_rates(console, fit.device);
    print_samples(console, fit.device);
    if (!fit.network.fits.empty() || !fit.network.left_out.empty()) {
        print_fabrics(console, fit.network);
    }
}

std::string report_json(const std::vector<SweepFit>& fits) {
    sim::JsonWriter json;
    json.begin_object().begin_array("sweeps");
    for (const SweepFit& fit : fits) {
        const sim::SweepMachine& m = fit.machine;
        json.begin_object()
            .member("device", fit.device.device)
            .member("cpu", m.cpu)
            .member("ranks", m.ranks)
            .member("threads", m.threads)
            .member("probe_spread", m.probe_spread)
            .member("alone", fit.device.alone);
        json.begin_array("constants");
        for (const FittedRate& rate : fit.device.rates) {
            json.begin_object()
                .member("path", rate.path)
                .member("unit", rate.unit)
                .member("before", rate.before)
                .member("after", rate.after)
                .member("samples", rate.samples)
                .member("residual", rate.residual)
                .end_object();
        }
        json.end_array().begin_array("samples");
        for (const SampleErrors& one : fit.device.errors) {
            json.begin_object().member("kind", one.kind).member("rows", one.after.rows);
            write_errors(json, "before", one.before);
            write_errors(json, "after", one.after);
            json.end_object();
        }
        json.end_array();
        write_fabrics(json, fit.network);
        json.end_object();
    }
    return json.end_array().end_object().str();
}

} // namespace

int run_calibrate_sweeps(const CalibrateVerbOptions& options, const Console& console) {
    const auto input = read(options.collectives);
    if (!input) {
        return fail(console, input.error());
    }
    print_problems(console, input->problems);
    std::optional<sim::Cluster> machine;
    std::vector<sim::Assumption> assumptions;
    if (!options.timing.machine.cluster.empty()) {
        auto cluster = cluster_from(options.timing.machine, assumptions);
        if (!cluster) {
            return fail(console, cluster.error());
        }
        machine = std::move(*cluster);
    }
    const auto fits = fit_sweeps(input->sweeps, machine);
    if (!fits) {
        return fail(console, fits.error());
    }
    if (is_kept(options)) {
        const auto printed = keep_calibration(
            options,
            calibration_of(*fits, std::string("shardplan ") + SHARDPLAN_VERSION, input->input),
            console);
        if (!printed) {
            return fail(console, printed.error());
        }
        if (*printed) {
            return exit_code::yes;
        }
    }
    if (console.json) {
        console.out << report_json(*fits);
        return exit_code::yes;
    }
    for (const SweepFit& fit : *fits) {
        print_sweep(console, fit);
    }
    print_kept(options, console);
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
