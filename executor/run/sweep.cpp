#include "executor/run/sweep.hpp"

namespace shardplan::exec {

Status run_sweep(Communicator& world, const SweepOptions& options, std::ostream& out) {
    static_cast<void>(world);
    static_cast<void>(options);
    static_cast<void>(out);
    return Error{ErrorCode::unsupported, "sweep", "not part of this build", "build a newer one"};
}

} // namespace shardplan::exec
