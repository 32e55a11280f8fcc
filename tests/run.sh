#!/usr/bin/env bash
# Installs what is missing, builds the preset dev, and runs every test, fast and slow.
set -euo pipefail
cd "$(dirname "$0")/.."
. samples/setup.sh

say "Install what the build and the tests need"
install_missing $build_packages $executor_packages $test_packages

say "Build (preset dev, into build/dev)"
cmake --preset dev
cmake --build --preset dev --parallel "$(nproc)"

say "Run all tests"
ctest --test-dir build/dev --output-on-failure -j2
