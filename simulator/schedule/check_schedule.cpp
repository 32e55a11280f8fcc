#include <string>

#include "simulator/schedule/schedule.hpp"

namespace shardplan::sim {

std::string describe_task(const Schedule& s, std::size_t task) {
    std::string text(name_of(s.kind[task]));
    if (s.micro_batch[task] != no_micro_batch) {
        text += " of chunk " + std::to_string(s.chunk[task]) + ", micro-batch " +
                std::to_string(s.micro_batch[task]) + ",";
    }
    return text + " on stage " + std::to_string(s.stage[task]);
}

namespace {

Error wrong(std::string what) {
    return {ErrorCode::bad_input, "schedule", std::move(what),
            "write the schedule with make_schedule"};
}

bool is_pass(const Schedule& s, std::size_t task) {
    return s.kind[task] == TaskKind::forward || s.kind[task] == TaskKind::backward ||
           s.kind[task] == TaskKind::weight;
}

/// Passes by position: how often the first part of its first unit is there.
Status check_passes(const Schedule& s) {
    const PipelineShape& shape = s.shape;
    const auto chunks = static_cast<std::size_t>(shape.chunks);
    const auto stages = static_cast<std::size_t>(shape.stages);
    const auto micro_batches = static_cast<std::size_t>(shape.micro_batches);
    const std::size_t kinds = splits_backward(shape.kind) ? 3 : 2;
    std::vector<std::uint32_t> seen(kinds * micro_batches * chunks * stages, 0);
    for (std::size_t task = 0; task < s.size(); ++task) {
        if (!is_pass(s, task) || s.unit[task] != 0 || s.part[task] != 0) continue;
        const auto kind = static_cast<std::size_t>(s.pass[task]);
        if (kind >= kinds || s.stage[task] >= stages || s.chunk[task] >= chunks ||
            s.micro_batch[task] >= micro_batches) {
            return wrong(describe_task(s, task) + " lies outside the pipeline");
        }
        ++seen[((kind * micro_batches + s.micro_batch[task]) * chunks + s.chunk[task]) * stages +
               s.stage[task]];
    }
    for (std::size_t m = 0; m < micro_batches; ++m) {
        for (const Position& at : way_of(shape, static_cast<std::int32_t>(m))) {
            for (std::size_t kind = 0; kind < kinds; ++kind) {
                std::uint32_t& n = seen[((kind * micro_batches + m) * chunks +
                                         static_cast<std::size_t>(at.chunk)) *
                                            stages +
                                        static_cast<std::size_t>(at.stage)];
                if (n != 1) {
                    return wrong("pass " + std::to_string(kind) + " of micro-batch " +
                                 std::to_string(m) + " on stage " + std::to_string(at.stage) +
                                 " is there " + std::to_string(n) + " times");
                }
                n = 0;
            }
        }
    }
    for (const std::uint32_t n : seen) {
        if (n != 0) return wrong("a micro-batch visits a chunk that does not lie on its way");
    }
    return Done{};
}

/// Every receive waits for one send of the same micro-batch, which no other receive waits for.
Status check_messages(const Schedule& s) {
    std::vector<char> taken(s.size(), 0);
    std::vector<char> sent_on(s.size(), 0); ///< a send that a later share of it waits for
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (std::size_t task = 0; task < s.size(); ++task) {
        const bool receive = s.kind[task] == TaskKind::receive;
        const bool send = s.kind[task] == TaskKind::send;
        if (!receive && !send) continue;
        sends += send ? 1 : 0;
        receives += receive ? 1 : 0;
        std::size_t from = 0;
        for (std::uint32_t d = s.first_dependency[task]; d < s.first_dependency[task + 1]; ++d) {
            const std::uint32_t on = s.dependencies[d];
            if (s.kind[on] != TaskKind::send) continue;
            if (send) {
                // one message in two shares
                if (sent_on[on]++ == 0) --sends;
                continue;
            }
            if (s.micro_batch[on] != s.micro_batch[task] || s.pass[on] != s.pass[task] ||
                taken[on]++ != 0) {
                return wrong(describe_task(s, task) + " takes the message of " +
                             describe_task(s, on));
            }
            ++from;
        }
        if (receive && from != 1) {
            return wrong(describe_task(s, task) + " waits for " + std::to_string(from) + " sends");
        }
    }
    if (sends != receives) {
        return wrong(std::to_string(sends) + " messages are sent and " + std::to_string(receives) +
                     " received");
    }
    return Done{};
}

/// Kahn's order over dependencies and streams reaches every task.
Status check_order(const Schedule& s) {
    const std::size_t n = s.size();
    std::vector<std::uint32_t> waits(n, 0);
    std::vector<std::uint32_t> first(n + 1, 0);
    const std::size_t streams = static_cast<std::size_t>(s.shape.stages) * stream_kind_count;
    std::vector<std::uint32_t> last(streams, no_micro_batch);
    std::vector<std::uint32_t> next_on_stream(n, no_micro_batch);
    for (std::size_t task = 0; task < n; ++task) {
        for (std::uint32_t d = s.first_dependency[task]; d < s.first_dependency[task + 1]; ++d) {
            if (s.dependencies[d] >= n) return wrong("a dependency that does not exist");
            ++first[s.dependencies[d] + 1];
            ++waits[task];
        }
        std::uint32_t& before = last[stream_index(s, task)];
        if (before != no_micro_batch) {
            next_on_stream[before] = static_cast<std::uint32_t>(task);
            ++waits[task];
        }
        before = static_cast<std::uint32_t>(task);
    }
    for (std::size_t i = 0; i < n; ++i)
        first[i + 1] += first[i];
    std::vector<std::uint32_t> successors(s.dependencies.size());
    std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
    for (std::size_t task = 0; task < n; ++task) {
        for (std::uint32_t d = s.first_dependency[task]; d < s.first_dependency[task + 1]; ++d) {
            successors[at[s.dependencies[d]]++] = static_cast<std::uint32_t>(task);
        }
    }
    std::vector<std::uint32_t> ready;
    for (std::size_t task = 0; task < n; ++task) {
        if (waits[task] == 0) ready.push_back(static_cast<std::uint32_t>(task));
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
        const std::uint32_t task = ready[i];
        const auto done = [&](std::uint32_t next) {
            if (--waits[next] == 0) ready.push_back(next);
        };
        for (std::uint32_t d = first[task]; d < first[task + 1]; ++d)
            done(successors[d]);
        if (next_on_stream[task] != no_micro_batch) done(next_on_stream[task]);
    }
    if (ready.size() == n) return Done{};
    for (std::size_t task = 0; task < n; ++task) {
        if (waits[task] > 0) {
            return wrong(std::to_string(n - ready.size()) + " tasks wait for one another, first " +
                         describe_task(s, task));
        }
    }
    return Done{};
}

} // namespace

Status check_schedule(const Schedule& s) {
    const std::size_t n = s.size();
    if (s.stream.size() != n || s.stage.size() != n || s.chunk.size() != n || s.unit.size() != n ||
        s.part.size() != n || s.pass.size() != n || s.micro_batch.size() != n ||
        s.first_dependency.size() != n + 1 || s.first_dependency.back() != s.dependencies.size()) {
        return wrong("its columns are of different lengths");
    }
    for (const std::uint16_t stage : s.stage) {
        if (static_cast<std::int32_t>(stage) >= s.shape.stages) {
            return wrong("stage " + std::to_string(stage) + " does not exist");
        }
    }
    Status status = check_order(s);
    if (status) status = check_passes(s);
    if (status) status = check_messages(s);
    return status;
}

std::int64_t fewest_tasks(const ScheduleInput& in) {
    std::int64_t units = 0;
    for (const auto& stage : in.units) {
        for (const auto& chunk : stage)
            units += static_cast<std::int64_t>(chunk.size());
    }
    return 2 * units * in.shape.micro_batches;
}

Error too_many_tasks(const ScheduleInput& in) {
    return {ErrorCode::bad_input, "schedule",
            "more than " + std::to_string(in.most_tasks) + " tasks",
            "use fewer micro-batches, or larger ones"};
}

Status check_input(const ScheduleInput& in) {
    const PipelineShape& shape = in.shape;
    const auto bad = [](std::string what, std::string hint) {
        return Error{ErrorCode::bad_input, "schedule", std::move(what), std::move(hint)};
    };
    if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1) {
        return bad("stages, chunks and micro-batches must be at least 1", "give every one of them");
    }
    if (std::min({in.lengths.forward, in.lengths.backward, in.lengths.weight}) < 1) {
        return bad("lengths of passes must be at least 1", "leave them out, or scale them up");
    }
    if (in.units.size() != static_cast<std::size_t>(shape.stages)) {
        return bad("units of " + std::to_string(in.units.size()) + " stages given for " +
                       std::to_string(shape.stages),
                   "give one list per stage");
    }
    for (const auto& stage : in.units) {
        if (stage.size() != static_cast<std::size_t>(shape.chunks)) {
            return bad("units of " + std::to_string(stage.size()) + " chunks given for " +
                           std::to_string(shape.chunks),
                       "give one list per chunk");
        }
        for (const auto& chunk : stage) {
            for (const std::uint16_t unit : chunk) {
                if (unit >= in.unit_kinds.size()) {
                    return bad("unit kind " + std::to_string(unit) + " is not described",
                               "describe it in unit_kinds");
                }
            }
        }
    }
    if (fewest_tasks(in) > in.most_tasks) return too_many_tasks(in);
    return Done{};
}

} // namespace shardplan::sim
