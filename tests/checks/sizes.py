"""Files under 500 lines: usage `sizes.py ROOT`. Exit code 1 and one line per file that is longer.

Also prints the longest files, and the functions over 80 lines, which are reported but do not fail:
their ends are found by counting braces, which is good enough to read and too coarse to judge.
"""

import re
import sys

import sources

FILE_LIMIT = 500
FUNCTION_LIMIT = 80

# Comments, strings and characters, whose braces do not count. Line breaks inside are kept.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def functions(text):
    """Yields (line, lines, first words) of each function body in C++ text."""
    text = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    depth, inside, start, head, begin = 0, None, 0, 0, 0
    line = 1
    for position, character in enumerate(text):
        if character == "\n":
            line += 1
        elif character == "{":
            depth += 1
            words = text[head:position].strip()
            if inside is None and ")" in words and not SCOPE.search(words.split("(")[0]):
                inside, start, begin = depth, line, words
            head = position + 1
        elif character == "}":
            if inside == depth:
                yield start, line - start + 1, " ".join(begin.split())
                inside = None
            depth -= 1
            head = position + 1
        elif character == ";" and inside is None:
            head = position + 1


def check(root):
    lengths, long_functions = [], []
    for path, name in sources.files(root, sources.CODE | sources.SCRIPTS):
        text = path.read_text(encoding="utf-8")
        lengths.append((text.count("\n"), name))
        if path.suffix in sources.CODE:
            long_functions += [
                (lines, f"{name}:{line}: {head[:70]}")
                for line, lines, head in functions(text) if lines > FUNCTION_LIMIT
            ]
    lengths.sort(reverse=True)
    print("longest files:")
    for lines, name in lengths[:10]:
        print(f"  {lines:5} {name}")
    print(f"functions over {FUNCTION_LIMIT} lines: {len(long_functions) or 'none'}")
    for lines, where in sorted(long_functions, reverse=True):
        print(f"  {lines:5} {where}")
    violations = [f"{name}: {lines} lines, limit {FILE_LIMIT}: could it be two nouns?"
                  for lines, name in lengths if lines > FILE_LIMIT]
    return sources.report("sizes", len(lengths), violations)


if __name__ == "__main__":
    sys.exit(sources.main(check))
