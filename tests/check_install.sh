#!/usr/bin/env bash
# `make install` into a fresh directory; then a program is built against the installed library through pkg-config, and
# the shared object exports hearth_* and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cmake --install build --prefix "$root" >/dev/null
"$root/bin/hearth" version
[ "$("$root/bin/hearth" run --temp 0 demo "What is 12 plus 30?")" = "12 plus 30 is 42." ]
library=$(find "$root" -name 'libhearth.so' | head -n 1)
[ -n "$library" ]
foreign=$(nm -D --defined-only "$library" | awk '$3 !~ /^hearth_/ { print $3 }')
[ -z "$foreign" ] || { echo "exported but not hearth_*: $foreign"; exit 1; }
cat >"$root/main.c" <<'C'
#include <hearth.h>
#include <stdio.h>
int main(void) { return puts(hearth_version()) < 0; }
C
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name hearth.pc)")
# The file names the prefix it was configured for; this copy lies elsewhere.
gcc "$root/main.c" -o "$root/shared" $(pkg-config --define-variable=prefix="$root" --cflags --libs hearth)
[ "$(LD_LIBRARY_PATH=$(dirname "$library") "$root/shared")" = "$(cat VERSION)" ]
gcc "$root/main.c" -o "$root/static" $(pkg-config --define-variable=prefix="$root" --cflags hearth) "$(dirname "$library")/libhearth.a" $(pkg-config --static --libs-only-l libpcre2-8 libutf8proc) -lm -lpthread
[ "$("$root/static")" = "$(cat VERSION)" ]
echo "installed library works, shared and static"
