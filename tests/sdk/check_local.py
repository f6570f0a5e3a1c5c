# SPDX-License-Identifier: Apache-2.0
"""usage: check_local.py LIBHEARTH [CC]

hearth.local: its structures against the C header, every method with the demo model, cancelling, threads, closing."""
import array
import ctypes
import dataclasses
import gc
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import wave

from sdk_support import DEMO, GOLDEN, QUICK, RANKER, ROOT, blocks, golden_ranks, raises

from hearth import LocalError, _capi, media, tool
from hearth.local import Model
from hearth_server import Checks, eventually
from vision_model import make, sound

sys.path.insert(0, os.path.join(ROOT, "tools", "demo-model"))
import pictures as drawn  # noqa: E402

SUM = "What is 12 plus 30?"
SEEING = os.path.join(ROOT, "models", "vision-demo", "vision-demo.gguf")
WEATHER = "What is the weather in Paris?"
LONG = dict(max_tokens=3500, temperature=0, regex="[a-z ]{3000,}")


def structures(compiler):
    """A C program prints every size and offset, by the header's own names."""
    lines = []
    for s in _capi.STRUCTURES:
        lines.append(f'printf("{s.__name__} %zu\\n", sizeof({s.__name__}));')
        lines += [f'printf("{s.__name__}.{n} %zu %zu\\n", offsetof({s.__name__}, {n}), sizeof((({s.__name__} *)0)->{n}));' for n, _ in s._fields_]
    lines += [f'printf("{name} %d\\n", HEARTH_{name});' for name in dir(_capi) if name.isupper() and name not in ("SONAME", "STRUCTURES", "FINISH", "POINTER")
              and isinstance(getattr(_capi, name), int)]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "a.c"), os.path.join(folder, "a")
        with open(source, "w") as f:
            f.write("#include <hearth.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
        subprocess.run([compiler, "-I", os.path.join(ROOT, "include"), source, "-o", program], check=True)
        told = dict(line.split(" ", 1) for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines())
    ours = {}
    for s in _capi.STRUCTURES:
        ours[s.__name__] = str(ctypes.sizeof(s))
        ours.update((f"{s.__name__}.{n}", f"{getattr(s, n).offset} {ctypes.sizeof(t)}") for n, t in s._fields_)
    ours.update((k, str(getattr(_capi, k))) for k in told if k in dir(_capi) and k.isupper())
    assert ours == told, {k: (ours.get(k), told.get(k)) for k in {*ours, *told} if ours.get(k) != told.get(k)}
    return f"{len(told)} values"


def answers(m):
    got = m.chat(SUM, temperature=0)
    assert got.text == "12 plus 30 is 42." and got.finish_reason == "stop" and (got.usage.prompt_tokens, got.usage.completion_tokens) == (22, 12), got
    thought = m.chat(SUM, temperature=0, enable_thinking=True)
    assert thought.reasoning and thought.usage.reasoning_tokens > 0 and thought.text == got.text
    with m.chat_stream(SUM, temperature=0, logprobs=True, top_logprobs=2, return_progress=True) as stream:
        kinds = [e.kind for e in stream]
        same = stream.so_far
    assert same.text == got.text and kinds[0] == "started" and kinds[-1] == "done" and "progress" in kinds
    assert b"".join(t.bytes for t in same.first.logprobs).startswith(b"12 plus 30 is 42.") and all(len(t.top) == 2 for t in same.first.logprobs)
    two = m.chat("Tell me a story.", n=2, seed=7, max_tokens=6)
    assert len(two.choices) == 2 and two.choices[0].text != two.choices[1].text and two.usage.completion_tokens == 12
    assert m.chat("Tell me a story.", n=2, seed=7, max_tokens=6).choices == two.choices
    assert m.chat(SUM, temperature=0, stop=" is").text == "12 plus 30"
    text = m.complete("One sunny morning,", temperature=0)
    assert text.usage.completion_tokens == 16 and text.text == m.complete(m.tokenize("One sunny morning,"), temperature=0).text
    talk = [{"role": "user", "content": SUM}, got.message, {"role": "user", "content": "What is 1 plus 1?"}]
    assert "2" in m.chat(talk, temperature=0).text


@dataclasses.dataclass
class Person:
    name: str
    age: int


def shapes(m):
    text = "Give me name, age as JSON: Anna is 31 years old, works as a baker and lives in Rome."
    assert m.chat(text, temperature=0, response_schema=Person).json() == {"name": "Anna", "age": 31}
    assert isinstance(m.chat(text, temperature=0, response_format={"type": "json_object"}).json(), dict)
    assert m.chat("x", guided_choice=["red", "blue"]).text in ("red", "blue") and len(m.chat("x", regex="[ab]{5}").text) == 5
    assert m.chat("x", grammar='root ::= "yes" | "no"').text in ("yes", "no")
    raises(TypeError, m.chat, "x", regex="a", guided_choice=["b"])


def tools(m):
    def get_weather(city: str) -> dict:
        """Get the weather in a city"""
        return {"weather": "sunny", "degrees": 21}

    calls = []
    run = m.run_tools(WEATHER, [get_weather], temperature=0, on_call=calls.append)
    assert run.text == "It is sunny in Paris, with 21 degrees." and calls[0].parsed() == {"city": "Paris"}
    ran = []
    for n in range(9, 20):
        cut = m.run_tools(WEATHER, [tool(lambda city: ran.append(city), name="get_weather", description="Get the weather in a city")], temperature=0, max_tokens=n)
        assert cut.answer.finish_reason == "length" and cut.rounds == 1
    assert ran == []
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert m.chat("Hello", tools=[get_weather], tool_choice=named, temperature=0).tool_calls[0].name == "get_weather"
    assert m.chat(WEATHER, tools=[get_weather], tool_choice="none", temperature=0, max_tokens=8).tool_calls == []


def texts(m):
    tokens = m.tokenize("Hello world")
    assert m.detokenize(tokens) == "Hello world" and m.tokenize("") == []
    assert SUM in m.render(SUM) and m.count(SUM) == m.chat(SUM, max_tokens=1).usage.prompt_tokens
    info = m.info()
    assert info.family == "llama" and info.vocabulary == 8192 and info.can_chat is True and info.can_rerank is False
    assert m.stats().tokens_generated > 0
    vectors = m.embed([f"text {i}" for i in range(40)]).vectors
    assert len(vectors) == 40 and len(vectors[0]) == 512 and abs(sum(x * x for x in vectors[7]) - 1) < 1e-3
    assert m.embed("text 7").vectors[0] == vectors[7] and len(m.embed("a", dimensions=4).vectors[0]) == 4


def mistakes(m):
    why = raises(LocalError, Model, "/nowhere.gguf")
    assert why.code < 0 and "/nowhere.gguf" in str(why), why
    raises(LocalError, m.chat, [{"role": "nobody", "content": "x"}])
    assert raises(LocalError, m.chat, "word " * 9000).code == -11
    assert raises(LocalError, m.rerank, "a", ["b"]).code == -4
    raises(LocalError, m.chat, "x", json_schema={"type": "nothing"})
    for wrong in ({"temperatur": 1}, {"dry_base": 2}, {"mirostat": 1}):
        raises(TypeError, m.chat, "x", **wrong)
    raises(ValueError, m.complete, "a\0b")
    raises(LocalError, m.detokenize, [99999999])
    assert m.chat("a\0b", max_tokens=1).usage.prompt_tokens > 0
    raises(OSError, Model, library="/nowhere.so")


def cancelling(m):
    with m.complete_stream("One sunny morning,", **LONG) as stream:
        next(e for e in stream if e.kind == "content")
    eventually(lambda: m.stats().running == 0, 5)
    assert list(stream) == []
    stream = m.complete_stream("One sunny morning,", **LONG)
    threading.Timer(0.05, stream.cancel).start()
    assert stream.answer().finish_reason == "cancelled"
    m.complete_stream("One sunny morning,", **LONG)  # nobody keeps it
    gc.collect()
    eventually(lambda: m.stats().running + m.stats().waiting == 0, 5)


def threads(m):
    """Answers do not depend on one another; closing from another thread ends what runs."""
    alone = [m.complete("One sunny morning,", max_tokens=20, seed=i).text for i in range(6)]
    got = [None] * 6

    def one(i):
        got[i] = m.complete("One sunny morning,", max_tokens=20, seed=i).text

    all_of = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in all_of:
        t.start()
    for t in all_of:
        t.join()
    assert got == alone
    stream = m.complete_stream("One sunny morning,", **LONG)
    threading.Timer(0.05, stream.close).start()
    assert sum(1 for _ in stream) < 3400


def closing():
    m = Model("demo")
    stream = m.complete_stream("One sunny morning,", **LONG)
    next(stream)
    busy = threading.Thread(target=lambda: [m.tokenize("x" * 1000) for _ in range(50)] if m._pointer else None)
    busy.start()
    busy.join(0.001)
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    m.close()
    reader.join(10)
    assert not reader.is_alive() and list(stream) == []
    busy.join()
    raises(ValueError, m.chat, "x")
    m.close()


def ranks():
    query, documents, scores = golden_ranks()
    with Model(RANKER) as m:
        got = m.rerank(query, documents)
    assert len(got.results) == len(scores) and all(abs(r.score - scores[r.index]) < 2e-5 for r in got.results), got


def adapters():
    """The first token and its log-probability are those of PEFT's logits; with the scale 0 they are the base's."""
    case = os.path.join(GOLDEN, "adapters", "llama_lora")
    with open(os.path.join(case, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(case, "logits.f32"), "rb") as f:
        row = array.array("f", f.read())[-golden["vocab"]:]
    best = max(range(len(row)), key=row.__getitem__)
    want = row[best] - math.log(sum(math.exp(x) for x in row))
    with tempfile.TemporaryDirectory() as folder:  # the reference model has no tokenizer: token i is the text "ti"
        base = shutil.copytree(os.path.join(GOLDEN, "models", golden["base"]), os.path.join(folder, "base"))
        vocab = {**{f"t{i}": i for i in range(len(row) - 2)}, "t": len(row) - 2, "1": len(row) - 1}
        with open(os.path.join(base, "tokenizer.json"), "w") as f:
            json.dump({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"},
                       "model": {"type": "BPE", "vocab": vocab, "merges": ["t 1"]}}, f)
        with Model(base) as m:
            options = dict(max_tokens=1, temperature=0, logprobs=True)
            plain, with_it, without = (m.complete(golden["prompt"], adapters=a, **options) for a in ([], [(case, 1.0)], [(case, 0.0)]))
            assert with_it.text == f"t{best}" and abs(with_it.first.logprobs[0].logprob - want) < 0.02, (with_it, best, want)
            assert without.text == plain.text != with_it.text and m.name == "base"
            assert "/nowhere" in str(raises(LocalError, m.complete, [5], adapters=[("/nowhere", 1.0)]))


class Pillow:
    """What hearth.media asks of a picture of Pillow."""

    def __init__(self, width, height, rgb):
        self.size, self.rgb, self.mode = (width, height), rgb, None

    def convert(self, mode):
        turned = Pillow(*self.size, self.rgb)
        turned.mode = mode
        return turned

    def tobytes(self):
        assert self.mode == "RGB"
        return self.rgb


def pictures():
    """Held-out pictures of the demo that sees, word for word, in each form; two in one conversation; what is refused."""
    side, right = drawn.SIDE, 0
    with Model(SEEING) as m:
        assert m.info().can_see is True and m.info().can_hear is False

        def user(words, *shown):
            return {"role": "user", "content": [*({"type": "image", "image": p} for p in shown), {"type": "text", "text": words}]}

        for seed in range(2 if QUICK else 6):
            rng, scene, _, question, answer = drawn.judged(seed)
            rgb = bytes(drawn.draw(scene, rng))
            forms = [media.Picture(side, side, rgb), memoryview(rgb).cast("B", (side, side, 3)), Pillow(side, side, rgb)]
            said = [m.chat([user(question, p)], temperature=0).text for p in forms]
            assert said[0] == said[1] == said[2], said
            right += said[0] == answer
        assert right >= (1 if QUICK else 5), right
        talk = [user("What is in the picture?", forms[0])]
        one = m.count(talk)
        talk += [{"role": "assistant", "content": "x"}, user("And here?", forms[1])]
        assert m.count(talk) > 2 * (one - 10) and m.render(talk).count("And here?") == 1
        assert m.chat([user("What is in the picture?")], temperature=0).text == "I see no picture."
        raises(ValueError, media.Picture, 2, 2, b"12")
        raises(ValueError, media.Picture.of, b"123")
        raises(TypeError, m.chat, [user("x", "a.png")])
        raises(TypeError, m.chat, [{"role": "user", "content": [{"type": "audio", "audio": b"x"}]}])


def sounds():
    """The rows of a sound as the server counts them, from a file and from numbers; samples of every width are the same sound."""
    with tempfile.TemporaryDirectory() as folder:
        with Model(make("voxtral", os.path.join(folder, "voxtral"))) as m:
            assert m.info().can_hear is True

            def user(*heard):
                return [{"role": "user", "content": [*({"type": "audio", "audio": s} for s in heard), {"type": "text", "text": "What?"}]}]

            a, b = (media.Sound.wav(io.BytesIO(sound(name))) for name in "ab")
            assert m.count(user(a)) == m.count(user()) + 6 and m.count(user(b)) == m.count(user()) + 16
            assert m.count(user(a, b)) == m.count(user()) + 22
            options = dict(temperature=0, max_tokens=6, logprobs=True)
            first, other = m.chat(user(a), **options), m.chat(user(b), **options)
            assert first.first.logprobs == m.chat(user(media.Sound(list(a.samples), a.rate)), **options).first.logprobs
            assert first.first.logprobs[0].logprob != other.first.logprobs[0].logprob
    values = [0, 1, -1, 64, -128, 127]
    for width in (1, 2, 3, 4):
        data = b"".join((v + 128).to_bytes(1, "little") if width == 1 else (v << 8 * (width - 1)).to_bytes(width, "little", signed=True)
                        for v in values for _ in range(2))
        file = io.BytesIO()
        with wave.open(file, "wb") as f:
            f.setnchannels(2), f.setsampwidth(width), f.setframerate(8000), f.writeframes(data)
        file.seek(0)
        got = media.Sound.wav(file)
        assert list(got.samples) == [v / 128 for v in values] and got.rate == 8000, (width, got.samples)


def readme():
    found = [(code, prints) for code, prints in blocks(os.path.join(ROOT, "sdk/python/README.md"), "python") if "hearth.local" in code]
    assert found
    for code, prints in found:
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                             env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "sdk/python"))).stdout
        assert prints and prints in out, out


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as prefix:  # as it is installed: the demo model is found from the library
        os.makedirs(os.path.join(prefix, "lib"))
        os.makedirs(os.path.join(prefix, "share/hearth"))
        os.symlink(os.path.dirname(os.path.dirname(DEMO)), os.path.join(prefix, "share/hearth/models"))
        os.environ["HEARTH_LIBRARY"] = shutil.copy(sys.argv[1], os.path.join(prefix, "lib", _capi.SONAME))
        checks.run(structures, sys.argv[2] if len(sys.argv) > 2 else "cc")
        with Model("demo", threads=2) as model:
            for check in (answers, shapes, tools, texts, mistakes, cancelling, threads):
                checks.run(check, model)
        for check in (closing, ranks, adapters, pictures, sounds, readme):
            checks.run(check)
    checks.exit()


main()
