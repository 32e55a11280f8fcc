#!/usr/bin/env python3
"""Trains one model under many layouts on this machine and lays the estimates beside the steps.

    measured_layouts.py SHARDPLAN FOLDER [--repeats 7] [--ranks 1,2,4] [--budget 60]

For each number of ranks the machine is calibrated first (`run --sweep`, `calibrate`), then every
layout is run in turn, and all again, `--repeats` times: what disturbs the machine for a while meets
all layouts alike. A layout's time is the median over the repeats, its spread their interquartile
range. Needs a quiet machine; asserts nothing. Figures by hand, for the notes of a release.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

MODEL = {
    "name": "gpt-s",
    "parts": [{"name": "trunk", "hidden": 256, "runs": [{"kind": 0, "count": 8}],
               "norm_kind": "layernorm", "norm_bias": True}],
    "block_kinds": [{"name": "dense",
                     "attention": {"kind": "mha", "heads": 8, "kv_heads": 8, "qk_head_dim": 32,
                                   "v_head_dim": 32, "qkv_bias": True, "out_bias": True},
                     "ffn": {"width": 1024, "bias": True, "activation": "gelu"},
                     "norms": {"kind": "layernorm", "bias": True}}],
    "embedding": {"vocab": 4096, "position_rows": 256, "positions": "learned", "tied": True},
    "max_positions": 256,
}
JOB = {"name": "fp32", "precision": {"compute": "fp32", "master": "fp32"},
       "global_batch": {"sequences": 8}}

LAYOUTS = {
    1: ["mb1", "mb2", "mb4", "mb8", "mb2,rc=full", "mb2,rc=selective", "mb2,rc=full:4"],
    2: ["dp2,mb1", "dp2,mb4", "dp2,mb1,zero1", "dp2,mb2,zero1", "dp2,mb1,zero2", "dp2,mb2,zero3",
        "dp2,mb4,zero3,rc=full", "tp2,mb1", "tp2,mb4", "tp2,sp,mb2", "tp2,sp,mb8",
        "pp2,mb1", "pp2,mb2", "pp2,mb1,sched=gpipe", "pp2,v2,mb1", "pp2,mb1,sched=zb-h1",
        "pp2,v2,mb1,sched=zb-v", "cp2,mb1", "cp2:a2a,mb2", "cp2:allgather,mb2"],
    4: ["dp4,mb1", "dp4,mb2,zero1", "dp4,mb1,zero2", "dp4,mb2,zero3", "dp4,mb1,zero3:2",
        "tp4,mb2", "tp4,sp,mb4", "tp2,dp2,mb1", "tp2,sp,dp2,mb2,zero1", "tp2,pp2,mb1",
        "pp4,mb1", "pp4,v2,mb1", "pp4,mb1,sched=zb-h1", "pp2,dp2,mb1,zero1", "pp2,v2,dp2,mb1",
        "cp2,dp2,mb1", "cp2,tp2,mb2", "cp4,mb2", "pp2,tp2,sp,mb2"],
}


class Bench:
    def __init__(self, shardplan, folder):
        self.shardplan = shardplan
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
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

    def plan(self, ranks, layout, calibration=None):
        """Writes the plan; its predicted step time in seconds."""
        words = ["estimate", "-m", self.path("model.json"), "-j", self.path("job.json"),
                 "-c", "local-cpu", "-g", str(ranks), "-s", "shardplan-cpu", "--layout", layout,
                 "-o", self.plan_path(ranks, layout), "--json"]
        if calibration:
            words += ["--calibration", calibration]
        told = json.loads(self.call(*words))
        return told["estimate"]["step_time_s"]["value"]

    def plan_path(self, ranks, layout):
        return self.path(f"{ranks}-{layout.replace(',', '-').replace(':', '.')}.shardplan.json")

    def calibrate(self, ranks, budget):
        self.plan(ranks, LAYOUTS[ranks][0])
        sweep, fitted = self.path(f"sweep-{ranks}.jsonl"), self.path(f"calibration-{ranks}.json")
        self.call("run", self.plan_path(ranks, LAYOUTS[ranks][0]), "--sweep", sweep,
                  "--budget", str(budget))
        self.call("calibrate", sweep, "-c", "local-cpu", "-g", str(ranks), "-o", fitted)
        return fitted

    def step(self, ranks, layout):
        """Median seconds of a step, the first left out."""
        told = self.call("run", self.plan_path(ranks, layout), "--steps", "4", "--json")
        steps = [json.loads(line) for line in told.splitlines()]
        return statistics.median(s["seconds"] for s in steps if s["event"] == "step" and s["step"] > 1)


def quartile_spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shardplan")
    parser.add_argument("folder")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--budget", type=int, default=60)
    args = parser.parse_args()
    bench = Bench(args.shardplan, args.folder)
    cases = []
    for ranks in [int(n) for n in args.ranks.split(",")]:
        calibration = bench.calibrate(ranks, args.budget)
        for layout in LAYOUTS[ranks]:
            cases.append((ranks, layout, bench.plan(ranks, layout, calibration)))
    seconds = {case[:2]: [] for case in cases}
    for _ in range(args.repeats):
        for ranks, layout, _ in cases:
            seconds[ranks, layout].append(bench.step(ranks, layout))

    errors, steady, lost = [], [], []
    print(f"{'ranks':>5}  {'layout':<28} {'predicted':>9}  {'measured':>9}  {'error':>7}  spread")
    for ranks, layout, predicted in cases:
        measured = statistics.median(seconds[ranks, layout])
        spread = quartile_spread(seconds[ranks, layout])
        error = predicted / measured - 1.0
        errors.append(abs(error))
        if spread < 0.05:
            steady.append((ranks, layout, predicted, measured))
        print(f"{ranks:>5}  {layout:<28} {predicted:9.3f}  {measured:9.3f}  {error:+7.1%}  {spread:6.1%}")
    for ranks in LAYOUTS:
        mine = [s for s in steady if s[0] == ranks]
        if mine:
            chosen, best = min(mine, key=lambda s: s[2]), min(mine, key=lambda s: s[3])
            lost.append(f"{ranks} ranks: {chosen[1]} is {chosen[3] / best[3] - 1.0:.1%} slower than {best[1]}")
    errors.sort()
    print(f"\n{len(errors)} layouts, median error {statistics.median(errors):.1%}, "
          f"p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}; {len(steady)} with a spread below 5 %")
    print("predicted best against measured best, of these: " + "; ".join(lost))


if __name__ == "__main__":
    main()
