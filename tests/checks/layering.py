"""Includes follow the rooms: usage `layering.py ROOT`. Exit code 1 and one line per violation.

The rules stand in the tables below; the README of the project shows them as a picture.
"""

import re
import sys

import sources

# Room -> rooms of ours it may include.
MAY_INCLUDE = {
    "simulator": {"simulator"},
    "planner": {"simulator", "planner"},
    "executor": {"simulator", "executor"},
    "gui": {"simulator", "planner", "gui"},
    "tests": {"simulator", "planner", "executor", "gui", "tests"},
}

GENERATED = {"shardplan_data_dir.hpp": "simulator/io/data_dir.cpp"}

QT = r"Q[A-Z]\w*(/.*)?|Qt\w+/.*|q[a-z]+\.h"
MPI = r"mpi(cxx)?\.h|mpi/.*"
CUDA = r"(.*/)?(cuda|cublas|cudnn|nccl|nvtx|nvml|cupti)\w*(\.h(pp)?|/.*)"
THREADS_AND_CLOCK = (
    r"thread|mutex|shared_mutex|condition_variable|future|atomic|semaphore|latch|barrier|"
    r"stop_token|chrono|ctime|time\.h|sys/time\.h|pthread\.h|omp\.h|execution"
)

# (header, files it must not be included from, files that may all the same, why).
# All three are regular expressions that must match completely.
HEADERS = [
    (r"nlohmann/.*", r".*", r"(simulator/io|planner/import|planner/export|tests)/.*\.cpp",
     "JSON stays in .cpp files of simulator/io, planner/import, planner/export"),
    (r"pugixml\.hpp", r".*", r"planner/import/xml\.cpp", "XML stays in planner/import/xml.cpp"),
    (r"yaml-cpp/.*", r".*", r"planner/import/yaml\.cpp", "YAML stays in planner/import/yaml.cpp"),
    (r"CLI/.*|CLI11\.hpp", r".*", r"planner/cli/(main\.cpp|flags/.*\.hpp)",
     "CLI11 is compiled once, in planner/cli/main.cpp with its flags/*.hpp"),
    (r"fmt/.*", r".*\.(hpp|h|cuh)", r"", "fmt stays in .cpp files"),
    (r"ranges", r".*", r"", "views cost more compile time than they save lines"),
    (r"format|expected|print", r".*", r"", "the oldest supported compiler has none"),
    (THREADS_AND_CLOCK, r"simulator/.*", r"", "the simulator knows no threads and no clock"),
    (QT, r"(simulator|planner|executor)/.*", r"", "Qt belongs to gui"),
    (r"planner/cli/flags/.*", r".*", r"planner/cli/(main\.cpp|flags/.*\.hpp)",
     "flags bring CLI11 along: only planner/cli/main.cpp includes them"),
    (MPI, r"(simulator|planner|gui)/.*", r"", "MPI never enters the process of the CLI or the GUI"),
    (CUDA, r"(simulator|planner|gui)/.*", r"",
     "CUDA never enters the process of the CLI or the GUI"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def room_violation(name, header):
    """Why `name` may not include our header `header`, or None."""
    room = name.split("/")[0]
    target = header.split("/")[0]
    if GENERATED.get(header) == name:
        return None
    if "/" not in header or target not in MAY_INCLUDE:
        return "includes of ours are written from the root of the tree"
    if target not in MAY_INCLUDE[room]:
        return f"{room} must not include {target}"
    if (header.startswith("planner/cli/") and room == "planner"
            and not name.startswith("planner/cli/")):
        return "the planner library must not include its command line"
    if header.startswith("planner/cli/") and room == "gui":
        return "the window starts the command line as a child process"
    return None


def violations_in(name, text):
    if name.split("/")[0] not in MAY_INCLUDE:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        reasons = []
        if quote == '"' or header.split("/")[0] in MAY_INCLUDE:
            reasons.append(room_violation(name, header))
        for pattern, where, allowed, why in HEADERS:
            if (re.fullmatch(pattern, header) and re.fullmatch(where, name)
                    and not re.fullmatch(allowed, name)):
                reasons.append(why)
        for reason in filter(None, reasons):
            yield f"{name}:{number}: {header}: {reason}"


def check(root):
    checked, violations = 0, []
    for path, name in sources.files(root, sources.CODE):
        checked += 1
        violations += violations_in(name, path.read_text(encoding="utf-8"))
    return sources.report("layering", checked, violations)


if __name__ == "__main__":
    sys.exit(sources.main(check))
