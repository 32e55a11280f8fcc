#!/usr/bin/env python3
"""Trains one model under many layouts on this machine and lays the estimates beside the steps.

    measured_layouts.py SHARDPLAN FOLDER [--repeats 7] [--ranks 1,2,4] [--budget 60]

For each number of ranks the machine is calibrated first (`run --sweep`, `calibrate`), then every
layout of as many is run in turn, and all again, `--repeats` times: what disturbs the machine for a
while meets all of them alike. A layout's time is the median over the repeats, its spread their interquartile
range. Needs a quiet machine; asserts nothing. Figures by hand, for the notes of a release.
"""

import argparse
import statistics

from trial import Trial, gpt, median_step

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


def machine(ranks):
    return ["-c", "local-cpu", "-g", str(ranks)]


def calibrated(trial, ranks, budget):
    """Path of a calibration for as many ranks."""
    path, _ = trial.plan(machine(ranks), LAYOUTS[ranks][0])
    sweep, fitted = trial.path(f"sweep-{ranks}.jsonl"), trial.path(f"calibration-{ranks}.json")
    trial.call("run", path, "--sweep", sweep, "--budget", str(budget))
    trial.call("calibrate", sweep, *machine(ranks), "-o", fitted)
    return fitted


def quartile_spread(values):
    if len(values) < 2:
        return 0.0
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
    trial = Trial(args.shardplan, args.folder, gpt("gpt-s", 8, 256, 8, 4096, 256, True), 8)
    cases, seconds = [], {}
    for ranks in [int(n) for n in args.ranks.split(",")]:
        calibration = calibrated(trial, ranks, args.budget)
        paths = {}
        for layout in LAYOUTS[ranks]:
            paths[layout], estimate = trial.plan(machine(ranks), layout, calibration)
            cases.append((ranks, layout, estimate["step_time_s"]["value"]))
        for _ in range(args.repeats):
            for layout, path in paths.items():
                seconds.setdefault((ranks, layout), []).append(median_step(trial.train(path, 4)))

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
