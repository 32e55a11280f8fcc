#include "executor/run/sweep_turns.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <sched.h>

#include "executor/comm/agree.hpp"
#include "executor/run/rank_facts.hpp"

namespace shardplan::exec {

namespace {

/// Numbers of the cores that this rank may run on, each followed by a blank.
std::string own_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
    std::string out;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) out += std::to_string(core) + ' ';
    }
    return out;
}

/// What is the same for all that runs under one kernel, whatever host names it goes by.
std::string machine_name() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string out;
    return std::getline(in, out) ? out : host_name();
}

void add_cores(const std::string& text, std::set<std::string>& cores) {
    std::size_t at = 0;
    for (std::size_t end = text.find(' '); end != std::string::npos; end = text.find(' ', at)) {
        cores.insert(text.substr(at, end - at));
        at = end + 1;
    }
}

} // namespace

Result<Turns> turns_of(Communicator& world, int threads) {
    const auto nodes = gather_texts(world, host_name());
    if (!nodes) return nodes.error();
    const auto names = gather_texts(world, machine_name());
    if (!names) return names.error();
    const auto cores = gather_texts(world, own_cores());
    if (!cores) return cores.error();
    const auto self = static_cast<std::size_t>(world.rank());
    const std::set<std::string> machines(names->begin(), names->end());
    Turns out;
    out.nodes =
        static_cast<std::int64_t>(std::set<std::string>(nodes->begin(), nodes->end()).size());
    out.machines = static_cast<std::int64_t>(machines.size());
    bool first = true;
    for (const std::string& machine : machines) {
        std::set<std::string> usable;
        std::int64_t ranks = 0;
        std::int64_t before_self = 0;
        for (std::size_t rank = 0; rank < names->size(); ++rank) {
            if ((*names)[rank] != machine) continue;
            add_cores((*cores)[rank], usable);
            before_self += rank < self ? 1 : 0;
            ++ranks;
        }
        const std::int64_t processors =
            std::max<std::int64_t>(1, static_cast<std::int64_t>(usable.size()) / threads);
        out.processors = first ? processors : std::min(out.processors, processors);
        out.count = std::max(out.count, (ranks + processors - 1) / processors);
        if (machine == (*names)[self]) out.own = before_self / processors;
        first = false;
    }
    return out;
}

} // namespace shardplan::exec
