#!/usr/bin/env python3
"""Trains on four hosts with shaped links, and lays what was measured beside the estimates.

    four_hosts.py SHARDPLAN [--rate 1gbit] [--repeats 1] [--layouts N] [--budget 20]

Asserted: every run succeeds with the losses of the same ranks as threads, and what leaves each host
is what the estimate says the layout sends. Printed, for a machine that is quiet: step times beside
those of the described topology, calibrated by a sweep over the same links. Exit code 77: the
machine does not allow it.
"""

import argparse
import os
import statistics
import sys
import tempfile

from shaped_hosts import ShapedHosts, missing
from trial import Trial, gpt, median_step, steps_of

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = ["-c", os.path.join(HERE, "four_hosts.cluster.json")]
HOSTS = 4
STEPS = 4
LAYOUTS = [
    "dp4,mb1", "dp4,mb1,zero1", "dp4,mb1,zero3", "pp4,mb1", "tp2,dp2,mb1", "pp2,dp2,mb1,zero1",
    "dp4,mb1,zero2", "dp4,mb1,zero3:2", "tp4,sp,mb2", "pp2,v2,dp2,mb1", "pp4,mb1,sched=zb-h1",
    "cp2,dp2,mb1", "tp2,pp2,mb2", "cp4,mb2",
]
# First and last stage add up the table between them, in layouts with a pipeline.
TIED = True
# Ethernet, IP and TCP headers and acknowledgements; what Open MPI says as it starts and ends.
MOST_OVERHEAD = 0.12
# The unit that ends a forward pass is still there when the backward pass begins.
MOST_SAVED = 0.12
STARTING_BYTES = 600_000


def busiest(links):
    """Bytes that a rank of the busiest stage sends in a step."""
    stages = {}
    for link in links:
        for stage in range(link["first_stage"], link["first_stage"] + link["stages"]):
            stages[stage] = stages.get(stage, 0) + link["bytes_per_step"]
    return max(stages.values())


def train_on_hosts(trial, hosts, path):
    done = hosts.mpirun([trial.runner, path, "--steps", str(STEPS), "--threads", "1"])
    if done.returncode != 0:
        sys.exit(f"{path}: exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return steps_of(done.stdout)


def same_losses(a, b):
    return len(a) == len(b) and all(
        abs(x["loss"] - y["loss"]) <= 1e-5 * abs(y["loss"]) for x, y in zip(a, b))


def calibrated(trial, hosts, budget):
    """Path of a calibration by a sweep; on a slow machine by one of up to four times the seconds."""
    path, _ = trial.plan(CLUSTER, LAYOUTS[0])
    sweep, fitted = trial.path("sweep.jsonl"), trial.path("calibration.json")
    for seconds in (budget, 2 * budget, 4 * budget):
        done = hosts.mpirun([trial.runner, path, "--sweep", sweep, "--budget", str(seconds),
                             "--threads", "1"])
        if done.returncode != 0:
            sys.exit(f"sweep: exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        code, _, errors = trial.try_call("calibrate", sweep, *CLUSTER, "-g", str(HOSTS),
                                         "-o", fitted)
        if code == 0:
            return fitted
        if "measure again with more time" not in errors:
            break
    sys.exit(f"calibrate: exit code {code}\n{errors}")


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
        trial = Trial(args.shardplan, folder, gpt("gpt-hosts", 4, 128, 4, 2048, 128, TIED), 8)
        calibration = calibrated(trial, hosts, args.budget)
        seconds = {layout: [] for layout in LAYOUTS[:args.layouts]}
        predicted = {}
        for repeat in range(args.repeats):
            for layout in seconds:
                path, estimate = trial.plan(CLUSTER, layout, calibration)
                predicted[layout] = estimate["step_time_s"]["value"]
                before = hosts.sent_bytes()
                steps = train_on_hosts(trial, hosts, path)
                sent = max(b - a for a, b in zip(before, hosts.sent_bytes()))
                planned = STEPS * busiest(estimate["links"])
                most = planned * (1.0 + MOST_OVERHEAD) + STARTING_BYTES
                if not planned * (1.0 - MOST_SAVED) <= sent <= most:
                    sys.exit(f"{layout}: {planned} bytes are planned, {sent} left the busiest host")
                if repeat == 0 and not same_losses(steps, trial.train(path, STEPS)):
                    sys.exit(f"{layout}: other losses than ranks as threads have")
                seconds[layout].append(median_step(steps))
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
