"""Nothing under the GPL gets in: usage `licences.py ROOT`. Exit code 1 and one line per violation.

Looks for licence texts and identifiers in our files, and for includes of Qt modules that come under
the GPL only. LGPL libraries may be linked, but their text must not be copied into our files either.
"""

import re
import sys

import sources

# Written so that this file does not find itself.
TEXT = re.compile(
    r"GNU[ ](Affero |Lesser |Library )?General Public Licen[cs]e"
    r"|SPDX-License[-]Identifier:[^\n]*\b[AL]?GPL",
    re.IGNORECASE,
)
GPL_ONLY_QT = re.compile(
    r'^\s*#\s*include\s*[<"]Qt(Charts|DataVisualization|Graphs|VirtualKeyboard|NetworkAuth|'
    r'QuickTimeline|Lottie|Quick3D\w*|ShaderTools)/',
    re.MULTILINE,
)


def check(root):
    checked, violations = 0, []
    for path, name in sources.files(root, sources.CODE | sources.SCRIPTS):
        checked += 1
        text = path.read_text(encoding="utf-8")
        for pattern, why in ((TEXT, "licence text"), (GPL_ONLY_QT, "Qt module under the GPL only")):
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                violations.append(f"{name}:{line}: {why}: {match.group(0).strip()}")
    return sources.report("licences", checked, violations)


if __name__ == "__main__":
    sys.exit(sources.main(check))
