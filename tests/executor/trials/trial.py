"""Plans of one model, made and run through the program as its users do."""

import json
import os
import statistics
import subprocess
import sys


def gpt(name, blocks, hidden, heads, vocab, tokens, tied):
    """A decoder in the shape of GPT-2, as a model file."""
    return {
        "name": name,
        "parts": [{"name": "trunk", "hidden": hidden, "runs": [{"kind": 0, "count": blocks}],
                   "norm_kind": "layernorm", "norm_bias": True}],
        "block_kinds": [{"name": "dense",
                         "attention": {"kind": "mha", "heads": heads, "kv_heads": heads,
                                       "qk_head_dim": hidden // heads,
                                       "v_head_dim": hidden // heads,
                                       "qkv_bias": True, "out_bias": True},
                         "ffn": {"width": 4 * hidden, "bias": True, "activation": "gelu"},
                         "norms": {"kind": "layernorm", "bias": True}}],
        "embedding": {"vocab": vocab, "position_rows": tokens, "positions": "learned",
                      "tied": tied},
        "max_positions": tokens,
    }


class Trial:
    def __init__(self, shardplan, folder, model, samples):
        self.shardplan = os.path.abspath(shardplan)
        self.runner = os.path.join(os.path.dirname(self.shardplan), "shardplan-run-cpu")
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        job = {"name": "fp32", "precision": {"compute": "fp32", "master": "fp32"},
               "global_batch": {"sequences": samples}}
        for name, what in (("model.json", model), ("job.json", job)):
            with open(self.path(name), "w", encoding="utf-8") as out:
                json.dump(what, out)

    def path(self, name):
        return os.path.join(self.folder, name)

    def try_call(self, *words):
        """Exit code, output, and what it said of errors."""
        done = subprocess.run([self.shardplan, *words], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def call(self, *words):
        code, out, errors = self.try_call(*words)
        if code not in (0, 1):
            sys.exit(f"{' '.join(words)}\n{errors}{out[-600:]}")
        return out

    def plan(self, cluster, layout, calibration=None):
        """Path of the plan, and its estimate. `cluster`: ["-c", "local-cpu", "-g", "2"]."""
        name = "-".join([cluster[-1].replace(os.sep, "_"), layout])
        path = self.path(name.replace(",", "-").replace(":", ".") + ".shardplan.json")
        words = ["estimate", "-m", self.path("model.json"), "-j", self.path("job.json"), *cluster,
                 "-s", "shardplan-cpu", "--layout", layout, "-o", path, "--json"]
        if calibration:
            words += ["--calibration", calibration]
        return path, json.loads(self.call(*words))["estimate"]

    def train(self, path, steps):
        """Records of the steps, ranks as threads."""
        return steps_of(self.call("run", path, "--steps", str(steps), "--json"))


def steps_of(records):
    lines = [json.loads(line) for line in records.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "step"]


def median_step(steps):
    """Seconds, the first step left out."""
    return statistics.median(s["seconds"] for s in steps[1:])
