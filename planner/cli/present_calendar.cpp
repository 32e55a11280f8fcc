#include "planner/cli/present_calendar.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/cli/study.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr double seconds_per_day = 86400.0;

std::string days(double seconds) {
    const double number = seconds / seconds_per_day;
    return number >= 1.0 ? fmt::format("{:.1f} days", number)
                         : sim::format_quantity(seconds, sim::Dimension::seconds);
}

sim::Status read_time(const std::string& text, const char* flag, std::optional<double>& out) {
    if (text.empty()) {
        return sim::Done{};
    }
    const auto seconds = sim::parse_quantity(text, sim::Dimension::seconds, flag);
    if (!seconds) {
        return seconds.error();
    }
    if (*seconds < 0.0) {
        return sim::Error{sim::ErrorCode::bad_input, flag, "a time cannot be negative",
                          "write for example \"10 min\""};
    }
    out = *seconds;
    return sim::Done{};
}

bool any_given(const LossOptions& o) {
    for (const std::string* text :
         {&o.mean_time_to_failure, &o.checkpoint_time, &o.checkpoint_interval, &o.restart,
          &o.requeue, &o.queue, &o.planned, &o.power_overhead}) {
        if (!text->empty()) {
            return true;
        }
    }
    return false;
}

} // namespace

sim::Result<Losses> losses_from(const LossOptions& options) {
    Losses out;
    std::optional<double> requeue;
    std::optional<double> queue;
    for (const auto& status : {
             read_time(options.mean_time_to_failure, "--mttf", out.mean_time_to_failure_s),
             read_time(options.checkpoint_time, "--checkpoint-time", out.save_s),
             read_time(options.checkpoint_interval, "--checkpoint-interval", out.interval_s),
             read_time(options.restart, "--restart", out.restart_s),
             read_time(options.requeue, "--requeue", requeue),
             read_time(options.queue, "--queue", queue),
         }) {
        if (!status) {
            return status.error();
        }
    }
    out.requeue_s = requeue.value_or(0.0);
    out.queue_s = queue.value_or(0.0);
    if (!options.planned.empty()) {
        const auto share = share_from(options.planned, "--planned " + options.planned);
        if (!share) {
            return share.error();
        }
        out.planned = *share;
    }
    if (!options.power_overhead.empty()) {
        const auto factor =
            sim::parse_quantity(options.power_overhead, sim::Dimension::scalar, "--power-overhead");
        if (!factor) {
            return factor.error();
        }
        out.power_overhead = *factor;
    }
    return out;
}

sim::Result<std::optional<Calendar>> calendar_from(const LossOptions& options,
                                                   const sim::Scenario& scenario,
                                                   const sim::Estimate& estimate) {
    if (!(scenario.job.tokens_to_train > 0.0)) {
        if (any_given(options)) {
            return sim::Error{sim::ErrorCode::bad_input, "losses of the run",
                              "the tokens of the whole run are not given",
                              "write for example --tokens 2e12"};
        }
        return std::optional<Calendar>();
    }
    const auto losses = losses_from(options);
    if (!losses) {
        return losses.error();
    }
    if (estimate.verdict == sim::Verdict::does_not_fit) {
        return std::optional<Calendar>();
    }
    const auto operations = load_operations();
    if (!operations) {
        return operations.error();
    }
    auto whole_run = calendar(scenario, estimate, *losses, *operations);
    if (!whole_run) {
        return whole_run.error();
    }
    return std::optional<Calendar>(std::move(*whole_run));
}

void print_calendar(const Console& console, const std::optional<Calendar>& calendar) {
    if (!calendar) {
        return;
    }
    const Calendar& c = *calendar;
    print_heading(console.out, "The whole run", console.color);
    Table table({{"", Align::left}, {"", Align::right}, {"", Align::left}});
    table.add({"training",
               days(c.pure_s),
               {fmt::format("{} tokens, {} steps of {} tokens, {} each", scaled_count(c.tokens),
                            sim::group_digits(static_cast<long long>(c.steps)),
                            scaled_count(c.tokens_per_step), sim::to_text(sim::Seconds(c.step_s))),
                Style::faint}});
    for (const LossLine& line : c.losses) {
        table.add({line.name, "+" + days(line.seconds), {line.how, Style::faint}});
    }
    table.add({"together",
               {days(c.total_s), Style::strong},
               fmt::format("{} to {}; {} of the time is training", days(c.total_low_s),
                           days(c.total_high_s), percent(c.goodput))});
    table.add({"checkpoint",
               sim::format_quantity(c.checkpoint_bytes, sim::Dimension::bytes),
               {fmt::format("{} to save", sim::to_text(sim::Seconds(c.save_s))), Style::faint}});
    table.add({"device hours", scaled_count(c.device_hours), ""});
    if (c.money > 0.0) {
        table.add({"cost", {scaled_count(c.money) + " " + c.currency, Style::strong}, ""});
    } else {
        table.add({"cost",
                   "not known",
                   {"--set \"cluster.node_groups[0].price_per_device_hour=2.5\"", Style::faint}});
    }
    if (c.kilowatt_hours > 0.0) {
        table.add({"energy",
                   fmt::format("{} kWh", scaled_count(c.kilowatt_hours)),
                   {fmt::format("devices at board power x {:.3g}; without hosts and network",
                                c.power_overhead),
                    Style::faint}});
    }
    table.print(console.out, console.color, 2);
    for (const sim::Assumption& a : c.assumptions) {
        // Behind the flag stands the source, which --json tells.
        const std::string flag = a.note.substr(0, a.note.find(';'));
        console.out << "  "
                    << styled(fmt::format("assumed {}: {}; {}", a.path, a.value, flag),
                              Style::faint, console.color)
                    << '\n';
    }
}

void write_calendar(sim::JsonWriter& json, const std::optional<Calendar>& calendar) {
    if (!calendar) {
        json.member("calendar", nullptr);
        return;
    }
    const Calendar& c = *calendar;
    json.begin_object("calendar")
        .member("tokens", c.tokens)
        .member("tokens_per_step", c.tokens_per_step)
        .member("steps", c.steps)
        .member("training_s", c.pure_s)
        .member("total_s", c.total_s)
        .member("total_low_s", c.total_low_s)
        .member("total_high_s", c.total_high_s)
        .member("goodput", c.goodput)
        .member("mean_time_to_stop_s", c.mean_time_to_stop_s)
        .member("stops", c.stops)
        .member("checkpoint_bytes", c.checkpoint_bytes)
        .member("checkpoint_s", c.save_s)
        .member("checkpoint_interval_s", c.interval_s)
        .member("steps_per_checkpoint", c.steps_per_checkpoint)
        .member("device_hours", c.device_hours)
        .member("money", c.money)
        .member("currency", c.currency)
        .member("kilowatt_hours", c.kilowatt_hours)
        .member("power_overhead", c.power_overhead)
        .begin_array("losses");
    for (const LossLine& line : c.losses) {
        json.begin_object()
            .member("name", line.name)
            .member("seconds", line.seconds)
            .member("how", line.how)
            .end_object();
    }
    json.end_array().begin_array("assumptions");
    for (const sim::Assumption& a : c.assumptions) {
        json.value(a);
    }
    json.end_array().end_object();
}

int run_calendar(const CalendarOptions& options, const Console& console) {
    auto study = study_from(options.document, options.plan, options.scenario, options.layout);
    if (!study) {
        return fail(console, study.error());
    }
    const auto losses = losses_from(options.losses);
    if (!losses) {
        return fail(console, losses.error());
    }
    const auto found = find_layout(*study);
    if (!found) {
        return fail(console, found.error());
    }
    if (!*found) {
        console.err << "no layout fits, so the run has no length; see `shardplan fit`\n";
        return console.no();
    }
    const auto priced = price_layout(study->scenario, study->layout, "--layout");
    if (!priced) {
        return fail(console, priced.error());
    }
    if (!priced->legal() || priced->estimate.verdict == sim::Verdict::does_not_fit) {
        console.err << priced->layout << ": "
                    << (priced->legal() ? priced->estimate.verdict_text
                                        : priced->refusals.front().rule)
                    << "; a run that does not start has no length\n";
        return console.no();
    }
    const auto operations = load_operations();
    if (!operations) {
        return fail(console, operations.error());
    }
    auto whole_run = calendar(study->scenario, priced->estimate, *losses, *operations);
    if (!whole_run) {
        return fail(console, whole_run.error());
    }
    const std::optional<Calendar> shown(std::move(*whole_run));
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().member("layout", priced->layout);
        write_calendar(json, shown);
        json.end_object();
        console.out << json.str();
    } else {
        console.out << styled(priced->layout, Style::strong, console.color) << '\n';
        print_calendar(console, shown);
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
