#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a first ranked plan, Llama-3-70B on 512 H100, and to a
# first run: a tiny GPT on this machine, with what was predicted beside what was measured.
set -euo pipefail
cd "$(dirname "$0")/.."
. samples/setup.sh

say "1/4 Install what the build needs"
install_missing $build_packages $executor_packages

say "2/4 Build the programs into build/release/bin"
cmake --preset release -DSHARDPLAN_BUILD_TESTS=OFF
cmake --build --preset release --target shardplan shardplan-run-cpu-levels --parallel "$(nproc)"

say "3/4 Plan the training of Llama-3-70B on 512 H100 (64 nodes DGX H100)"
echo "\$ build/release/bin/shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512"
build/release/bin/shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512

say "4/4 Train a tiny GPT on this machine, with two threads as ranks, and compare"
plan=build/release/tiny.shardplan.json
measurement=build/release/tiny.measurement.json
build/release/bin/shardplan estimate --model samples/run/tiny-gpt.json --cluster local-cpu --gpus 2 --stack shardplan-cpu \
    --precision fp32 --sequence 64 --global-batch 16 --layout dp2,mb4,zero1 -o $plan >/dev/null
echo "\$ build/release/bin/shardplan run $plan --data LICENSE --steps 100 --measure $measurement"
build/release/bin/shardplan run $plan --data LICENSE --steps 100 --measure $measurement
echo "\$ build/release/bin/shardplan validate --measurement $measurement"
build/release/bin/shardplan validate --measurement $measurement
