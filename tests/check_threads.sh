#!/usr/bin/env bash
# The tests of threaded code under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
tests='test_pool test_queue test_grammar_threads test_kv_tiers test_cache_disk test_engine_requests soak_engine'
more='test_runtime test_api test_constraints test_host test_host_faults test_server_requests'
cmake --preset tsan
# shellcheck disable=SC2086
cmake --build --preset tsan $(printf -- '--target %s ' $tests $more)
ctest --test-dir build-tsan -j2 -R "^(${tests// /|})$" --output-on-failure
# Of these only the tests with something between threads; all of them would take minutes.
HEARTH_TEST_FILTER='test_c*' build-tsan/tests/test_runtime
HEARTH_TEST_FILTER='test_c*' build-tsan/tests/test_api
HEARTH_TEST_FILTER='test_ch*' build-tsan/tests/test_constraints
HEARTH_PROGRAM=build-tsan/hearth HEARTH_TEST_FILTER='test_c*' build-tsan/tests/test_host
HEARTH_PROGRAM=build-tsan/hearth HEARTH_TEST_FILTER='test_c*' build-tsan/tests/test_host_faults
HEARTH_PROGRAM=build-tsan/hearth build-tsan/tests/test_server_requests
