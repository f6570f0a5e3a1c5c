#!/usr/bin/env bash
# The tests of threaded code under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
tests='test_pool test_queue test_kv_tiers test_cache_disk test_engine_requests soak_engine test_runtime test_api'
cmake --preset tsan
# shellcheck disable=SC2086
cmake --build --preset tsan $(printf -- '--target %s ' $tests)
ctest --test-dir build-tsan -j2 -R "^(${tests// /|})$" --output-on-failure
