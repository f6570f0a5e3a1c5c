# SPDX-License-Identifier: Apache-2.0
"""A tool server of the Model Context Protocol on stdin and stdout, with one tool that keeps a note."""
import json
import sys

TOOL = {"name": "keep_note", "description": "Keep a note", "inputSchema": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            f.write(params["arguments"]["text"])
        return {"content": [{"type": "text", "text": "kept"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["method"], message.get("params") or {})}), flush=True)
