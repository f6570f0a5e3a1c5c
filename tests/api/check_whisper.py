# SPDX-License-Identifier: Apache-2.0
"""Whisper writes down what is said (/v1/audio/transcriptions, /v1/audio/translations): prompts and words are those of transformers' own
generate (tests/golden/hearing/whisper), with a language and without, with a text that came before; long sounds are heard in parts; what the
model is not made for is refused by name."""
import base64
import concurrent.futures
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import wave

from hearth_server import Checks, Server
from vision_model import HEARING, SOUNDS, make

PROGRAM = sys.argv[1]
WORDS, ENGLISH = "/v1/audio/transcriptions", "/v1/audio/translations"
ROWS, PIECE = 80, 80 * 320  # of the tiny model: positions and samples of what it hears at once
RATE = 16000


def sound(name):
    for folder in (os.path.join(SOUNDS, "sounds"), os.path.join(HEARING, "sounds")):
        path = os.path.join(folder, name + ".wav")
        if os.path.exists(path):
            with open(path, "rb") as f:
                return f.read()
    raise FileNotFoundError(name)


def wav(samples):
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(RATE)
        w.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return out.getvalue()


def ask(server, data, path=WORDS, model="whisper", **more):
    return server.post(path, dict({"model": model, "file": base64.b64encode(data).decode()}, **more))


def text_of(folder, ids):
    """What these tokens are as a text; special ones are not."""
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:
        doc = json.load(f)
    special, vocab = {a["id"] for a in doc["added_tokens"]}, {i: w for w, i in doc["model"]["vocab"].items()}
    return "".join(vocab[i].replace("\u0120", " ").replace("\u010a", "\n") for i in ids if i not in special)


def as_generate_does(server, folder):
    with open(os.path.join(HEARING, "whisper", "golden.json"), encoding="utf-8") as f:
        cases = [c for c in json.load(f)["dictations"] if not c["times"]]
    assert len(cases) == 30, len(cases)
    for c in cases:
        # Tokens that the model says itself: the language and those behind it, or the language alone, in a prompt without the text before.
        found = 0 if c["language"] else 1 if c["prompt"] else 3
        before = ROWS + len(c["begin"]) - found if found != 1 else ROWS + 1 + ROWS + len(c["begin"])
        more = {k: c[k] for k in ("language", "prompt") if c[k]}
        status, got = ask(server, sound(c["sound"]), ENGLISH if c["task"] == "translate" else WORDS, max_tokens=10 + found, **more)
        assert status == 200 and got["text"] == text_of(folder, c["said"]), (c, got)
        assert got["usage"]["input_tokens"] == before, (c, got)
        assert got["usage"]["output_tokens"] == len(c["said"]) + found, (c, got)


def seconds(text):
    h, m, s = text.replace(",", ".").split(":")
    return 3600 * int(h) + 60 * int(m) + float(s)


def pieces_of(folder, ids, duration):
    """What is between the moments, and when."""
    out, words, at = [], [], 0.0
    for i in [*ids, None]:
        if i is not None and i < 110:
            words.append(i)
            continue
        end = duration if i is None else (i - 110) * 0.02
        if text_of(folder, words).strip(" "):
            out.append((at, max(at, end), text_of(folder, words)))
        words, at = [], end
    return out


def times(server, folder):
    """Pieces with moments are those that generate's rules give; as JSON, as subtitles, in parts."""
    with open(os.path.join(HEARING, "whisper", "golden.json"), encoding="utf-8") as f:
        cases = [c for c in json.load(f)["dictations"] if c["times"]]
    assert len(cases) == 15, len(cases)
    for c in cases:
        data = sound(c["sound"])
        with wave.open(io.BytesIO(data)) as w:
            duration = -(-w.getnframes() * RATE // w.getframerate()) / RATE
        more = {"model": "timed", "language": c["language"], "max_tokens": 20}
        status, got = ask(server, data, response_format="verbose_json", **more)
        want = pieces_of(folder, c["said"], duration)
        assert status == 200 and [s["text"] for s in got["segments"]] == [p[2] for p in want], (c, got, want)
        assert all(abs(s["start"] - p[0]) < 1e-6 and abs(s["end"] - p[1]) < 1e-3 for s, p in zip(got["segments"], want)), (got, want)
        assert got["text"] == "".join(p[2] for p in want).lstrip(" ") and abs(got["duration"] - duration) < 1e-3, (got, duration)
        assert got["language"] == c["language"] and got["task"] == "transcribe" and got["usage"]["output_tokens"] == len(c["said"]), got
        for form, head, point in (("srt", "", ","), ("vtt", "WEBVTT\n\n", ".")):
            body = json.dumps(dict(more, file=base64.b64encode(data).decode(), response_format=form)).encode()
            status, headers, text = server.request("POST", WORDS, body, headers={"Content-Type": "application/json"})
            text = text.decode()
            assert status == 200 and headers["content-type"].startswith("text/") and text.startswith(head), text
            blocks = [b.split("\n") for b in text[len(head):].split("\n\n") if b]
            assert len(blocks) == len(want), (text, want)
            for i, (b, p) in enumerate(zip(blocks, want)):
                if form == "srt":
                    assert b.pop(0) == str(i + 1), b
                begin, end = b[0].split(" --> ")
                assert point in begin and abs(seconds(begin) - p[0]) < 2e-3 and abs(seconds(end) - p[1]) < 2e-3 and b[1] == p[2].strip(" "), (b, p)
    # Parts stand behind each other; the language that the model finds is told.
    e = struct.unpack("<25000h", sound("e")[44:])
    x = list(e[:22000]) + [v // 50 for v in e[:1500]] + list(e)
    first = cut(x, PIECE)
    status, got = ask(server, wav(x), model="timed", response_format="verbose_json")
    assert status == 200 and got["language"] in ("en", "de", "yue"), got
    alone = [ask(server, wav(p), model="timed", response_format="verbose_json", language=got["language"])[1]["segments"] for p in (x[:first], x[first:])]
    want = [(s["start"], s["text"]) for s in alone[0]] + [(s["start"] + first / RATE, s["text"]) for s in alone[1]]
    assert [s["text"] for s in got["segments"]] == [p[1] for p in want], (got, want)
    assert all(abs(s["start"] - p[0]) < 2e-3 for s, p in zip(got["segments"], want)), (got, want)
    status, got = ask(server, wav(x), model="timed", response_format="srt", stream=True)
    assert status == 400 and got["error"]["param"] == "response_format", got


def forms(server, _):
    """Streamed, as a text, again from the cache, many at once: all the same."""
    data = sound("b")
    status, want = ask(server, data, max_tokens=10)
    assert status == 200 and want["text"], want
    body = {"model": "whisper", "file": base64.b64encode(data).decode(), "max_tokens": 10}
    events = [json.loads(e.removeprefix("data: ")) for e in server.stream(WORDS, body | {"stream": True})]
    assert "".join(e["delta"] for e in events[:-1]) == want["text"] and events[-1] == {"type": "transcript.text.done", **want}, events
    status, _, got = server.request("POST", WORDS, json.dumps(body | {"response_format": "text"}).encode(), headers={"Content-Type": "application/json"})
    assert (status, got.decode()) == (200, want["text"] + "\n"), got
    assert ask(server, data, max_tokens=10) == (200, want)
    # What is said is bounded by the places for a text.
    status, got = ask(server, data, language="en")
    assert status == 200 and got["usage"]["output_tokens"] <= 40 - 3, got
    # A long text in front loses its beginning.
    status, got = ask(server, data, language="en", max_tokens=2, prompt="x" * 200)
    assert status == 200 and got["usage"]["input_tokens"] == ROWS + 20 + 4, got
    assert ask(server, data, language="en", max_tokens=2, prompt="y" * 50 + "x" * 19)[1] == got
    other = ask(server, data, temperature=2, seed=1, max_tokens=8)[1]["text"]
    assert other == ask(server, data, temperature=2, seed=1, max_tokens=8)[1]["text"] != ask(server, data, temperature=2, seed=2, max_tokens=8)[1]["text"]


def cut(x, most):
    """Where a part of a sound ends: at the quietest place of its last sixth, looked for in steps of a 300th."""
    if len(x) <= most:
        return len(x)
    step, best, least, end = most // 300, most, None, most
    while end - step >= most - most // 6:
        loud = sum(v * v for v in x[end - step : end])
        if least is None or loud < least:
            best, least = end - step // 2, loud
        end -= step
    return best


def long_sounds(server, _):
    """As their parts are, one behind the other, in the language of the first."""
    e = struct.unpack("<25000h", sound("e")[44:])
    x = list(e[:22000]) + [v // 50 for v in e[:1500]] + list(e) + list(reversed(e))
    parts, rest = [], x
    while rest:
        n = cut(rest, PIECE)
        parts.append(rest[:n])
        rest = rest[n:]
    assert len(parts) == 4 and 22000 <= len(parts[0]) <= 23500, [len(p) for p in parts]
    for more in ({"language": "de"}, {}):
        status, got = ask(server, wav(x), **more)
        assert status == 200, got
        each = [ask(server, wav(parts[0]), **more)[1]]
        for p in parts[1:]:
            both = [ask(server, wav(p), language=language)[1] for language in ([more["language"]] if more else ["en", "de", "yue"])]
            each.append(next((b for b in both if got["text"].startswith("".join(o["text"] for o in each) + b["text"])), None))
            assert each[-1], (got["text"], [o["text"] for o in each[:-1]], both)
        assert got["text"] == "".join(o["text"] for o in each), got
        for k in ("input_tokens", "output_tokens"):
            assert got["usage"][k] == sum(o["usage"][k] for o in each), (k, got["usage"], [o["usage"] for o in each])
        body = {"model": "whisper", "file": base64.b64encode(wav(x)).decode(), "stream": True, **more}
        events = [json.loads(v.removeprefix("data: ")) for v in server.stream(WORDS, body)]
        assert events[-1]["text"] == got["text"] == "".join(v["delta"] for v in events[:-1])
        # A limit holds for all parts together.
        limit = each[0]["usage"]["output_tokens"] + 5
        status, short = ask(server, wav(x), max_tokens=limit, **more)
        assert status == 200 and short["usage"]["output_tokens"] == limit and got["text"].startswith(short["text"]), (short, limit)
        # One that is more than a part has places for is no limit of any part.
        long = wav(list(x) * 3)
        whole, most = ask(server, long, **more)[1], ask(server, long, max_tokens=400, **more)[1]
        assert most == whole and 40 < whole["usage"]["output_tokens"] < 400, (most, whole)


def many(server, _):
    """Beside each other, long and short, some of them given up in between: as alone."""
    e = struct.unpack("<25000h", sound("e")[44:])
    asks = [(wav(list(e[k * 100:]) * (1 + k % 4)), {"language": language} if language else {}) for k, language in enumerate(["en", "de", None, "yue"] * 3)]
    alone = [ask(server, data, **more) for data, more in asks]
    assert all(status == 200 for status, _ in alone), alone
    body = {"model": "whisper", "file": base64.b64encode(wav(list(e) * 20)).decode(), "stream": True}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        left = [pool.submit(give_up, server, body) for _ in range(3)]
        got = [f.result() for f in [pool.submit(ask, server, data, **more) for data, more in asks]]
        for f in left:
            f.result()
    assert got == alone, next((a, b) for a, b in zip(alone, got) if a != b)


def give_up(server, body):
    for n, _ in enumerate(server.stream(WORDS, body)):
        if n == 40:
            break


def chats(server, folder):
    """A sound alone in a message is written down, too."""
    part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound("a")).decode(), "format": "wav"}}
    say = lambda content, **more: server.post("/v1/chat/completions", dict({"model": "whisper", "max_tokens": 8, "messages": [{"role": "user", "content": content}]}, **more))
    status, got = say([part])
    assert status == 200 and got["choices"][0]["message"]["content"].strip() == ask(server, sound("a"), max_tokens=8)[1]["text"], got
    words = got["choices"][0]["message"]["content"]
    assert say([part, {"type": "text", "text": " \n"}])[1]["choices"][0]["message"]["content"] == words
    # Ollama has no other place for a sound; the program needs no words with it, either.
    chat = {"model": "whisper", "stream": False, "options": {"num_predict": 8}, "messages": [{"role": "user", "content": "", "images": [part["input_audio"]["data"]]}]}
    status, got = server.post("/api/chat", chat)
    assert status == 200 and got["message"]["content"] == words, got
    run = lambda *more: subprocess.run([PROGRAM, "run", "--audio", os.path.join(SOUNDS, "sounds", "a.wav"), folder, *more, "--max-tokens", "8"],
                                       capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    got = run()
    assert got.returncode == 0 and got.stdout.strip() == words.strip(), got
    got = run("what is said?")
    assert got.returncode and "does nothing else" in got.stderr, got
    for content in ("hello", [part, {"type": "text", "text": "what is said?"}], [part, part]):
        status, got = say(content)
        assert status in (400, 501) and "whisper" in got["error"]["message"], got
    status, got = say([part], response_format={"type": "json_object"})
    assert status in (400, 501) and "cannot be told" in got["error"]["message"], got
    status, got = say([part], chat_template_kwargs={"times": True})
    assert status in (400, 501) and "cannot be told" in got["error"]["message"], got
    assert say([part], chat_template_kwargs={"language": "yue"})[0] == 200
    status, got = server.post("/api/show", {"model": "whisper"})
    assert status == 200 and "audio" in got["capabilities"] and "embedding" not in got["capabilities"], got["capabilities"]
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"})):
        status, got = server.post(path, dict(body, model="whisper"))
        assert status in (400, 501) and "writes down what is said" in got["error"]["message"], (path, got)
    status, got = server.get("/v1/models")
    assert status == 200, got
    mine = next(m for m in got["data"] if m["id"] == "whisper")
    assert "audio" in json.dumps(mine), mine


def refused(server, _):
    for more, words in (({"language": "xx"}, "was not taught"), ({"response_format": "words"}, "response_format")):
        status, got = ask(server, sound("a"), **more)
        assert status == 400 and words in got["error"]["message"], (more, got)
    for model in ("voxtral", "english"):
        status, got = ask(server, sound("a"), ENGLISH, model=model)
        assert status in (400, 501) and "was not taught to translate" in got["error"]["message"], got
    status, got = ask(server, sound("a"), model="voxtral", response_format="vtt")
    assert status == 400 and "was taught no times" in got["error"]["message"], got
    status, got = ask(server, sound("a"), model="english", language="de")
    assert status == 400 and "knows English alone" in got["error"]["message"], got


def moments_unasked(server, _):
    """Published vocabularies have moments among the words; where nobody asks for times they are no part of the text."""
    said = []
    for name in "abcde":
        status, want = ask(server, sound(name), model="timed", language="de", max_tokens=20)
        assert status == 200 and "<|" not in want["text"], want
        assert ask(server, sound(name), model="worded", language="de", max_tokens=20) == (200, want), name
        forms = [ask(server, sound(name), model=m, language="de", max_tokens=20, response_format="verbose_json") for m in ("timed", "worded")]
        assert forms[0] == forms[1] and forms[0][0] == 200, forms
        said.append(len(want["text"]) < 20)
    assert any(said)


def english_alone(server, _):
    """No language, no task: <|startoftranscript|><|notimestamps|>."""
    for more in ({}, {"language": "en"}):
        status, got = ask(server, sound("a"), model="english", max_tokens=6, **more)
        assert status == 200 and got["usage"]["input_tokens"] == ROWS + 2 and got["usage"]["output_tokens"] == 6, got


def hostile(_server, _folder):
    """What makes no sense in generation_config.json is passed over; a vocabulary without the words is refused with a sentence."""
    lists = [[1e30, -1, 160, 1 << 40, "x", None, {}, [4], 2.5, 96], "text", {"a": 1}, 5, None, [list(range(160))], list(range(-5, 200))]
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for i, value in enumerate(lists):
            models[f"m{i}"] = edited(f"{folder}/m{i}", suppress_tokens=value, begin_suppress_tokens=value)
        models["kinds"] = edited(f"{folder}/kinds", is_multilingual="yes", lang_to_id=[], task_to_id=3, no_timestamps_token_id=-9)
        for word in ("<|notimestamps|>", "<|startoflm|>", "<|startofprev|>"):
            models[word[2:-2]] = path = make("whisper", f"{folder}/{word[2:-2]}")
            with open(f"{path}/tokenizer.json", encoding="utf-8") as f:
                text = f.read()
            with open(f"{path}/tokenizer.json", "w", encoding="utf-8") as f:
                f.write(text.replace(word, "<|other|>"))
        with Server(PROGRAM, *(o for name, path in models.items() for o in ("--model", f"{name}={path}"))) as server:
            for name in [f"m{i}" for i in range(len(lists))] + ["kinds", "startofprev"]:
                status, got = ask(server, sound("a"), model=name, max_tokens=6)
                assert status == 200 or got["error"]["message"], (name, status, got)
                assert status == 200 or name == f"m{len(lists) - 1}", (name, got)
            status, got = ask(server, sound("a"), model="startofprev", prompt="Hearth")
            assert status in (400, 501) and "<|startofprev|>" in got["error"]["message"], got
            for name in ("notimestamps", "startoflm"):
                status, got = ask(server, sound("a"), model=name)
                assert status >= 400 and ("lacks words" in got["error"]["message"] or "encoder" in got["error"]["message"]), got


def edited(folder, **fields):
    path = make("whisper", folder)
    name = f"{path}/generation_config.json"
    with open(name, encoding="utf-8") as f:
        doc = json.load(f)
    with open(name, "w", encoding="utf-8") as f:
        json.dump(doc | fields, f)
    return path


def english(folder):
    path = make("whisper", folder)
    name = f"{path}/generation_config.json"
    with open(name, encoding="utf-8") as f:
        doc = json.load(f)
    doc["is_multilingual"] = False
    for field in ("lang_to_id", "task_to_id"):
        del doc[field]
    with open(name, "w", encoding="utf-8") as f:
        json.dump(doc, f)
    return path


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        models = {n: make(n, f"{folder}/{n}") for n in ("whisper", "voxtral")} | {"english": english(f"{folder}/english")}
        with open(f"{models['whisper']}/generation_config.json", encoding="utf-8") as f:
            muted = json.load(f)["suppress_tokens"]
        models["timed"] = edited(f"{folder}/timed", suppress_tokens=[t for t in muted if t < 110])
        models["worded"] = path = edited(f"{folder}/worded", suppress_tokens=[t for t in muted if t < 110])
        with open(f"{path}/tokenizer.json", encoding="utf-8") as f:
            doc = json.load(f)
        for a in doc["added_tokens"]:
            a["special"] = a["id"] < 110
        with open(f"{path}/tokenizer.json", "w", encoding="utf-8") as f:
            json.dump(doc, f)
        with Server(PROGRAM, *(o for name, path in models.items() for o in ("--model", f"{name}={path}"))) as server:
            for check in (as_generate_does, times, moments_unasked, forms, long_sounds, many, chats, refused, english_alone, hostile):
                checks.run(check, server, models["whisper"])
    checks.exit()


main()
