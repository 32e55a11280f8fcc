#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"

/// What every back end has to do, checked on each rank against values worked out serially. Inputs
/// are small whole numbers, so that any order of adding gives the same in every type.
namespace shardplan::test {

/// A way to do collectives, and what to call it in a message.
struct NamedChoice {
    std::string name;
    exec::CollectiveChoice choice;
};
/// Every algorithm that CPUs do, in every form that this many ranks allow.
std::vector<NamedChoice> choices_for(int ranks);

/// All collectives with one choice, over element types, operations and sizes (0, 1, primes, larger
/// than a segment). The error names the first element that is wrong.
exec::Status check_collectives(exec::Communicator& all, const NamedChoice& choice);
/// Messages both ways, in order, by tag, blocking and not.
exec::Status check_messages(exec::Communicator& all);
/// Splits in two, and each half again; collectives of both, in turn.
exec::Status check_splits(exec::Communicator& all);
/// Sums of random numbers: the same bits on every rank and in two runs; in rank order, those of a
/// serial sum, bf16 rounded once.
exec::Status check_determinism(exec::Communicator& all);

/// All of the above, with every choice.
exec::Status check_everything(exec::Communicator& all);

} // namespace shardplan::test
