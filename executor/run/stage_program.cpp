#include "executor/run/stage_program.hpp"

#include <optional>

#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

namespace {

/// Where the tensor comes from that a pass begins with, or goes to when it ends; nothing at the end
/// of the line.
std::optional<sim::Position> neighbour(const sim::Schedule& s, std::size_t task, bool before) {
    const auto micro_batch = static_cast<std::int32_t>(s.micro_batch[task]);
    const std::vector<sim::Position> way = sim::way_of(s.shape, micro_batch);
    const std::size_t at = sim::step_on_way(s.shape, {s.stage[task], s.chunk[task]});
    const bool down = (s.pass[task] == sim::PassKind::forward) == before;
    if (down) return at == 0 ? std::nullopt : std::optional(way[at - 1]);
    return at + 1 == way.size() ? std::nullopt : std::optional(way[at + 1]);
}

/// Messages with the same tag never wait at the same time: they are many micro-batches apart.
int tag_of(const sim::Schedule& s, std::size_t task, std::int32_t receiving_chunk) {
    const std::int64_t direction = s.pass[task] == sim::PassKind::forward ? 0 : 1;
    const std::int64_t lane = receiving_chunk * std::int64_t{2} + direction;
    const std::int64_t number = s.micro_batch[task] * std::int64_t{2} * s.shape.chunks + lane;
    return static_cast<int>(number % (max_tag + 1));
}

} // namespace

std::vector<StageTask> stage_program(const sim::Schedule& s, std::int32_t stage) {
    std::vector<StageTask> program;
    // of every pass, by direction, chunk and micro-batch
    std::vector<bool> begun(2 * static_cast<std::size_t>(s.shape.chunks) *
                            static_cast<std::size_t>(s.shape.micro_batches));
    for (std::size_t id = 0; id < s.size(); ++id) {
        if (s.stage[id] != stage) continue;
        StageTask& task = program.emplace_back();
        task.id = static_cast<std::uint32_t>(id);
        const sim::TaskKind kind = s.kind[id];
        if (kind == sim::TaskKind::receive) {
            task.peer = neighbour(s, id, true)->stage;
            task.tag = tag_of(s, id, s.chunk[id]);
        } else if (kind == sim::TaskKind::send) {
            const sim::Position to = *neighbour(s, id, false);
            task.peer = to.stage;
            task.tag = tag_of(s, id, to.chunk);
        } else if (kind == sim::TaskKind::forward || kind == sim::TaskKind::backward) {
            const std::size_t direction = kind == sim::TaskKind::forward ? 0 : 1;
            const auto chunks = static_cast<std::size_t>(s.shape.chunks);
            const std::size_t pass =
                (s.micro_batch[id] * std::size_t{2} + direction) * chunks + s.chunk[id];
            if (begun[pass]) continue;
            begun[pass] = true;
            const std::optional<sim::Position> from = neighbour(s, id, true);
            if (from && from->stage == stage) task.handed_on_by = from->chunk;
        }
    }
    return program;
}

} // namespace shardplan::exec
