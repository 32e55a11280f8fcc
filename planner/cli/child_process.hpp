#pragma once

#include <functional>
#include <string>
#include <vector>

#include "simulator/units/result.hpp"

/// A program that runs beside this one and is read line by line.
namespace shardplan::plan::cli {

/// How a child ended.
struct ChildEnd {
    int code = 0;               ///< what it returned; meaningless if a signal ended it
    int signal = 0;             ///< that ended it; 0: none
    bool asked_to_stop = false; ///< somebody pressed Ctrl-C, or ended this process, meanwhile

    [[nodiscard]] bool good() const { return code == 0 && signal == 0; }
};

/// Lines without their ends; calls come from the thread that waits.
struct ChildLines {
    std::function<void(const std::string& line)> out;
    std::function<void(const std::string& line)> err;
};

/// Starts a program (found in PATH unless its name holds a slash) with these words after its name,
/// and reads both its outputs until it has ended. It gets no input. SIGINT and SIGTERM of this
/// process go to it as SIGUSR1, which mpirun hands on to its ranks; a second one as SIGTERM, a
/// third one as SIGKILL. It is told to end if this process dies. Errors: it cannot be started.
sim::Result<ChildEnd> run_child(const std::string& program, const std::vector<std::string>& words,
                                const ChildLines& lines);

/// The path of a program of ours: beside the one that runs, else in PATH. Errors: in neither.
sim::Result<std::string> find_program_of_ours(const std::string& name);

/// The path of a program in PATH; empty: there is none.
std::string find_in_path(const std::string& name);

} // namespace shardplan::plan::cli
