#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Changes good input at random and feeds it to one reader. Everything follows from the seed, so a
/// failure comes back in the next run.
namespace shardplan::fuzz {

/// What a reader made of one input.
struct Outcome {
    int code = 0;    ///< as an exit code
    std::string err; ///< what a person was told
};

struct Target {
    std::string name;
    std::vector<std::string> seeds; ///< good input
    std::function<Outcome(const std::string& text)> read;
};

/// Runs `rounds` mutations. An outcome is in order if its code is 0, 1 or 2, and with 2 `err` tells
/// where, what and a hint ("error: WHERE: WHAT\nhint: HINT"). Seeds as they are must not give 2.
/// Prints a line per target and every outcome that is not in order with its input; an input that
/// crashes the reader or keeps it for more than 20 seconds ends the program with its text printed.
/// Returns the exit code of the program: 0 if everything was in order.
int run(const std::vector<Target>& targets, int rounds = 10000);

/// The text of a file of the tree; ends the program if there is none.
std::string tree_file(const std::string& path);
/// Texts of the files with this ending in a folder of the tree, at most `most`, ordered by name.
std::vector<std::string> tree_files(const std::string& folder, const std::string& ending,
                                    std::size_t most);
/// Writes `text` to a file of this process and returns its path; every call uses the same file.
std::string as_file(const std::string& text, const std::string& ending = ".json");

} // namespace shardplan::fuzz
