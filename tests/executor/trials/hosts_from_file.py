#!/usr/bin/env python3
"""`shardplan run --hostfile` starts its ranks on the hosts of the file.

    hosts_from_file.py SHARDPLAN

Two hosts of their own, two ranks on each. What Open MPI has to know of the network it gets as an
administrator would set it, from the environment. Exit code 77: the machine does not allow it.
"""

import json
import os
import sys
import tempfile

from shaped_hosts import ShapedHosts, missing
from trial import Trial, gpt, steps_of

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = ["-c", os.path.join(HERE, "four_hosts.cluster.json")]
HOSTS = 2
RANKS = 2  # on each
STEPS = 3


def main():
    why = missing()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    shardplan = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, ShapedHosts(HOSTS, "1gbit") as hosts:
        trial = Trial(shardplan, folder, gpt("gpt-hosts", 4, 64, 4, 512, 64, False), 8)
        path, _ = trial.plan(CLUSTER, "tp2,dp2,mb1,zero1")
        measured = trial.path("measured.json")
        before = hosts.sent_bytes()
        done = hosts.on_first_host(
            [shardplan, "run", path, "--backend", "mpi", "--hostfile",
             hosts.hostfile(HOSTS, RANKS), "--steps", str(STEPS), "--threads", "1", "--json",
             "--measure", measured],
            **{"OMPI_MCA_" + name: value for name, value in hosts.settings().items()})
        if done.returncode != 0:
            sys.exit(f"exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-1600:]}")
        steps = steps_of(done.stdout)
        if [s["step"] for s in steps] != list(range(1, STEPS + 1)):
            sys.exit(f"{len(steps)} steps are told, not {STEPS}\n{done.stdout}")
        with open(measured, encoding="utf-8") as text:
            where = [rank["host"] for rank in json.load(text)["per_rank"]]
        wanted = [hosts.space(i) for i in range(HOSTS) for _ in range(RANKS)]
        if where != wanted:
            sys.exit(f"ranks ran on {where}, not on {wanted}")
        if any(b <= a for a, b in zip(before, hosts.sent_bytes())):
            sys.exit("a host has sent nothing")
        threads = trial.train(path, STEPS)
        for a, b in zip(steps, threads):
            if abs(a["loss"] - b["loss"]) > 1e-5 * b["loss"]:
                sys.exit(f"step {a['step']}: loss {a['loss']}, of ranks as threads {b['loss']}")
        print(f"{HOSTS * RANKS} ranks on {HOSTS} hosts, {len(steps)} steps with the losses of threads")


if __name__ == "__main__":
    main()
