#!/usr/bin/env bash
# Facts at random depths of texts of up to 4,096 tokens, asked of the demo model with f16 pages and with others beside it:
#   tools/demo-model/needle.sh [COUNT [OPTIONS OF hearth serve]]     (520 texts, of which about 500 fit; q8_0 keys, tq4 values)
# The program is $HEARTH, or build/hearth. $PART, such as 3/8, asks a part of the questions only: a process per part and core, and the
# sum of what they print.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
hearth=${HEARTH:-$root/build/hearth} count=${1:-520}
shift || true
[ $# -gt 0 ] || set -- --kv-k q8_0 --kv-v tq4 --kv-precise 0
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
serve() { # NAME OPTIONS
    local name=$1
    shift
    "$hearth" serve --no-config --port 0 --no-socket --ready-json --log-level warn --model "demo=$root/models/demo/demo.gguf" "$@" >"$work/$name" &
    pids+=($!)
    until grep -qs '}' "$work/$name"; do sleep 0.1; done
    port=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["port"])' "$work/$name")
}
serve f16 --kv f16
first=$port
serve other "$@"
python3 "$root/tools/demo-model/evaluate.py" --skills needle --count "$count" --part "${PART:-1/1}" --url "http://127.0.0.1:$first" --beside "http://127.0.0.1:$port"
