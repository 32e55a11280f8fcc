#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

std::string because_of(int peer, const std::string& reason) {
    const std::string link = "stopped because ";
    if (reason.compare(0, link.size(), link) == 0) return reason;
    return link + "rank " + std::to_string(peer) + " " + reason;
}

} // namespace shardplan::exec
