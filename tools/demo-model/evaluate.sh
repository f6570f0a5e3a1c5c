#!/usr/bin/env bash
# Scores of the shipped file served by Hearth, then perplexities of its weight types on held-out conversations.
#   tools/demo-model/evaluate.sh [HF_DIR]      (the Hugging Face directory that train.py wrote; the program is build/hearth)
# Without the directory the smaller types are made from the shipped file.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$root/tools/demo-model hearth=$root/build/hearth folder=${1:-}
work=$(mktemp -d)
"$hearth" serve --port 0 --no-socket --ready-json --log-level warn >"$work/ready" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q '}' "$work/ready"; do sleep 0.1; done
port=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["port"])' "$work/ready")
python3 "$tools/evaluate.py" --url "http://127.0.0.1:$port" --stories
kill $server

python3 "$tools/held_out_text.py" >"$work/held-out.jsonl"
cp "$root/models/demo/demo.gguf" "$work/Q8_0.gguf"
types=(Q8_0 Q4_K Q2_K) from=Q8_0
if [ -n "$folder" ]; then
    python3 "$tools/export.py" "$folder" "$work/BF16.gguf" "Hearth demo" bf16 >/dev/null
    types=(BF16 "${types[@]}") from=BF16
fi
for type in Q4_K Q2_K; do "$hearth" quantize "$work/$from.gguf" "$work/$type.gguf" $type; done
for type in "${types[@]}"; do
    for context in 1024 4096; do
        printf '%s %s ' $type $context
        "$hearth" perplexity --documents --ctx $context "$work/$type.gguf" "$work/held-out.jsonl" | head -n 1
    done
done
