#pragma once

#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"
#include "simulator/io/descriptor.hpp"

/// The folder of many checkpoints: names, the pointer to the latest, what is removed. By one rank.
namespace shardplan::exec {

/// A checkpoint in the making. Holds a lock on the folder as long as it lives, which the system
/// takes back when the program dies.
struct Staging {
    sim::Descriptor lock;
    std::string directory;
    std::string name;   ///< "save-000007-step-120"
    std::string folder; ///< where its files are written until they are all there

    [[nodiscard]] std::string final_path() const { return directory + "/" + name; }
};

/// Makes the folder of the next checkpoint, and removes what crashes left behind. Errors: another
/// program that saves there, the system's.
Result<Staging> stage(const std::string& directory, Index step);
/// Gives the folder its name and makes it the latest; each of the two happens whole or not at all.
/// All files in it are on the disk already.
Status publish(const Staging& staging);
void discard(const Staging& staging);
/// Removes all but the newest `keep` checkpoints.
Status prune(const std::string& directory, Index keep);
/// The folder of the latest checkpoint, or `directory` if it is a checkpoint itself.
Result<std::string> resolve(const std::string& directory);

} // namespace shardplan::exec
