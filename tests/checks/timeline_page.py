"""The page of a timeline parses, stands alone and draws.

    python3 tests/checks/timeline_page.py build/bin/shardplan

Writes a page with the program, reads it with Python's own parser, and looks for anything that a
browser would fetch. Where Node is found, the script of the page is run on a document of stand-ins:
it must draw every row, zoom, and say what the pointer is on.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

VOID = {"meta", "br", "hr", "img", "input", "link"}

# Anything that makes a browser fetch something, or run what the page does not hold.
FETCHES = re.compile(
    r"https?:|\bsrc\s*=|\bhref\s*=|@import|url\(|\bimport\s*\(|\bfetch\s*\(|XMLHttpRequest"
    r"|WebSocket|navigator\.|\beval\s*\(|<link|<iframe|<object"
)

STAND_INS = """
const calls = {fillRect: 0, fillText: 0, lineTo: 0};
const context = new Proxy({}, {
    get: (_, name) => (...given) => {
        if (given.some(v => typeof v === 'number' && !Number.isFinite(v)))
            throw new Error(name + ' of ' + given);
        if (name in calls) ++calls[name];
    },
    set: () => true,
});
const element = () => ({style: {}, clientWidth: 1000, width: 0, height: 0,
    getContext: () => context, setPointerCapture: () => {}});
const elements = {g: element(), m: element(), tip: element()};
globalThis.document = {getElementById: id => elements[id], documentElement: {}};
globalThis.window = {devicePixelRatio: 2};
globalThis.innerWidth = 1000;
globalThis.getComputedStyle = () => ({getPropertyValue: () => '#000'});
globalThis.addEventListener = () => {};
"""

# After the page has drawn itself once: zoom in, move, point at every row, and show all again.
USE = """
const before = {...calls};
const g = elements.g;
for (let i = 0; i < 20; ++i) g.onwheel({preventDefault() {}, deltaY: -1, offsetX: 600});
g.onpointerdown({clientX: 600, pointerId: 1});
g.onpointermove({clientX: 500, offsetX: 500, offsetY: 5});
g.onpointerup({});
g.ondblclick({});
let told = 0;
for (let row = 0; row < D.rows.length; ++row) {
    const t = D.rows[row][1][0] + 0.5 * D.rows[row][1][1];
    g.onpointermove({clientX: 0, clientY: 0, offsetX: 150 + t / D.end * 850, offsetY: row * 16 + 3});
    told += elements.tip.style.display === 'block' && elements.tip.textContent.length > 0;
}
console.log(JSON.stringify({before, after: calls, rows: D.rows.length, told}));
"""


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []
        self.faults = []
        self.scripts = []
        self.ids = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-1:]} in line {self.getpos()[0]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def faults_of(text):
    page = Page()
    page.feed(text)
    page.close()
    faults = page.faults + [f"<{tag}> is never closed" for tag in page.open]
    faults += [f"fetches: {match.group(0)}" for match in FETCHES.finditer(text)]
    if not text.startswith("<!doctype html>"):
        faults.append("does not begin with its doctype")
    if len(page.scripts) != 1:
        faults.append(f"{len(page.scripts)} scripts")
    faults += [f"no element {name}" for name in ("g", "m", "tip") if name not in page.ids]
    return faults, page.scripts


def run_script(script):
    """Faults of the script, run by Node; None where there is no Node."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        return None
    done = subprocess.run([node, "-"], input=STAND_INS + script + USE, text=True,
                          capture_output=True, timeout=60)
    if done.returncode != 0:
        return [done.stderr.strip()[-600:]]
    seen = json.loads(done.stdout.splitlines()[-1])
    faults = []
    if seen["before"]["fillRect"] < seen["rows"]:
        faults.append(f"{seen['before']['fillRect']} boxes for {seen['rows']} rows")
    if seen["before"]["lineTo"] == 0:
        faults.append("memory is not drawn")
    if seen["after"]["fillRect"] <= seen["before"]["fillRect"]:
        faults.append("zooming draws nothing")
    if seen["told"] != seen["rows"]:
        faults.append(f"the pointer is told of {seen['told']} of {seen['rows']} rows")
    return faults


def main(program):
    planted, _ = faults_of('<!doctype html><p><b></p><img src="http://x/y.png"><script></script>')
    if len(planted) < 4:
        print("planted faults are not found:", planted)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.html")
        command = [program, "simulate", "--model", "llama-3-8b", "--cluster", "dgx-h100", "--gpus",
                   "16", "--stack", "megatron-core", "--sequence", "4096", "--global-batch", "64",
                   "--layout", "tp2,sp,pp4,v2,mb1,zero1", "--html", path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            print(" ".join(command), done.stderr)
            return 1
        with open(path, encoding="utf-8") as file:
            text = file.read()
    faults, scripts = faults_of(text)
    ran = run_script(scripts[0]) if scripts else []
    for fault in faults + (ran or []):
        print(fault)
    print(f"page: {len(text)} bytes, {len(faults) + len(ran or [])} faults, script "
          + ("not run: no Node" if ran is None else "run"))
    return 1 if faults or ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
