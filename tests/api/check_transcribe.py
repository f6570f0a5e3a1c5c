# SPDX-License-Identifier: Apache-2.0
"""Sounds become words (/v1/audio/transcriptions): the form that OpenAI's clients send and the same as JSON say the same, whole and streamed;
the prompt is the one that a model was taught; what cannot be read or done is refused by name."""
import base64
import json
import re
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
    # As other programs write numbers and flags; an empty field is none.
    for more in ([("temperature", "1e-05"), ("top_k", "1")], [("temperature", "0E+00")], [("stream", "False")], [("stream", "fALSE")],
                 [("temperature", ""), ("language", ""), ("prompt", ""), ("response_format", ""), ("stream", ""), ("include[]", "")]):
        assert send(server, [("file", A), ("max_tokens", "8"), *more]) == (200, want), more
    body = form([("model", "voxtral"), ("file", A), ("max_tokens", "8"), ("stream", "True")])
    status, headers, said = server.request("POST", PATH, body, headers={"Content-Type": f"multipart/form-data; boundary={LINE}"})
    assert status == 200 and headers["content-type"].startswith("text/event-stream") and want["text"] == json.loads(said.decode().split("data: ")[-1])["text"]


def large_parts(server):
    """What is too large is refused before anything is made of it; what nobody reads costs nothing and is named."""
    body = form([("model", "voxtral"), ("file", A), ("max_tokens", "1"), ("tags[]", "\1" * 60000), ("tags[]", "again"), ("user", "me")])
    status, headers, got = server.request("POST", PATH, body, headers={"Content-Type": f"multipart/form-data; boundary={LINE}"})
    assert status == 200 and headers["x-hearth-ignored"] == "tags[], user", (status, headers, got[:300])
    for name, value, most in (("tags[]", "\1" * (60 << 20), 64 << 10), ("prompt", "x" * 65537, 64 << 10), ("file", b"x" * ((20 << 20) + 1), 20 << 20)):
        status, got = send(server, [("file", A), (name, value)] if name != "file" else [(name, value)])
        assert status == 400 and f"part {name} has {len(value)} bytes; at most {most}" in got["error"]["message"], str(got)[:300]


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
    status, got = ask(("prompt", "Hearth"))
    assert status == 400 and "prompt: this model takes none" in got["error"]["message"], got
    status, got = ask(("language", "English"))
    assert status == 400 and got["error"]["param"] == "language", got


def respelled(folder, words, pieces):
    """A model in whose vocabulary other texts stand for these."""
    path = make("qwen3_asr", folder)
    with open(f"{path}/tokenizer.json", encoding="utf-8") as f:
        doc = json.load(f)
    vocab = doc["model"]["vocab"]
    for piece, word in zip(pieces, words):
        vocab[word.replace(" ", "\u0120")] = vocab.pop(piece)
    with open(f"{path}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(doc, f)
    return path


def languages_are_left_out(server):
    """What the model says of the language before the words is left out, and only there; streamed and whole are the same."""
    ask = {"model": "qwen3_asr", "file": base64.b64encode(A).decode(), "max_tokens": 4, "temperature": 2}
    for seed in range(1000):  # one that says four things which the prompt has none of
        said = server.post(PATH, ask | {"seed": seed})[1]["text"]
        pieces = re.findall("<unused[0-9]*>|.", said)
        if len(set(pieces)) == len(pieces) == 4 and not set(pieces) & set("<systemuserassistant ") and "|" not in said:
            break
    cases = [(["language English<asr_text>", "So", " it", " is"], "So it is"), (["language ", "German", "<asr_text>So", " it"], "So it"),
             (["language ", "x" * 60, "<asr_text>So", " it"], "language " + "x" * 60 + "<asr_text>So it"), (["So", " it", "<asr_text>was", " said"], "So it<asr_text>was said"),
             (["language English<asr_text>", "So", "<asr_text>it", " is"], "So<asr_text>it is"), (["language ", "and", " more", " of"], "language and more of")]
    with tempfile.TemporaryDirectory() as folder:
        models = [respelled(f"{folder}/{i}", words, pieces) for i, (words, _) in enumerate(cases)]
        with Server(PROGRAM, *(o for i, path in enumerate(models) for o in ("--model", f"m{i}={path}"))) as other:
            for i, (words, want) in enumerate(cases):
                body = ask | {"seed": seed, "model": f"m{i}"}
                status, got = other.post(PATH, body)
                assert status == 200 and got["text"] == want, (words, got)
                events = [json.loads(e.removeprefix("data: ")) for e in other.stream(PATH, body | {"stream": True})]
                assert "".join(e["delta"] for e in events[:-1]) == want == events[-1]["text"], (words, events)


def refused(server):
    ok = [("file", A), ("model", "voxtral")]
    kind = f"multipart/form-data; boundary={LINE}"
    whole = form(ok)
    cases = [(kind, form([("model", "voxtral")]), "file"), (kind, form([("file", A), ("model", "nobody")]), "nobody"),
             (kind, form(ok + [("model", "voxtral")]), "two parts of the name model"), (kind, form(ok + [("response_format", "srt")]), "response_format"),
             (kind, form(ok + [("timestamp_granularities[]", "word")]), "timestamp_granularities"), (kind, form(ok + [("stream", "maybe")]), "stream"),
             (kind, form(ok + [("temperature", "hot")]), "temperature"), (kind, form([("file", b"no sound"), ok[1]]), "not a sound"),
             (kind, form(ok + [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")]), "timestamp_granularities[]: is not supported"),
             (kind, form(ok + [("temperature", "1e")]), "temperature"), (kind, form(ok + [("temperature", "01")]), "temperature"), (kind, form(ok + [("stream", "yes")]), "stream"),
             (kind, form([("file", A[:2000]), ok[1]]), "cut off"), (kind, whole[:-10], "no end"), (kind, whole[:-4], "like its boundary"), (kind, whole + b"x", "follows its end"),
             (kind, b"x" + whole, "begin"), (kind, whole.replace(b"name=", b"nome="), "name"), (kind, whole.replace(b"form-data", b"attachment"), "form-data"),
             (kind, form(ok, end=f"--{LINE}more--".encode()), "like its boundary"), (kind, form([("x%d" % i, "1") for i in range(65)]), "64 parts"),
             (kind, whole.replace(b"Content-Type: audio/wav", b"Content-Transfer-Encoding: base64"), "encoded"), ("multipart/form-data", whole, "boundary"),
             (kind + "; boundary=x", whole, "two boundaries"), ("multipart/form-data; boundary=" + "x" * 71, whole, "boundary"), (kind, b"", "begin")]
    for content_type, body, words in cases:
        status, got = send(server, [], body=body, content_type=content_type)
        assert status in (400, 404) and words in json.dumps(got["error"]), (words, status, str(got)[:300])
    for name in ("include[]", "chunking_strategy", "chunking_strategy[type]", "known_speaker_names[]", "known_speaker_names", "known_speaker_references[]",
                 "known_speaker_references", "timestamp_granularities"):
        status, got = send(server, [("file", A), (name, "x")])
        assert status == 400 and got["error"]["param"] == name and "is not supported" in got["error"]["message"], (name, got)
    status, got = server.post(PATH, {"model": "voxtral", "file": base64.b64encode(A).decode(), "chunking_strategy": {"type": "server_vad"}})
    assert status == 400 and got["error"]["param"] == "chunking_strategy", got
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
            for check in (forms_and_json, large_parts, streams, languages, languages_are_left_out, refused):
                checks.run(check, server)
    checks.exit()


main()
