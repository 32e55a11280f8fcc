#!/usr/bin/env python3
"""Trains on four hosts with shaped links, and lays what was measured beside the estimates.

    four_hosts.py SHARDPLAN [--rate 1gbit] [--repeats 1] [--layouts N] [--budget 20]

Asserted: every run succeeds with the losses of the same ranks as threads, and what leaves each host
is what the estimate says the layout sends. Printed, for a machine that is quiet: step times beside
those of the described topology, calibrated by a sweep over the same links. Exit code 77: the
machine does not allow it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from shaped_hosts import ShapedHosts, missing

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "four_hosts.cluster.json")
HOSTS = 4
STEPS = 4
LAYOUTS = [
    "dp4,mb1", "dp4,mb1,zero1", "dp4,mb1,zero3", "pp4,mb1", "tp2,dp2,mb1", "pp2,dp2,mb1,zero1",
    "dp4,mb1,zero2", "dp4,mb1,zero3:2", "tp4,sp,mb2", "pp2,v2,dp2,mb1", "pp4,mb1,sched=zb-h1",
    "cp2,dp2,mb1", "tp2,pp2,mb2", "cp4,mb2",
]
MODEL = {
    "name": "gpt-4-hosts",
    "parts": [{"name": "trunk", "hidden": 128, "runs": [{"kind": 0, "count": 4}],
               "norm_kind": "layernorm", "norm_bias": True}],
    "block_kinds": [{"name": "dense",
                     "attention": {"kind": "mha", "heads": 4, "kv_heads": 4, "qk_head_dim": 32,
                                   "v_head_dim": 32, "qkv_bias": True, "out_bias": True},
                     "ffn": {"width": 512, "bias": True, "activation": "gelu"},
                     "norms": {"kind": "layernorm", "bias": True}}],
    "embedding": {"vocab": 2048, "position_rows": 128, "positions": "learned", "tied": False},
    "max_positions": 128,
}
JOB = {"name": "fp32", "precision": {"compute": "fp32", "master": "fp32"},
       "global_batch": {"sequences": 8}}
# Ethernet, IP and TCP headers and acknowledgements; what Open MPI says as it starts and ends.
MOST_OVERHEAD = 0.12
# The unit that ends a forward pass is still there when the backward pass begins.
MOST_SAVED = 0.12
STARTING_BYTES = 600_000


class Trial:
    def __init__(self, shardplan, folder):
        self.shardplan = shardplan
        self.runner = os.path.join(os.path.dirname(shardplan), "shardplan-run-cpu")
        self.folder = folder
        for name, what in (("model.json", MODEL), ("job.json", JOB)):
            with open(self.path(name), "w", encoding="utf-8") as out:
                json.dump(what, out)

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *words):
        done = subprocess.run([self.shardplan, *words], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(words)}\n{done.stderr}{done.stdout[-600:]}")
        return done.stdout

    def plan(self, layout, calibration=None):
        """Path of the plan, and its estimate."""
        path = self.path(layout.replace(",", "-").replace(":", ".") + ".shardplan.json")
        words = ["estimate", "-m", self.path("model.json"), "-j", self.path("job.json"),
                 "-c", CLUSTER, "-s", "shardplan-cpu", "--layout", layout, "-o", path, "--json"]
        if calibration:
            words += ["--calibration", calibration]
        return path, json.loads(self.call(*words))["estimate"]

    def train(self, hosts, path):
        done = hosts.mpirun([self.runner, path, "--steps", str(STEPS), "--threads", "1"])
        if done.returncode != 0:
            sys.exit(f"{path}: exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        return steps_of(done.stdout)

    def train_on_threads(self, path):
        return steps_of(self.call("run", path, "--steps", str(STEPS), "--json"))


def steps_of(records):
    lines = [json.loads(line) for line in records.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "step"]


def same_losses(a, b):
    return all(abs(x["loss"] - y["loss"]) <= 1e-5 * abs(y["loss"]) for x, y in zip(a, b))


def calibrated(trial, hosts, budget):
    path, _ = trial.plan(LAYOUTS[0])
    sweep, fitted = trial.path("sweep.jsonl"), trial.path("calibration.json")
    done = hosts.mpirun([trial.runner, path, "--sweep", sweep, "--budget", str(budget),
                         "--threads", "1"])
    if done.returncode != 0:
        sys.exit(f"sweep: exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
    trial.call("calibrate", sweep, "-c", CLUSTER, "-g", str(HOSTS), "-o", fitted)
    return fitted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shardplan")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--layouts", type=int, default=len(LAYOUTS))
    parser.add_argument("--budget", type=int, default=20)
    args = parser.parse_args()
    why = missing()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, ShapedHosts(HOSTS, args.rate) as hosts:
        trial = Trial(args.shardplan, folder)
        calibration = calibrated(trial, hosts, args.budget)
        seconds = {layout: [] for layout in LAYOUTS[:args.layouts]}
        predicted = {}
        for repeat in range(args.repeats):
            for layout in seconds:
                path, estimate = trial.plan(layout, calibration)
                predicted[layout] = estimate["step_time_s"]["value"]
                before = hosts.sent_bytes()
                steps = trial.train(hosts, path)
                sent = max(b - a for a, b in zip(before, hosts.sent_bytes()))
                planned = STEPS * sum(link["bytes_per_step"] for link in estimate["links"])
                if not planned * (1.0 - MOST_SAVED) <= sent <= planned * (1.0 + MOST_OVERHEAD) + STARTING_BYTES:
                    sys.exit(f"{layout}: {planned} bytes are planned, {sent} left the busiest host")
                if repeat == 0 and not same_losses(steps, trial.train_on_threads(path)):
                    sys.exit(f"{layout}: other losses than ranks as threads have")
                seconds[layout].append(statistics.median(s["seconds"] for s in steps[1:]))
        errors = []
        print(f"{'layout':<24} {'predicted':>9}  {'measured':>8}  {'error':>7}")
        for layout, times in seconds.items():
            measured = statistics.median(times)
            error = predicted[layout] / measured - 1.0
            errors.append(abs(error))
            print(f"{layout:<24} {predicted[layout]:9.4f}  {measured:8.4f}  {error:+7.1%}")
        print(f"{len(errors)} layouts on {HOSTS} hosts of {args.rate}, "
              f"median error {statistics.median(errors):.1%}")


if __name__ == "__main__":
    main()
