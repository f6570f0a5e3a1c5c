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
"$root/bin/hearth" man --json | python3 -c 'import json, os, sys
for c in json.load(sys.stdin):
    if not c["hidden"] and " " not in c["name"]:
        assert os.path.exists(sys.argv[1] + "/share/man/man1/hearth-" + c["name"] + ".1"), c["name"]' "$root"
[ -f "$root/share/hearth/proto/hearth/v1/inference.proto" ]
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
gcc "$root/main.c" -o "$root/static" $(pkg-config --define-variable=prefix="$root" --cflags hearth) -L"$(dirname "$library")" \
    $(pkg-config --define-variable=prefix="$root" --static --libs hearth | sed 's/-lhearth/-l:libhearth.a/')
[ "$("$root/static")" = "$(cat VERSION)" ]
# The examples, as a user would build them.
make -s -C examples OUT="$root" CFLAGS="-O2 -Wall -Wextra -Werror" PKG_CONFIG="pkg-config --define-variable=prefix=$root"
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$library")
[ "$("$root/complete" demo "What is the capital of France?" 2>/dev/null)" = "The capital of France is Paris." ]
printf 'The cat sat on the mat.\nA cat sits on a mat.\n12 plus 30 is 42.\n' | "$root/embed_many" | grep -q '^The cat sat on the mat. -> A cat sits on a mat. '
"$root/chat_tools" | grep -q '^It is sunny in Paris, with 21 degrees.$'
# Python finds the library as the linker does, and the demo model beside it.
[ "$(PYTHONPATH=sdk/python python3 -c 'from hearth.local import Model
print(Model().chat("What is 12 plus 30?", temperature=0).text)')" = "12 plus 30 is 42." ]
# The header is C++ as well.
if command -v g++ >/dev/null; then
    cp "$root/main.c" "$root/main.cpp"
    g++ -Wall -Wextra -Wpedantic -Werror -std=c++11 "$root/main.cpp" -o "$root/cpp" $(pkg-config --define-variable=prefix="$root" --cflags --libs hearth)
    [ "$("$root/cpp")" = "$(cat VERSION)" ]
else
    echo "skipped: no g++ for the C++ check"
fi
echo "installed library works, shared and static"
