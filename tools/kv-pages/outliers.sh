#!/usr/bin/env bash
# What page types lose where keys have outliers: a 1 B Llama shape whose weights are random, in which two channels of each key head are
# 10 to 30 times as large as the others, and text that it wrote itself.
#   tools/kv-pages/outliers.sh [TEXTS [TOKENS]]    (6 texts of 1,024 tokens; minutes on many cores, 4 GB)
# The program is $HEARTH, or build/hearth. With $LLAMA_PERPLEXITY that program measures q8_0 and q4_0 with the same files, too.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
hearth=${HEARTH:-$root/build/hearth} texts=${1:-6} tokens=${2:-1024}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
model=$work/outliers.gguf text=$work/text.txt
# 512 tokens: bytes, and pairs of which no text has any. So what is written is read as the same tokens.
"$hearth" debug random-model --kv-heads 8 --vocab 512 --outliers 30 --type F16 "$model"
"$hearth" serve --no-config --port 0 --no-socket --ready-json --log-level warn --parallel "$texts" --model "m=$model" >"$work/ready" &
server=$!
until grep -qs '}' "$work/ready"; do
    kill -0 "$server"
    sleep 0.1
done
python3 - "$work/ready" "$texts" "$tokens" >"$text" <<'PY'
import concurrent.futures, json, sys, urllib.request
port, texts, tokens = json.load(open(sys.argv[1]))["port"], int(sys.argv[2]), int(sys.argv[3])
def write(i):
    prompt = "%02d. " % (i % 100)
    body = {"model": "m", "prompt": prompt, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "seed": i, "ignore_eos": True,
            "max_tokens": tokens - len(prompt), "grammar": "root ::= [ -~]*"}
    request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return prompt + json.load(answer)["choices"][0]["text"]
with concurrent.futures.ThreadPoolExecutor(texts) as several:
    sys.stdout.write("".join(several.map(write, range(texts))))
PY
kill "$server"
server=
for types in f16,f16 q8_0,q8_0 q8_0,tq4 q5_0,q5_0 q4_0,q4_0 tq4,tq4 tq3,tq3; do
    echo "keys ${types%,*}, values ${types#*,}"
    "$hearth" perplexity "$model" "$text" --ctx "$tokens" --kv-k "${types%,*}" --kv-v "${types#*,}" --kv-precise 0
done
if [ -n "${LLAMA_PERPLEXITY:-}" ]; then
    peer() { "$LLAMA_PERPLEXITY" -m "$model" -f "$text" -c "$tokens" -b "$tokens" -fa on --no-repack --kl-divergence-base "$work/base" "$@" 2>&1; }
    peer -ctk f16 -ctv f16 | grep 'Final'
    for type in q8_0 q4_0; do
        echo "llama.cpp $type"
        peer -ctk $type -ctv $type --kl-divergence | grep -E 'Mean PPL|Mean    KLD|Same top'
    done
fi
