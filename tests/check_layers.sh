#!/usr/bin/env bash
# Reads the #include lines of src/ and fails when a file includes a header of a room that is not strictly lower than its
# own (its own room is allowed). The numbers are the house plan of ARCHITECTURE.md. A model file may include nn/nn.h only.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' src --include='*.c' --include='*.h' --include='*.cu' | awk -F: '
BEGIN {
    split("base 0 tensor 1 params 1 pixels 1 sound 1 formats 2 media 2 kernels 2 tokenizer 2 template 2 config 2 grammar 3 registry 3 nn 3 bundle 3 backend 4 models 4 " \
          "kv 4 sampling 4 chat 4 convert 5 tools 5 engine 5 vision 5 runtime 6 host 7 api 7 server 8 cli 9", pairs, " ")
    for (i = 1; i in pairs; i += 2) level[pairs[i]] = pairs[i + 1]
}
{
    file = $1; line = $2; text = $0
    sub(/^[^:]*:[^:]*:/, "", text)
    match(text, /"[^"]*"/)
    header = substr(text, RSTART + 1, RLENGTH - 2)
    split(file, parts, "/"); room = parts[2]
    n = split(header, target, "/")
    seen++
    if (header == "hearth.h") { if (room != "api" && room != "cli") { print file ":" line ": only api and cli include the public header"; bad++ } next }
    if (n < 2) { print file ":" line ": write \"room/file.h\", not \"" header "\""; bad++; next }
    to = target[1]
    if (!(room in level)) { print file ": no room \"" room "\" in the plan"; bad++; next }
    if (!(to in level)) { print file ":" line ": no room \"" to "\" in the plan"; bad++; next }
    if (room == "models" && file ~ /\.c$/ && header != "nn/nn.h" && file !~ /\/list\.c$/) { print file ":" line ": a model file includes nn/nn.h and nothing else of ours"; bad++ }
    if (to != room && level[to] >= level[room]) { print file ":" line ": " room " (" level[room] ") includes " to " (" level[to] ")"; bad++ }
}
END {
    if (seen < 10) { print "only " seen + 0 " includes found: is this the source tree?"; exit 1 }
    print seen " includes, " bad + 0 " violations"
    exit bad > 0
}'
