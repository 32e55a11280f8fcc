#pragma once

namespace shardplan::exec {

/// One turn of a loop that waits for memory to change. Not a yield: the scheduler would hand the
/// core to whatever else computes, for milliseconds, where a short sleep gets it back at once.
inline void spin_once() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

} // namespace shardplan::exec
