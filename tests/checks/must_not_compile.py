"""A line that must not compile does not: usage `must_not_compile.py COMPILER ROOT CASE.cpp`.

A case keeps its bad line between `#ifdef BAD_LINE` and `#endif`, and names a part of the compiler's
message in a comment `// expect: REGEX`. The case must compile without BAD_LINE, so that it is the
line that fails and not the file around it, and with BAD_LINE must fail with that message.
"""

import os
import pathlib
import re
import subprocess
import sys


def compile_case(compiler, root, case, *flags):
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{root}", *flags, str(case)]
    run = subprocess.run(command, capture_output=True, text=True, check=False,
                         env={**os.environ, "LC_ALL": "C"})
    return run.returncode == 0, run.stderr


def check(compiler, root, case):
    """Returns what is wrong with the case, or an empty text."""
    text = pathlib.Path(case).read_text(encoding="utf-8")
    expected = re.search(r"^// expect: (.+)$", text, re.MULTILINE)
    if not expected or "#ifdef BAD_LINE" not in text:
        return "a case needs `// expect: REGEX` and `#ifdef BAD_LINE`"
    compiles, message = compile_case(compiler, root, case)
    if not compiles:
        return f"does not compile without its bad line:\n{message}"
    compiles, message = compile_case(compiler, root, case, "-DBAD_LINE")
    if compiles:
        return "compiles with its bad line"
    if not re.search(expected.group(1), message):
        return f"fails for another reason than `{expected.group(1)}`:\n{message}"
    return ""


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(f"usage: {sys.argv[0]} COMPILER ROOT CASE.cpp")
        sys.exit(2)
    wrong = check(*sys.argv[1:])
    print(f"{sys.argv[3]}: {wrong or 'does not compile, as it should'}")
    sys.exit(1 if wrong else 0)
