#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a first ranked plan, Llama-3-70B on 512 H100, and to a
# first run: this machine is measured (half a minute), a tiny GPT trained on it, and what was predicted
# shown beside what was measured.
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

say "4/4 Measure this machine, train a tiny GPT on it with two threads as ranks, and compare"
shardplan=build/release/bin/shardplan
plan=build/release/tiny.shardplan.json
sweep=build/release/machine.jsonl
calibration=build/release/machine.json
measurement=build/release/tiny.measurement.json
estimate="$shardplan estimate --model samples/run/tiny-gpt.json --cluster local-cpu --gpus 2 --stack shardplan-cpu
    --precision fp32 --sequence 64 --global-batch 16 --layout dp2,mb4,zero1 -o $plan"
$estimate >/dev/null
shown() {
    echo "\$ $*"
    "$@"
}
shown $shardplan run $plan --sweep $sweep --budget 30
echo "\$ $shardplan calibrate $sweep --cluster local-cpu --gpus 2 -o $calibration"
# a machine too slow or too busy to be measured in this time says so; the plan keeps its assumed rates
if $shardplan calibrate $sweep --cluster local-cpu --gpus 2 -o $calibration >/dev/null; then
    $estimate --calibration $calibration >/dev/null
fi
shown $shardplan run $plan --data LICENSE --steps 100 --measure $measurement
shown $shardplan validate --measurement $measurement
