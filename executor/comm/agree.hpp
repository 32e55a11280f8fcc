#pragma once

#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"

/// What ranks tell one another in words. Every rank calls each of these.
namespace shardplan::exec {

/// The text of every rank, by rank.
Result<std::vector<std::string>> gather_texts(Communicator& world, const std::string& own);
/// The text of rank 0.
Result<std::string> text_of_root(Communicator& world, const std::string& own);
/// Success if all of them have it; else, on every rank, the error of the lowest rank that has one,
/// with its number.
Status agree(Communicator& world, const Status& own);

} // namespace shardplan::exec
