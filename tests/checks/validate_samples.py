"""Every file of ours that ships fits its schema, by an independent validator: `validate_samples.py ROOT`.

Exit code 1 and one line per violation. Also checks that the schemas bite: for each kind, a misspelled
key and a number where an amount needs its unit must be refused.
"""

import copy
import json
import pathlib
import sys

import sources

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is missing (Debian, Ubuntu: sudo apt-get install python3-jsonschema)")
    sys.exit(1)

# Kind -> folders of its files.
FOLDERS = {
    "device": ["topologies/devices"],
    "cluster": ["topologies/clusters", "samples/clusters"],
    "stack": ["topologies/stacks"],
    "fabric": ["topologies/fabrics"],
    "operations": ["topologies/operations"],
    "job": ["samples/jobs"],
}
# Model files of ours lie among configurations of other makers; ours have this key.
MODEL_FOLDER, MODEL_KEY = "samples/models", "parts"

# Kind -> path of a field that must be text with a unit, or a choice: a bare 12345 is wrong there.
NEEDS_TEXT = {
    "device": ["memory_visible"],
    "cluster": ["node_groups", 0, "node", "scaleup", "per_device", "physical"],
    "stack": ["default_shard"],
    "fabric": ["step_latency", "unit"],
    "operations": ["stops", "unit"],
    "job": ["precision", "compute"],
    "model": ["embedding", "positions"],
    "calibration": ["date"],
}
CALIBRATION = {"id": "a", "date": "2026-11-29", "machine": "m",
               "entries": [{"path": "stack.time.launch", "value": 5e-6, "source": "s"}]}


def no_repeated_keys(pairs):
    keys = [key for key, _ in pairs]
    repeated = {key for key in keys if keys.count(key) > 1}
    if repeated:
        raise ValueError(f"repeated keys {sorted(repeated)}")
    return dict(pairs)


def load(path):
    return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=no_repeated_keys)


def put(document, path, value):
    for key in path[:-1]:
        document = document.setdefault(key, {}) if isinstance(key, str) else document[key]
    document[path[-1]] = value


def refusals(kind, validator, document):
    """Yields what the schema should refuse in a spoiled copy of a good file, and does not."""
    misspelled = copy.deepcopy(document)
    misspelled["nmae"] = "x"
    if validator.is_valid(misspelled):
        yield f"schema of {kind}: an unknown key is accepted"
    bare = copy.deepcopy(document)
    put(bare, NEEDS_TEXT[kind], 12345)
    if validator.is_valid(bare):
        yield f"schema of {kind}: 12345 is accepted at {NEEDS_TEXT[kind]}"


def documents(root):
    """Yields (kind, name, JSON) of every file of ours."""
    for kind, folders in FOLDERS.items():
        for folder in folders:
            for path in sorted((root / folder).glob("*.json")):
                yield kind, path.relative_to(root).as_posix(), load(path)
    for path in sorted((root / MODEL_FOLDER).rglob("*.json")):
        document = load(path)
        if MODEL_KEY in document:
            yield "model", path.relative_to(root).as_posix(), document
    yield "calibration", "(in this script)", CALIBRATION


def check(root):
    root = pathlib.Path(root)
    validators, tried, violations, checked = {}, set(), [], 0
    for path in sorted((root / "simulator/io/schema").glob("*.schema.json")):
        schema = load(path)
        jsonschema.Draft202012Validator.check_schema(schema)
        kind = path.name.removesuffix(".schema.json")
        validators[kind] = jsonschema.Draft202012Validator(schema)
    for kind, name, document in documents(root):
        checked += 1
        if kind not in validators:
            violations.append(f"{name}: there is no schema of the kind {kind}")
            continue
        for error in validators[kind].iter_errors(document):
            violations.append(f"{name}: {error.json_path}: {error.message[:200]}")
        if kind not in tried:
            tried.add(kind)
            violations += refusals(kind, validators[kind], document)
    for kind in FOLDERS:
        if kind not in tried:
            violations.append(f"no file of the kind {kind} was found")
    return sources.report("files against their schemas", checked, violations)


if __name__ == "__main__":
    sys.exit(sources.main(check))
