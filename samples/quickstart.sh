#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a first ranked plan: Llama-3-70B on 512 H100.
set -euo pipefail
cd "$(dirname "$0")/.."
. samples/setup.sh

say "1/3 Install what the build needs"
install_missing $build_packages

say "2/3 Build the program shardplan into build/release/bin"
cmake --preset release -DSHARDPLAN_BUILD_TESTS=OFF
cmake --build --preset release --target shardplan --parallel "$(nproc)"

say "3/3 Plan the training of Llama-3-70B on 512 H100 (64 nodes DGX H100)"
echo "\$ build/release/bin/shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512"
build/release/bin/shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512
