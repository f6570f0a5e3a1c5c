# SPDX-License-Identifier: Apache-2.0
"""usage: check_python.py HEARTH

Every method of Client and AsyncClient against the real server with the demo model, compared with raw requests."""
import array
import base64
import dataclasses
import enum
import json
import os
import sys
import time
from typing import Dict, List, Literal, Optional, TypedDict

from sdk_support import DEMO, Hub, QUICK, driven, raises

import hearth
from hearth import AsyncClient, Client, tool
from hearth_server import Checks, Server, eventually

SUM = "What is 12 plus 30?"
WEATHER = "What is the weather in Paris?"


def long_one(n=3000):
    """An answer that goes on for a while, the same every time."""
    return dict(prompt="One sunny morning,", max_tokens=n, ignore_eos=True, temperature=0)


# --- answers ---

def chats(c, server):
    raw = server.chat(SUM)[1]
    got = c.chat(SUM, temperature=0)
    assert got.text == raw["choices"][0]["message"]["content"] == "12 plus 30 is 42.", got
    assert (got.finish_reason, got.model, got.usage.prompt_tokens, got.usage.completion_tokens) == ("stop", "demo", 22, 12), got
    assert got.usage.total_tokens == raw["usage"]["total_tokens"] and got.id.startswith("chatcmpl-") and got.request_id.startswith("req-")
    assert got.timings.predicted_n == 12 and got.timings.predicted_per_second > 0 and got.ignored == []
    talk = [{"role": "user", "content": SUM}, got.message, {"role": "user", "content": "What is 1 plus 1?"}]
    assert "2" in c.chat(talk, temperature=0, model="demo").text
    thought = c.chat(SUM, temperature=0, enable_thinking=True)
    assert thought.reasoning and thought.text == "12 plus 30 is 42." and thought.usage.reasoning_tokens > 0
    two = c.chat("Tell me a story.", n=2, seed=7, max_tokens=3, logprobs=True, top_logprobs=2)
    wire = server.chat("Tell me a story.", n=2, seed=7, max_tokens=3, logprobs=True, top_logprobs=2, temperature=None)[1]
    assert [x.text for x in two.choices] == [x["message"]["content"] for x in wire["choices"]] and two.finish_reason == "length"
    assert [[(t.token, t.logprob, list(t.bytes), len(t.top)) for t in x.logprobs] for x in two.choices] == [
        [(t["token"], t["logprob"], t["bytes"], 2) for t in x["logprobs"]["content"]] for x in wire["choices"]]
    assert c.chat(SUM, max_tokens=1, extra={"store": True}).ignored == ["store"]


@dataclasses.dataclass
class Person:
    """A person."""
    name: str
    age: int


def shapes(c, server):
    text = "Give me name, age as JSON: Anna is 31 years old, works as a baker and lives in Rome."
    assert c.chat(text, temperature=0, response_schema=Person).json() == {"name": "Anna", "age": 31}
    assert c.chat(text, temperature=0, response_format={"type": "json_object"}).text.startswith("{")
    assert c.chat("x", guided_choice=["red", "blue"]).text in ("red", "blue")
    assert len(c.chat("x", regex="[ab]{5}").text) == 5
    raises(TypeError, c.chat, "x", response_schema=Person, response_format={"type": "text"})


def streams(c, server):
    for options in ({}, {"enable_thinking": True}, {"logprobs": True, "top_logprobs": 1}, {"n": 2, "seed": 3, "temperature": 1.0}):
        options = {"temperature": 0, **options}
        whole = c.chat(SUM, **options)
        with c.chat_stream(SUM, return_progress=True, **options) as stream:
            events = list(stream)
            answer = stream.so_far
        assert [dataclasses.replace(x, logprobs=[]) for x in answer.choices] == [dataclasses.replace(x, logprobs=[]) for x in whole.choices]
        assert [[(t.token, t.bytes) for t in x.logprobs] for x in answer.choices] == [
            [(t.token, t.bytes) for t in x.logprobs] for x in whole.choices]
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
        kinds = [e.kind for e in events]
        assert kinds[0] == "started" and "progress" in kinds and kinds.count("done") == len(whole.choices), kinds
        assert "".join(e.text for e in events if e.kind == "content" and e.choice == 0) == whole.text
    with c.chat_stream(SUM, temperature=0) as stream:
        assert "".join(pieces_of(stream)) == "12 plus 30 is 42."
    answer = c.chat_stream(SUM, temperature=0).answer()
    assert answer.text == "12 plus 30 is 42." and answer.request_id.startswith("req-")


def pieces_of(stream):
    return [e.text for e in stream if e.kind == "content"]


def completions(c, server):
    got = c.complete("One sunny morning,", max_tokens=8, temperature=0, echo=True, logprobs=2)
    raw = server.post("/v1/completions", {"model": "demo", "prompt": "One sunny morning,", "max_tokens": 8, "temperature": 0, "echo": True,
                                          "logprobs": 2})[1]["choices"][0]
    assert got.text == raw["text"] and [t.logprob for t in got.first.logprobs] == raw["logprobs"]["token_logprobs"], got
    many = c.complete(["One day", "Two days"], n=2, seed=1, max_tokens=2)
    assert [x.index for x in many.choices] == [0, 1, 2, 3]
    assert c.complete(c.tokenize("One sunny morning,"), max_tokens=4, temperature=0).text == c.complete("One sunny morning,", max_tokens=4, temperature=0).text
    with c.complete_stream("One sunny morning,", max_tokens=8, temperature=0, logprobs=1) as stream:
        streamed = stream.answer()
    assert "One sunny morning," + streamed.text == got.text and streamed.usage.completion_tokens == 8 and streamed.first.logprobs


def vectors(c, server):
    raw = server.post("/v1/embeddings", {"model": "demo", "input": ["a cat", "a dog"], "encoding_format": "base64"})[1]
    want = [array.array("f", base64.b64decode(d["embedding"])).tolist() for d in raw["data"]]
    got = c.embed(["a cat", "a dog"])
    assert got.vectors == want and got.prompt_tokens == raw["usage"]["prompt_tokens"] and len(got.vectors[0]) == 512
    assert len(c.embed("a cat", dimensions=4).vectors[0]) == 4
    assert c.embed([c.tokenize("a cat")]).vectors == c.embed("a cat").vectors


def texts(c, server):
    tokens = c.tokenize("Hello world")
    assert tokens == server.post("/tokenize", {"content": "Hello world"})[1]["tokens"]
    assert [p.id for p in c.pieces("Hello world")] == tokens and "".join(p.piece for p in c.pieces("Hello world")) == "Hello world"
    assert c.detokenize(tokens) == "Hello world"
    assert len(c.tokenize("<|im_start|>", parse_special=False)) > len(c.tokenize("<|im_start|>")) == 1
    assert SUM in c.render(SUM) and "get_weather" in c.render(SUM, tools=[get_weather])
    for options in ({}, {"tools": [get_weather]}, {"enable_thinking": True}):
        assert c.count(SUM, **options) == c.chat(SUM, max_tokens=1, **options).usage.prompt_tokens
    raises(TypeError, c.count, SUM, temperature=0)


# --- tools ---

class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(TypedDict, total=False):
    lat: float
    lon: float


def get_weather(city: str) -> dict:
    """Get the weather in a city"""
    return {"weather": "sunny", "degrees": 21}


def everything(a: int, who: Person, unit: Unit, kind: Literal["x", "y"], tags: List[str], sizes: Dict[str, float], at: Optional[Place] = None,
               n: float = 1.5, *, deep: "Optional[List[Person]]" = None):
    """Does everything.

    Args:
        a: the first number
            of two
        kind (str): which one
    """
    return [a, who, unit, kind, tags, sizes, at, n, deep]


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"],
          "additionalProperties": False, "description": "A person."}


def schemas():
    made = tool(everything)
    p = made.parameters["properties"]
    assert made.description.startswith("Does everything.") and made.parameters["required"] == ["a", "who", "unit", "kind", "tags", "sizes"]
    assert p["a"] == {"type": "integer", "description": "the first number of two"} and p["who"] == PERSON
    assert p["unit"] == {"enum": ["celsius", "fahrenheit"]} and p["kind"] == {"enum": ["x", "y"], "description": "which one"}
    assert p["tags"] == {"type": "array", "items": {"type": "string"}} and p["sizes"] == {"type": "object", "additionalProperties": {"type": "number"}}
    place = {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": [], "additionalProperties": False}
    assert p["at"] == {"anyOf": [place, {"type": "null"}]}, p["at"]
    assert p["deep"] == {"anyOf": [{"type": "array", "items": PERSON}, {"type": "null"}]} and p["n"] == {"type": "number"}
    given = {"a": 1, "who": {"name": "Anna", "age": 31}, "unit": "celsius", "kind": "x", "tags": ["t"], "sizes": {"s": 1}, "at": {"lat": 1},
             "deep": [{"name": "B", "age": 2}]}
    bound = made.bind(json.dumps(given))
    assert bound["who"] == Person("Anna", 31) and bound["unit"] is Unit.C and bound["at"] == {"lat": 1.0} and bound["deep"] == [Person("B", 2)]
    for change in ({"a": "1"}, {"who": {"name": "x"}}, {"who": {"name": "x", "age": 1, "z": 1}}, {"unit": "kelvin"}, {"kind": "z"}, {"tags": "t"},
                   {"zork": 1}, {"a": True}):
        raises(ValueError, made.bind, json.dumps({**given, **change}))
    raises(ValueError, made.bind, '{"a": 1}')
    for wrong in (lambda *args: 1, lambda **kw: 1, unknown_type):
        raises(TypeError, tool, wrong)


def unknown_type(a: bytes):
    return a


def tools(c, server):
    seen = []

    def broken(city: str) -> str:
        """Get the weather in a city"""
        raise RuntimeError("the sensor is broken")

    run = c.run_tools(WEATHER, [get_weather], temperature=0, on_call=seen.append)
    assert run.text == "It is sunny in Paris, with 21 degrees." and run.rounds == 2 and not run.exhausted
    assert [(x.name, x.parsed(), x.complete) for x in seen] == [("get_weather", {"city": "Paris"}, True)]
    assert [m["role"] for m in run.messages] == ["user", "assistant", "tool", "assistant"]
    told = c.run_tools(WEATHER, [tool(broken, name="get_weather")], temperature=0, max_rounds=2).messages[2]
    assert json.loads(told["content"]) == {"error": "RuntimeError: the sensor is broken"}, told
    once = c.run_tools(WEATHER, [get_weather], temperature=0, max_rounds=1)
    assert once.exhausted and once.answer.tool_calls and once.rounds == 1
    calls = []
    for n in range(9, 20):  # every place at which the call can be cut
        cut = c.run_tools(WEATHER, [tool(lambda city: calls.append(city), name="get_weather", description="Get the weather in a city")],
                          temperature=0, max_tokens=n)
        assert cut.answer.finish_reason == "length" and not any(x.complete for x in cut.answer.tool_calls) and cut.rounds == 1, cut
        assert "tool_calls" not in cut.messages[-1]
    assert calls == []
    with c.chat_stream(WEATHER, tools=[get_weather], temperature=0) as stream:
        kinds = [e.kind for e in stream]
        streamed = stream.so_far
    assert "tool_begin" in kinds and "tool_arguments" in kinds and streamed.tool_calls[0].parsed() == {"city": "Paris"}
    assert streamed.tool_calls[0].complete
    raises(TypeError, c.run_tools, "x", [get_weather_dict()])


def get_weather_dict():
    return tool(get_weather).as_dict()


# --- models and requests ---

def models(c, server):
    assert "demo" in [m.id for m in c.models.list()]
    shown = c.models.show("demo")
    assert "tools" in shown.capabilities and shown.model_info["general.architecture"] == "llama" and "im_start" in shown.template
    c.models.load("demo", keep_alive="10m")
    assert {m.id: m.status for m in c.models.list()}["demo"] == "loaded"
    c.models.copy("demo", "second")
    assert "second" in {m.id.split(":")[0] for m in c.models.list()}
    c.models.delete("second")
    assert "second" not in {m.id.split(":")[0] for m in c.models.list()}
    assert raises(hearth.NotFound, c.models.delete, "second").message == "there is no model 'second'"
    c.models.unload("demo")
    assert {m.id: m.status for m in c.models.list()}["demo"] == "unloaded"


def pulls(c, server, hub):
    hub.control({"delay": 0.02})
    with c.models.pull("tiny") as stream:  # left in the middle
        first = next(p for p in stream if p.total)
    assert 0 <= first.completed < first.total == os.path.getsize(DEMO), first
    eventually(lambda: not [p for p in server.get("/v1/pulls")[1]["data"] if p["state"] == "running"], 10)
    hub.control({})
    with c.models.pull("tiny") as stream:
        steps = list(stream)
    assert steps[-1].status == "success" and "tiny" in {m.id.split(":")[0] for m in c.models.list()}, steps[-1]
    c.models.pull("tiny").wait()
    c.models.delete("tiny")
    assert isinstance(raises(hearth.BadRequest, lambda: c.models.pull("not a name").wait()).status, int)
    hub.control({"gone": True})
    raises(hearth.StreamFailed, lambda: c.models.pull("tiny").wait())
    hub.control({})


def requests(c, server):
    with c.complete_stream(**long_one()) as stream:
        next(iter(stream))
        running = {r.id: r for r in c.requests.list()}
        assert running[stream.request_id].path == "/v1/completions" and running[stream.request_id].model == "demo", running
        c.requests.cancel(stream.request_id)
        why = raises(hearth.StreamFailed, stream.answer)
        assert "cancelled" in str(why) and why.request_id == stream.request_id, why
    assert raises(hearth.NotFound, c.requests.cancel, "req-0000000000000000").status == 404
    stats, health = c.stats(), c.health()
    assert stats.uptime_seconds > 0 and stats.resident_bytes > 0 and "steps" in stats.raw and "demo" in {m["name"] for m in stats.models}
    assert health.status == "ok" and health.version == hearth.__version__


def abandoned(c, server):
    """A stream that is left ends on the server, long before its tokens do."""
    def leave():
        with c.complete_stream(**long_one()) as stream:
            next(e for e in stream if e.kind == "content")
            return stream.request_id

    before = c.stats().tokens_generated
    name = leave()
    eventually(lambda: name not in {r["id"] for r in server.get("/v1/requests")[1]["data"]}, 10)
    eventually(lambda: server.get("/v1/stats")[1]["running"] == 0, 10)
    assert server.get("/v1/stats")[1]["tokens_generated"] - before < 2500


def slow(c, server):
    """A consumer that reads slowly loses nothing."""
    n = 60 if QUICK else 500
    whole = c.complete(**long_one(n)).text
    with c.complete_stream(**long_one(n)) as stream:
        text = ""
        for i, event in enumerate(stream):
            text += event.text
            if i in (1, 20):
                time.sleep(0.4)
    assert text == whole and len(whole) > 100


def main():
    checks, hub = Checks(), Hub()
    checks.run(schemas)
    try:
        with Server(sys.argv[1], env={"HEARTH_OLLAMA_REGISTRY": hub.url}) as server:
            kinds = {"Client": Client(server.ready["url"], model="demo"), "AsyncClient": driven(AsyncClient("unix:" + server.socket_path, model="demo"))}
            for name, client in kinds.items():
                print(name)
                for check in (chats, shapes, streams, completions, vectors, texts, tools, requests, abandoned, slow, models):
                    checks.run(check, client, server)
                checks.run(pulls, client, server, hub)
            for other in (Client("unix:" + server.socket_path, model="demo"), driven(AsyncClient(server.ready["url"], model="demo"))):
                assert other.chat(SUM, temperature=0).text == "12 plus 30 is 42."
    finally:
        hub.close()
    checks.exit()


main()
