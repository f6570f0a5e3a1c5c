# SPDX-License-Identifier: Apache-2.0
"""Sounds through the APIs: the same sound gives the same answer wherever it comes from, another one another; what cannot be read or heard is
refused by name; the server goes on."""
import base64
import concurrent.futures
import json
import os
import struct
import subprocess
import sys
import tempfile

from hearth_server import Checks, Server
from vision_model import SAID as SPOKEN
from vision_model import ask_parts, ears, make, picture, sound, text

PROGRAM = sys.argv[1]
QUICK = os.environ.get("HEARTH_QUICK")  # under a sanitizer, where starting a decoder is slow
A, B, C, TONE = sound("a"), sound("b"), sound("c"), sound("tone", "mp3")
PARTS = ("{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' }}{% if message['content'] is string %}{{ message['content'] }}"
         "{% else %}{% for item in message['content'] %}{% if item['type'] == 'audio' %}{{ '[AUDIO]' }}{% elif item['type'] == 'text' %}"
         "{{ item['text'] }}{% endif %}{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")


def plain(data):
    return base64.b64encode(data).decode()


def audio(data, form="wav"):
    return {"type": "input_audio", "input_audio": {"data": plain(data), "format": form}}


def ask(server, parts, model="voxtral", **fields):
    return ask_parts(server, parts, model, **fields)


def same_everywhere(server):
    """Chat, responses, Ollama: one sound before the same text; five words for each 0.4 s and one before them."""
    want, logprobs, usage = ask(server, [audio(A), text("What?")])
    assert usage["prompt_tokens"] == ask(server, [text("What?")])[2]["prompt_tokens"] + 6, usage
    assert ask(server, [audio(B), text("What?")])[2]["prompt_tokens"] == usage["prompt_tokens"] + 10
    assert ask(server, [audio(A), text("What?")], model="parts")[:2] == (want, logprobs)
    status, got = server.post("/v1/responses", {"model": "voxtral", "temperature": 0, "max_output_tokens": 8, "input": [
        {"role": "user", "content": [audio(A), {"type": "input_text", "text": "What?"}]}]})
    assert status == 200 and got["output"][-1]["content"][0]["text"] == want, got
    options = {"temperature": 0, "num_predict": 8}
    status, got = server.post("/api/generate", {"model": "voxtral", "stream": False, "options": options, "prompt": "What?", "images": [plain(A)]})
    assert status == 200 and got["response"] == want, got
    status, got = server.post("/api/chat", {"model": "voxtral", "stream": False, "options": options, "messages": [
        {"role": "user", "content": "What?", "images": [plain(A)]}]})
    assert status == 200 and got["message"]["content"] == want, got


TALKS = {"ab": [audio(A), text("and"), audio(B), text("?")], "ba": [audio(B), text("and"), audio(A), text("?")],
         "aa": [audio(A), text("and"), audio(A), text("?")], "side": [audio(A), audio(C), text("?")], "a": [text("Listen: "), audio(A), text("?")]}
SAID = {}


def contents_matter(server):
    """Two sounds in one conversation, swapped, repeated, side by side: same bits again, and never the other's; also in a fresh server."""
    for _ in range(2):
        for key, parts in TALKS.items():
            said = ask(server, parts)[:2]
            assert SAID.setdefault(key, said) == said, key
    assert len({tuple(v[1]) for v in SAID.values()}) == len(TALKS), SAID
    with Server(PROGRAM, *OPTIONS) as fresh:
        for key in ("ba", "side"):
            assert ask(fresh, TALKS[key])[:2] == SAID[key], key


def mp3(server):
    """0.4 s, or a bit more where what the encoder added is not taken off; the same whatever the format says, and from Ollama's images."""
    want = ask(server, [audio(TONE, "mp3"), text("What?")])
    assert want[2]["prompt_tokens"] - ask(server, [text("What?")])[2]["prompt_tokens"] in (6, 11), want
    assert ask(server, [audio(TONE, "wav"), text("What?")])[:2] == want[:2]
    status, got = server.post("/api/generate", {"model": "voxtral", "stream": False, "options": {"temperature": 0, "num_predict": 8}, "prompt": "What?",
                                                "images": [plain(TONE)]})
    assert status == 200 and got["response"] == want[0], got


def in_company(server):
    body = {"model": "voxtral", "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": "Tell me more about it, " * 4}]}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = [pool.submit(server.post, "/v1/chat/completions", body) for _ in range(4)]
        asked = [(key, pool.submit(ask, server, TALKS[key])) for key in TALKS for _ in range(2)]
        assert all(got.result()[:2] == SAID[key] for key, got in asked)
        assert all(t.result()[0] == 200 for t in texts)


def prefix_is_reused(server):
    long = [audio(B), text("The same beginning, which is long enough for a page or two of the cache, I think. " * 2)]
    first, again = ask(server, long + [text("One")]), ask(server, long + [text("One")])
    assert again[:2] == first[:2] and again[2]["prompt_tokens_details"]["cached_tokens"] > 32, again[2]
    other = ask(server, [audio(C)] + long[1:] + [text("One")])
    assert other[2]["prompt_tokens_details"]["cached_tokens"] < 32 and other[1] != first[1], other[2]


# Tokens of sound A: its rows, and the words that the family's templates or its ears put around them.
TOKENS = {"qwen2_audio": 6 + 2, "qwen2_5_omni": 6 + 2, "audioflamingo3": 6, "glmasr": 3 + 2, "qwen3_asr": 7 + 2, "qwen3_omni_moe": 4 + 2,
          "gemma3n": 9 + 5, "musicflamingo": 6 + 2}


def other_families(_):
    """A template that knows nothing of sounds gets the words that the family's own prints around one; the answer depends on the sound."""
    with tempfile.TemporaryDirectory() as folder:
        names = {n + end: make(n, os.path.join(folder, n + end), template=t and PARTS.replace("[AUDIO]", SPOKEN[n]))
                 for n in TOKENS for end, t in (("", None), ("-parts", True))}
        with Server(PROGRAM, *(o for name, path in names.items() for o in ("--model", f"{name}={path}"))) as server:
            for name, tokens in TOKENS.items():
                want = ask(server, [audio(A), text("What?")], model=name)
                assert ask(server, [audio(A), text("What?")], model=name + "-parts") == want, name
                assert want[2]["prompt_tokens"] == ask(server, [text("What?")], model=name)[2]["prompt_tokens"] + tokens, (name, want)
                assert ask(server, [audio(C), text("What?")], model=name)[1] != want[1], name
                assert "audio" in server.post("/api/show", {"model": name})[1]["capabilities"], name


def wav(kind=1, channels=1, rate=16000, bits=16, data=b"\0\0" * 100, size=None):
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    return b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + form + b"data" + struct.pack("<I", len(data) if size is None else size) + data


def refused(server):
    """(parts, what the error names)"""
    given = lambda **fields: [{"type": "input_audio", "input_audio": fields}]
    cases = [(given(data=plain(A)), "format"), (given(format="wav"), "data"), (given(data="@@@@", format="wav"), "base64"),
             (given(data=plain(A), format="ogg"), "wav"), ([{"type": "input_audio"}], "input_audio"), ([audio(b"")], "not a sound"),
             ([audio(b"hello, this is not a sound")], "not a sound"), ([audio(A[:2000])], "cut off"), ([audio(wav(size=0xFFFFFFF0))], "cut off"),
             ([audio(wav(rate=1 << 31, bits=8))], "samples a second"), ([audio(wav(channels=4000))], "channels"), ([audio(wav(kind=85))], "kind 85"),
             ([audio(wav(data=b""))], "0 bytes"), ([audio(wav(kind=3, bits=32, data=b"\xff" * 8))], "not a number"),
             ([audio(wav(bits=8, rate=4000, data=b"\x80" * 4000 * 1801))], "1801 seconds"),
             ([audio(A), text("[AUDIO]")], "stands for a sound"), ([audio(b"ID3 and then nothing", "mp3")], "sound"), ([audio(TONE[:40], "mp3")], "sound is empty")]
    # Rows of half an hour, and of three minutes twice: refused before anything is computed.
    cases.append(([audio(wav(bits=8, rate=4000, data=b"\x80" * 4000 * 1800))], "the sounds alone have 22500 tokens, the context holds 4096"))
    minutes = wav(bits=8, rate=4000, data=b"\x80" * 4000 * 180)
    cases.append(([audio(minutes)] * 2, "the sounds alone have 4500 tokens"))
    status, got = server.post("/api/generate", {"model": "voxtral", "stream": False, "options": {"num_ctx": 64}, "prompt": "x", "images": [plain(minutes)]})
    assert status == 400 and "the sounds alone have 2250 tokens, the context holds 64" in got["error"], got
    if not QUICK:
        cases.append(([audio(A)] * 33, "32 sounds"))
    for parts, words in cases:
        status, got = server.post("/v1/chat/completions", {"model": "voxtral", "messages": [{"role": "user", "content": parts}], "max_tokens": 1})
        assert status == 400 and words in got["error"]["message"], (words, status, got)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + plain(picture("a"))}}
    for model, part, words in (("demo", audio(A), "cannot hear"), ("voxtral", image, "cannot see")):
        status, got = server.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": [part, text("x")]}], "max_tokens": 1})
        assert status in (400, 501) and words in got["error"]["message"], (model, status, got)
    assert ask(server, TALKS["ab"])[:2] == SAID["ab"]


def lists(server):
    rows = {m["id"]: m for m in server.get("/v1/models")[1]["data"]}
    assert rows["voxtral"]["input_modalities"] == ["text", "audio"] and rows["demo"]["input_modalities"] == ["text"], rows
    assert "audio" in server.post("/api/show", {"model": "voxtral"})[1]["capabilities"]
    assert "audio" not in server.post("/api/show", {"model": "demo"})[1]["capabilities"]


def command_line(server):
    """hearth run --audio says what the server says, hearth show what a model takes."""
    want = ask(server, [audio(A), text("What?")])[0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.wav")
        with open(path, "wb") as f:
            f.write(A)
        run = [PROGRAM, "run", FOLDERS["voxtral"], "--temp", "0", "--max-tokens", "8", "--audio"]
        got = subprocess.run(run + [path, "What?"], capture_output=True, text=True, timeout=60)
        assert got.returncode == 0 and got.stdout.strip() == want.strip(), (got, want)
        got = subprocess.run(run + ["/nonexistent.wav", "What?"], capture_output=True, text=True, timeout=60)
        assert got.returncode != 0 and "nonexistent" in got.stderr, got
        got = subprocess.run([PROGRAM, "show", FOLDERS["voxtral"]], capture_output=True, text=True, timeout=60)
        assert got.returncode == 0 and "text, sounds" in got.stdout, got
        got = subprocess.run([PROGRAM, "show", FOLDERS["voxtral"], "--json"], capture_output=True, text=True, timeout=60)
        assert json.loads(got.stdout)["input"] == ["text", "audio"], got


def apart(server):
    """A GGUF file and its encoder in another, beside it, say what the directory says; without it the model only reads."""
    with tempfile.TemporaryDirectory() as folder:
        beside, alone = os.path.join(folder, "beside"), os.path.join(folder, "alone")
        os.mkdir(beside), os.mkdir(alone)
        ears(FOLDERS["voxtral"], os.path.join(beside, "mmproj-ears.gguf"))
        for place in (beside, alone):
            subprocess.run([PROGRAM, "convert", FOLDERS["voxtral"], os.path.join(place, "text.gguf")], check=True, capture_output=True, timeout=60)
        with Server(PROGRAM, "--model", f"beside={beside}/text.gguf", "--model", f"alone={alone}/text.gguf") as other:
            for key in ("ba", "side"):
                words, logprobs, _ = ask(other, TALKS[key], model="beside")  # q and k are stored in another order: the last bits differ
                assert words == SAID[key][0] and all(abs(a - b) < 1e-3 for a, b in zip(logprobs, SAID[key][1])), key
            status, got = other.post("/v1/chat/completions", {"model": "alone", "messages": [{"role": "user", "content": [audio(A)]}], "max_tokens": 1})
            assert status in (400, 501) and "cannot hear" in got["error"]["message"], got


FOLDERS, OPTIONS = {}, []


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        FOLDERS["voxtral"] = make("voxtral", os.path.join(folder, "voxtral"))
        FOLDERS["parts"] = make("voxtral", os.path.join(folder, "parts"), template=PARTS)
        demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo", "demo.gguf")
        OPTIONS.extend(o for name, path in [*FOLDERS.items(), ("demo", demo)] for o in ("--model", f"{name}={path}"))
        with Server(PROGRAM, *OPTIONS) as server:
            for check in (same_everywhere, contents_matter, mp3, apart, in_company, prefix_is_reused, refused, lists, command_line, other_families):
                checks.run(check, server)
    checks.exit()


main()
