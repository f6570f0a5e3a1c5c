#!/usr/bin/env bash
# Scores of the shipped file served by Hearth, then perplexities of its weight types on held-out conversations.
#   tools/demo-model/evaluate.sh HF_DIR      (the Hugging Face directory that train.py wrote; the program is build/hearth)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$root/tools/demo-model hearth=$root/build/hearth folder=$1
work=$(mktemp -d)
"$hearth" serve --port 0 --no-socket --ready-json --log-level warn >"$work/ready" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q '}' "$work/ready"; do sleep 0.1; done
port=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["port"])' "$work/ready")
python3 "$tools/evaluate.py" --url "http://127.0.0.1:$port" --stories
kill $server

python3 "$tools/held_out_text.py" >"$work/held-out.jsonl"
python3 "$tools/export.py" "$folder" "$work/BF16.gguf" "Hearth demo" bf16 >/dev/null
cp "$root/models/demo/demo.gguf" "$work/Q8_0.gguf"
for type in Q4_K Q2_K; do "$hearth" quantize "$work/BF16.gguf" "$work/$type.gguf" $type; done
for type in BF16 Q8_0 Q4_K Q2_K; do
    printf '%s ' $type
    "$hearth" perplexity --documents --ctx 1024 "$work/$type.gguf" "$work/held-out.jsonl" | head -n 1
done
