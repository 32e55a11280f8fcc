#include "executor/run/program/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace shardplan::exec {
namespace {

std::atomic<bool> asked = false;
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may touch nothing else");

extern "C" void remember_stop(int /*signal*/) { asked = true; }

void catch_signal(int signal, int flags) {
    struct sigaction action {};
    action.sa_handler = remember_stop;
    action.sa_flags = SA_RESTART | flags;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

} // namespace

void catch_stop_signals() {
    // Once caught, the usual end comes back.
    const auto once = static_cast<int>(SA_RESETHAND);
    catch_signal(SIGINT, once);
    catch_signal(SIGTERM, once);
    catch_signal(SIGUSR1, 0);
}

bool stop_was_asked() { return asked; }

} // namespace shardplan::exec
