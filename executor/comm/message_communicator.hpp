#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

/// All ranks of a world, with collectives made of the endpoint's messages or done by its library.
std::unique_ptr<Communicator> make_world(std::shared_ptr<Endpoint> endpoint);

} // namespace shardplan::exec
