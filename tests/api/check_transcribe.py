# SPDX-License-Identifier: Apache-2.0
"""Sounds become words (/v1/audio/transcriptions): the form that OpenAI's clients send and the same as JSON say the same, whole and streamed;
the prompt is the one that a model was taught; what cannot be read or done is refused by name."""
import base64
import json
import sys
import tempfile

from hearth_server import Checks, Server
from vision_model import make, sound

PROGRAM = sys.argv[1]
PATH = "/v1/audio/transcriptions"
A, B = sound("a"), sound("b")
LINE = "----edge9QxZ"
# <bos>[INST][BEGIN_AUDIO], five rows, [/INST][TRANSCRIBE] in single letters
VOXTRAL = 1 + 6 + 1 + 5 + 7 + 12
# The system's and the user's turn, seven rows between two words, the assistant's; a line break is a letter
QWEN3 = len("system\n\nuser\n\nassistant\n") + 5 + 7 + 2


def form(fields, line=LINE, end=None):
    out = b""
    for name, value in fields:
        head = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, bytes):
            head += f'; filename="sound.wav"\r\nContent-Type: audio/wav'
        out += f"--{line}\r\n{head}\r\n\r\n".encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return out + (end if end is not None else f"--{line}--\r\n".encode())


def send(server, fields, model="voxtral", content_type=f"multipart/form-data; boundary={LINE}", body=None):
    body = body if body is not None else form([("model", model), *fields])
    status, headers, answer = server.request("POST", PATH, body, headers={"Content-Type": content_type})
    return status, answer if headers["content-type"].startswith("text/") else json.loads(answer)


def forms_and_json(server):
    status, want = send(server, [("file", A), ("max_tokens", "8")])
    assert status == 200 and set(want) == {"text", "usage"}, want
    assert want["usage"]["input_tokens"] == VOXTRAL and want["usage"]["output_tokens"] == 8, want
    plain = {"model": "voxtral", "file": base64.b64encode(A).decode(), "max_tokens": 8}
    assert server.post(PATH, plain) == (200, want)
    # In another order, with a boundary in quotes; numbers and flags are texts in forms.
    body = form([("temperature", "0.0"), ("file", A), ("stream", "false"), ("model", "voxtral"), ("max_tokens", "8")], line="a b")
    assert send(server, [], body=body, content_type='multipart/form-data; charset=utf-8; boundary="a b"') == (200, want)
    assert send(server, [("file", A), ("max_tokens", "8"), ("response_format", "text")]) == (200, (want["text"] + "\n").encode())
    assert send(server, [("file", B), ("max_tokens", "8")])[1]["text"] != want["text"]


def streams(server):
    want = send(server, [("file", A), ("max_tokens", "8")])[1]
    body = {"model": "voxtral", "file": base64.b64encode(A).decode(), "max_tokens": 8, "stream": True}
    events = [json.loads(e.removeprefix("data: ")) for e in server.stream(PATH, body)]
    assert [e["type"] for e in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1), events
    assert "".join(e["delta"] for e in events[:-1]) == want["text"], (events, want)
    assert events[-1] == {"type": "transcript.text.done", **want}, events


def languages(server):
    """What the prompts have more with a language and a text that helps."""
    ask = lambda *more, model="voxtral": send(server, [("file", A), ("max_tokens", "1"), *more], model=model)
    tokens = lambda *more, **k: ask(*more, **k)[1]["usage"]["input_tokens"]
    assert tokens(("language", "en")) == VOXTRAL + len("lang:en")
    asr = tokens(model="qwen3_asr")
    assert asr == QWEN3, asr
    assert tokens(("language", "de"), model="qwen3_asr") == asr + len("language German") + 1
    assert tokens(("prompt", "Hearth"), model="qwen3_asr") == asr + len("Hearth")
    status, got = ask(("language", "xx"), model="qwen3_asr")
    assert status == 400 and "xx" in got["error"]["message"], got
    status, got = ask(("language", "English"))
    assert status == 400 and got["error"]["param"] == "language", got


def refused(server):
    ok = [("file", A), ("model", "voxtral")]
    kind = f"multipart/form-data; boundary={LINE}"
    whole = form(ok)
    cases = [(kind, form([("model", "voxtral")]), "file"), (kind, form([("file", A), ("model", "nobody")]), "nobody"),
             (kind, form(ok + [("model", "voxtral")]), "two parts of the name model"), (kind, form(ok + [("response_format", "srt")]), "response_format"),
             (kind, form(ok + [("timestamp_granularities[]", "word")]), "timestamp_granularities"), (kind, form(ok + [("stream", "maybe")]), "stream"),
             (kind, form(ok + [("temperature", "hot")]), "temperature"), (kind, form([("file", b"no sound"), ok[1]]), "not a sound"),
             (kind, form([("file", A[:2000]), ok[1]]), "cut off"), (kind, whole[:-10], "no end"), (kind, whole[:-4], "like its boundary"), (kind, whole + b"x", "follows its end"),
             (kind, b"x" + whole, "begin"), (kind, whole.replace(b"name=", b"nome="), "name"), (kind, whole.replace(b"form-data", b"attachment"), "form-data"),
             (kind, form(ok, end=f"--{LINE}more--".encode()), "like its boundary"), (kind, form([("x%d" % i, "1") for i in range(65)]), "64 parts"),
             (kind, whole.replace(b"Content-Type: audio/wav", b"Content-Transfer-Encoding: base64"), "encoded"), ("multipart/form-data", whole, "boundary"),
             (kind + "; boundary=x", whole, "two boundaries"), ("multipart/form-data; boundary=" + "x" * 71, whole, "boundary"), (kind, b"", "begin")]
    for content_type, body, words in cases:
        status, got = send(server, [], body=body, content_type=content_type)
        assert status in (400, 404) and words in json.dumps(got["error"]), (words, status, str(got)[:300])
    for model, words in (("demo", "taught no form"), ("qwen2_audio", "taught no form")):
        status, got = send(server, [("file", A)], model=model)
        assert status in (400, 501) and (words in got["error"]["message"] or "cannot hear" in got["error"]["message"]), got
    assert send(server, [("file", A), ("max_tokens", "4")])[0] == 200


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        models = {n: make(n, f"{folder}/{n}") for n in ("voxtral", "qwen3_asr", "qwen2_audio")}
        models["demo"] = f"{__file__.rsplit('/', 1)[0]}/../../models/demo/demo.gguf"
        with Server(PROGRAM, *(o for name, path in models.items() for o in ("--model", f"{name}={path}"))) as server:
            for check in (forms_and_json, streams, languages, refused):
                checks.run(check, server)
    checks.exit()


main()
