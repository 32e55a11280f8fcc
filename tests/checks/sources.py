"""What the checks share: which files are ours, and how a check reports."""

import pathlib
import sys

ROOMS = ("simulator", "planner", "executor", "gui", "tests")
CODE = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".in", ".txt"}


def files(root, suffixes):
    """Yields (path, path relative to root as text) of our files with one of these suffixes."""
    root = pathlib.Path(root)
    for room in ROOMS + ("samples", "topologies"):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path, path.relative_to(root).as_posix()


def report(what, checked, violations):
    """Prints the violations and returns the exit code: 1 also if there was nothing to check."""
    for violation in violations:
        print(violation)
    if checked == 0:
        print(f"{what}: no files found, wrong folder?")
        return 1
    print(f"{what}: {checked} files, {len(violations)} violations")
    return 1 if violations else 0


def main(check):
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} ROOT")
        return 2
    return check(sys.argv[1])
