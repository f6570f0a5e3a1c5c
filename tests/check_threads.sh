#!/usr/bin/env bash
# The tests of threaded code under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset tsan
cmake --build --preset tsan --target test_pool --target test_queue --target test_runtime --target test_api
ctest --test-dir build-tsan -R '^(test_pool|test_queue|test_runtime|test_api)$' --output-on-failure
