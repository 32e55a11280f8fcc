#include "planner/cli/run_display.hpp"

#include <algorithm>
#include <iostream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "simulator/io/json.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {

/// Members of a record, with something in their place where they are missing.
class RecordFields {
public:
    explicit RecordFields(const sim::JsonValue& json) : json_(json) {}

    [[nodiscard]] std::string text(std::string_view key) const {
        const auto member = json_.find(key);
        if (!member) return "";
        const auto value = member->as_string();
        return value ? *value : "";
    }
    [[nodiscard]] std::optional<double> number(std::string_view key) const {
        const auto member = json_.find(key);
        if (!member) return std::nullopt;
        const auto value = member->as_double();
        return value ? std::optional<double>(*value) : std::nullopt;
    }
    [[nodiscard]] double number_or_0(std::string_view key) const {
        return number(key).value_or(0.0);
    }
    [[nodiscard]] std::size_t size(std::string_view key) const {
        const auto member = json_.find(key);
        return member ? member->size() : 0;
    }

private:
    const sim::JsonValue& json_;
};

namespace {

constexpr std::int64_t most_rows = 20;
constexpr const char* row_format = "{:>6}  {:>8}  {:>9}  {:>10}  {:>9}  {:>8}  {:>10}";

} // namespace

RunDisplay::RunDisplay(const Console& console)
    : console_(console),
      bar_(console),
      live_(&console.err != &std::cerr || isatty(STDERR_FILENO) == 0) {}

void RunDisplay::take(const std::string& line) {
    const auto json = sim::JsonValue::parse(line, "record");
    if (!json || !json->is_object() || !json->find("event")) {
        console_.err << line << '\n';
        return;
    }
    const RecordFields record(*json);
    const std::string event = record.text("event");
    if (event == "error" && !error_) {
        // The rank that says it first is the one that others then wait for in vain.
        error_ = sim::Error{sim::ErrorCode::backend_failed, record.text("where"),
                            record.text("what"), record.text("hint")};
    }
    if (event == "end") {
        median_ = record.number("median_step_seconds");
        stopped_ = record.text("reason") == "stopped";
    }
    if (console_.json) {
        console_.out << line << '\n' << std::flush;
        return;
    }
    if (event == "start") start(record);
    if (event == "step") step(record);
    if (event == "save") save(record);
    if (event == "end") end(record);
}

void RunDisplay::start(const RecordFields& record) {
    steps_ = static_cast<std::int64_t>(record.number_or_0("steps"));
    every_ = std::max<std::int64_t>(1, (steps_ + most_rows - 1) / most_rows);
    const std::size_t hosts = record.size("hosts");
    console_.out << fmt::format(
        "{}: {} parameters, {} x {} tokens a step\n", record.text("model"),
        sim::group_digits(static_cast<long long>(record.number_or_0("parameters"))),
        record.number_or_0("global_batch"), record.number_or_0("sequence"));
    const double ranks = record.number_or_0("ranks");
    const double threads = record.number_or_0("threads_per_rank");
    console_.out << fmt::format("{} on {} rank{} ({}) of {} machine{}, {} thread{} each\n",
                                styled(record.text("layout"), Style::strong, console_.color), ranks,
                                ranks == 1.0 ? "" : "s", record.text("backend"), hosts,
                                hosts == 1 ? "" : "s", threads, threads == 1.0 ? "" : "s");
    const double busy = ranks * threads;
    const double processors = record.number_or_0("processors");
    if (record.text("backend") == "threads" && processors > 0.0 && busy > processors) {
        console_.err << fmt::format("note: {} threads share {} processors; times say little\n",
                                    busy, processors);
    }
    if (const double after = record.number_or_0("begins_after_step"); after > 0.0) {
        console_.out << fmt::format("goes on after step {}\n", after);
    }
    console_.out << fmt::format(fmt::runtime(row_format), "step", "loss", "time", "tokens/s",
                                "gradient", "in comm", "memory")
                 << '\n'
                 << std::flush;
}

void RunDisplay::save(const RecordFields& record) {
    bar_.wipe();
    console_.err << fmt::format("saved step {}: {}\n", record.number_or_0("step"),
                                record.text("path"));
}

void RunDisplay::step(const RecordFields& record) {
    const auto number = static_cast<std::int64_t>(record.number_or_0("step"));
    const double seconds = record.number_or_0("seconds");
    const std::string speed = fmt::format("{:.0f}", record.number_or_0("tokens_per_second"));
    const double loss = record.number_or_0("loss");
    if (steps_ > 0) {
        bar_.report({static_cast<double>(number) / static_cast<double>(steps_), "train",
                     fmt::format("step {}, loss {:.4f}, {} tokens/s", number, loss, speed)});
    }
    const bool first = std::exchange(awaits_first_, false);
    if (!first && number != steps_ && number % every_ != 0) return;
    const std::string row =
        fmt::format(fmt::runtime(row_format), number, fmt::format("{:.4f}", loss),
                    sim::to_text(sim::Seconds(seconds)), speed,
                    fmt::format("{:.3g}", record.number_or_0("gradient_norm")),
                    percent(record.number_or_0("communication_share")),
                    sim::to_text(sim::Bytes(record.number_or_0("peak_memory_bytes"))));
    if (live_) {
        console_.out << row << '\n' << std::flush;
    } else {
        rows_.push_back(row);
    }
}

void RunDisplay::finish() {
    bar_.wipe();
    for (const std::string& row : rows_) {
        console_.out << row << '\n';
    }
    rows_.clear();
}

void RunDisplay::end(const RecordFields& record) {
    finish();
    console_.out << fmt::format("{} after {} steps", stopped_ ? "stopped" : "done",
                                record.number_or_0("steps"));
    if (const auto first = record.number("first_loss")) {
        console_.out << fmt::format("; loss {:.4f} to {:.4f}", *first,
                                    record.number_or_0("last_loss"));
    }
    console_.out << '\n' << std::flush;
}

void print_against_estimate(const Console& console, double measured,
                            const sim::Band<sim::Seconds>& predicted) {
    const auto text = [](sim::Seconds s) { return sim::to_text(s); };
    const double error = predicted.value.value() / measured - 1.0;
    const bool inside = predicted.low.value() <= measured && measured <= predicted.high.value();
    console.out << fmt::format(
        "step time  {} measured (median), {} predicted ({} to {}): {}, {} its band\n",
        styled(text(sim::Seconds(measured)), Style::strong, console.color), text(predicted.value),
        text(predicted.low), text(predicted.high), fmt::format("{:+.1f} %", 100.0 * error),
        inside ? styled("inside", Style::good, console.color)
               : styled("outside", Style::doubtful, console.color));
}

} // namespace shardplan::plan::cli
