#!/usr/bin/env bash
# Every header compiles alone: whoever includes it needs nothing else before it.
set -euo pipefail
cd "$(dirname "$0")/.."
# One header, in a shell of its own: two at a time.
alone() {
    local header=$1 flags=
    case $header in
        */avx2/*) flags="-mavx2 -mfma -mf16c -mbmi2" ;;
        */avx512/*) flags="-mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni" ;;
    esac
    echo "#include \"$PWD/$header\"" | gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror $flags -Isrc -Iinclude -fsyntax-only -x c - && return
    echo "$header does not stand alone"
    return 1
}
export -f alone
# Kernels written once over a vector vocabulary: a file of one instruction set includes its vocabulary first. NEON's need the cross
# compiler, and are built by the neon test.
headers=$(git ls-files 'src/*.h' 'include/*.h' | grep -vE '^src/kernels/cpu/(vec|impl)/|_impl[.]h$|/neon/')
xargs -P2 -n1 bash -c 'alone "$0"' <<<"$headers"
echo "$(wc -l <<<"$headers") headers"
