"""The checks find what is planted, and pass what is in order: usage `selftest.py COMPILER`."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

import layering
import licences
import must_not_compile
import sizes

COMPILER = sys.argv.pop() if len(sys.argv) == 2 else "c++"


class Planted(unittest.TestCase):
    def run_check(self, check, name, text):
        """Exit code and output of a check on a tree that holds this one file."""
        with tempfile.TemporaryDirectory() as root:
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                code = check(root)
            return code, output.getvalue()

    def assert_found(self, check, name, text):
        code, output = self.run_check(check, name, text)
        self.assertEqual(code, 1, f"{text!r} in {name} was not found:\n{output}")
        self.assertIn(name, output)

    def assert_passes(self, check, name, text):
        code, output = self.run_check(check, name, text)
        self.assertEqual(code, 0, output)

    def test_layering_finds_includes_that_go_the_wrong_way(self):
        for name, header in (
            ("simulator/memory/peak.cpp", '"planner/space/layout.hpp"'),
            ("simulator/memory/peak.cpp", '"peak.hpp"'),
            ("simulator/memory/peak.cpp", '"memory/peak.hpp"'),
            ("simulator/memory/peak.cpp", "<planner/space/layout.hpp>"),
            ("simulator/memory/peak.cpp", "<nlohmann/json.hpp>"),
            ("simulator/io/reader.hpp", "<nlohmann/json.hpp>"),
            ("simulator/memory/peak.cpp", "<thread>"),
            ("simulator/memory/peak.cpp", "<chrono>"),
            ("simulator/memory/peak.cpp", "<mpi.h>"),
            ("simulator/memory/peak.cpp", "<cuda_runtime.h>"),
            ("simulator/memory/peak.cpp", "<QString>"),
            ("simulator/memory/peak.hpp", "<fmt/format.h>"),
            ("planner/search/beam.cpp", "<ranges>"),
            ("planner/search/beam.cpp", "<format>"),
            ("planner/search/beam.cpp", "<CLI/CLI.hpp>"),
            ("planner/cli/verbs.cpp", "<CLI/CLI.hpp>"),
            ("planner/search/beam.cpp", '"executor/run/runner.hpp"'),
            ("planner/search/beam.cpp", '"planner/cli/table.hpp"'),
            ("executor/run/runner.cpp", '"planner/space/layout.hpp"'),
            ("executor/run/runner.cpp", "<QtWidgets/QWidget>"),
            ("gui/app/main.cpp", '"executor/run/runner.hpp"'),
            ("gui/app/main.cpp", "<nccl.h>"),
        ):
            with self.subTest(name=name, header=header):
                self.assert_found(layering.check, name, f"#include {header}\n")

    def test_layering_passes_includes_that_follow_the_rooms(self):
        for name, header in (
            ("simulator/memory/peak.cpp", '"simulator/memory/peak.hpp"'),
            ("simulator/memory/peak.cpp", "<fmt/format.h>"),
            ("simulator/io/reader.cpp", "<nlohmann/json.hpp>"),
            ("simulator/io/data_dir.cpp", '"shardplan_data_dir.hpp"'),
            ("planner/import/hf.cpp", "<nlohmann/json.hpp>"),
            ("planner/search/beam.cpp", "<thread>"),
            ("planner/search/beam.cpp", '"simulator/spec/model.hpp"'),
            ("planner/cli/main.cpp", "<CLI/CLI.hpp>"),
            ("planner/cli/verbs.cpp", '"planner/cli/table.hpp"'),
            ("executor/run/runner.cpp", '"simulator/schedule/schedule.hpp"'),
            ("executor/comm/mpi.cpp", "<mpi.h>"),
            ("gui/app/main.cpp", '"planner/planner.hpp"'),
            ("gui/app/main.cpp", "<QtWidgets/QWidget>"),
            ("tests/simulator/io/reader_test.cpp", "<nlohmann/json.hpp>"),
        ):
            with self.subTest(name=name, header=header):
                self.assert_passes(layering.check, name, f"#include {header}\n")

    def test_a_wrong_folder_is_not_a_pass(self):
        for check in (layering.check, licences.check, sizes.check):
            self.assertEqual(self.run_check(check, "elsewhere/a.cpp", "")[0], 1)

    def test_licences_are_found(self):
        name = "simulator/io/reader.cpp"
        self.assert_found(licences.check, name, "// GNU General " + "Public License\n")
        self.assert_found(licences.check, name, "// SPDX-License-" + "Identifier: GPL-3.0-only\n")
        self.assert_found(licences.check, "gui/paint/axis.cpp", "#include <QtCharts/QChart>\n")
        self.assert_passes(licences.check, name, "// SPDX-License-" + "Identifier: Apache-2.0\n")

    def test_long_files_fail_and_long_functions_are_reported(self):
        name = "simulator/memory/peak.cpp"
        self.assert_found(sizes.check, name, "\n" * 501)
        self.assert_passes(sizes.check, name, "\n" * 500)
        body = 'void peak() {\n' + '    f("}");\n' * 90 + "}\n"
        code, output = self.run_check(sizes.check, name, f"namespace a {{\n{body}}}\n")
        self.assertEqual(code, 0)
        self.assertIn(f"{name}:2: void peak()", output)

    def test_a_bad_line_that_compiles_is_found(self):
        frame = "// expect: %s\nint main() {\n%s\n#ifdef BAD_LINE\n    %s\n#endif\n}\n"
        for text, wrong in (
            (frame % ("cannot convert|no viable", "", "int* p = 1.5;"), ""),
            (frame % ("convert", "", "int p = 1;"), "compiles with its bad line"),
            (frame % ("no such message", "", "int* p = 1.5;"), "another reason"),
            (frame % ("convert", "int* q = 1.5;", ""), "without its bad line"),
            ("int main() {}\n", "needs"),
        ):
            with self.subTest(text=text), tempfile.TemporaryDirectory() as root:
                case = pathlib.Path(root, "case.cpp")
                case.write_text(text, encoding="utf-8")
                found = must_not_compile.check(COMPILER, root, case)
                if wrong:
                    self.assertIn(wrong, found)
                else:
                    self.assertEqual(found, "")


if __name__ == "__main__":
    unittest.main()
