#!/usr/bin/env bash
# The tests with the label "threads" (tests/CMakeLists.txt) under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=$PWD/build/src/libh_kernels.a # of the release build, if there is one; else sanitized and slow
[ -f "$kernels" ] || kernels=
cmake --preset tsan "-DHEARTH_FAST_KERNELS=$kernels"
cmake --build --preset tsan --target thread_tests --target hearth
ctest --test-dir build-tsan -j3 -L threads --output-on-failure
