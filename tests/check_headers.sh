#!/usr/bin/env bash
# Every header compiles alone: whoever includes it needs nothing else before it.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0 n=0
for header in $(git ls-files 'src/*.h' 'include/*.h'); do
    case $header in
        # Kernels written once over a vector vocabulary: a file of one instruction set includes its vocabulary first.
        src/kernels/cpu/vec/* | src/kernels/cpu/impl/* | *_impl.h) continue ;;
        */avx2/*) flags="-mavx2 -mfma -mf16c -mbmi2" ;;
        */avx512/*) flags="-mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni" ;;
        */neon/*) continue ;; # needs the cross compiler; built by the neon test
        *) flags= ;;
    esac
    n=$((n + 1))
    if ! echo "#include \"$PWD/$header\"" | gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror $flags -Isrc -Iinclude -fsyntax-only -x c -; then
        echo "$header does not stand alone"
        bad=1
    fi
done
echo "$n headers"
exit $bad
