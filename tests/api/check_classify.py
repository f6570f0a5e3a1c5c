# SPDX-License-Identifier: Apache-2.0
"""POST /classify in vLLM's form: probabilities of the golden classifiers through the server and its sandboxed workers, and every
mistake with the field that it is in."""
import json
import os
import sys

from hearth_server import Checks, Server

PROGRAM = sys.argv[1]
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
DATA = json.load(open(os.path.join(FOLDER, "encoder_texts.json"), encoding="utf-8"))
MODELS = {"nli": "deberta_nli", "moods": "albert_moods", "topics": "bert_topics", "decoder": "qwen3_moods", "rank": "deberta_rerank",
          "plain": "bert_mean"}
PATH = "/v1/classify"


def golden(name):
    return json.load(open(os.path.join(FOLDER, "encoders", MODELS[name], "golden.json")))


def near(model, got, want):
    """A decoder's keys and values are kept as halves."""
    bound = 1e-3 if model == "decoder" else 2e-5
    return len(got) == len(want) and all(abs(a - b) < bound for a, b in zip(got, want))


def answers(server):
    """Pairs, then single texts; those without an empty text, which are refused."""
    items = DATA["pairs"] + DATA["texts"][: len(DATA["pairs"])]
    kept = [i for i, x in enumerate(items) if x and all(x)]
    for model in ("nli", "moods", "topics", "decoder"):
        want = golden(model)
        status, got = server.post(PATH, {"model": model, "input": [items[i] for i in kept]})
        assert status == 200, got
        assert list(got) == ["id", "object", "created", "model", "data", "labels", "usage"], list(got)
        assert got["id"].startswith("classify-") and got["object"] == "list" and got["model"] == model, got
        assert got["labels"] == want["labels"], got["labels"]
        assert [d["index"] for d in got["data"]] == list(range(len(kept)))
        for d, i in zip(got["data"], kept):
            probs = want["probs"][i]
            assert near(model, d["probs"], probs), (model, i, d["probs"], probs)
            assert d["label"] == want["labels"][probs.index(max(probs))] and d["num_classes"] == len(probs), d
            assert model == "topics" or abs(sum(d["probs"]) - 1) < 1e-5, d
        usage = got["usage"]
        assert usage["prompt_tokens"] == usage["total_tokens"] > 0 and usage["completion_tokens"] == 0, usage
        alone = server.post("/classify", {"model": model, "input": items[kept[-1]]})[1]
        assert alone["data"][0]["probs"] == got["data"][-1]["probs"], alone  # the same bytes alone
    many = server.post(PATH, {"model": "moods", "input": [DATA["texts"][0]] * 200})[1]["data"]
    assert len(many) == 200 and len({json.dumps(d["probs"]) for d in many}) == 1


def tokens(server):
    ids = server.post("/tokenize", {"model": "moods", "content": DATA["texts"][0], "add_special": True})[1]["tokens"]
    by_text = server.post(PATH, {"model": "moods", "input": DATA["texts"][0]})[1]
    for body in (ids, [ids]):
        got = server.post(PATH, {"model": "moods", "input": body})[1]
        assert got["data"] == by_text["data"] and got["usage"] == by_text["usage"], got


def one_class(server):
    """A reranker is a classifier with one class; a classifier with several is no reranker."""
    query, document = DATA["pairs"][0]
    score = golden("rank")["scores"][0]
    ranked = server.post("/v1/rerank", {"model": "rank", "query": query, "documents": [document]})[1]["results"]
    assert abs(ranked[0]["relevance_score"] - score) < 2e-5, (ranked, score)
    got = server.post(PATH, {"model": "rank", "input": [[query, document]]})[1]
    assert got["labels"] == ["LABEL_0"] and got["data"][0]["probs"] == [ranked[0]["relevance_score"]], got
    status, error = server.post("/v1/rerank", {"model": "nli", "query": query, "documents": [document]})
    assert status == 400 and "no ranking head" in error["error"]["message"], error


def lengths(server):
    body = {"model": "moods", "input": "word " * 2000}
    status, error = server.post(PATH, body)
    assert status == 400 and "the context holds 300" in error["error"]["message"], error
    status, got = server.post(PATH, dict(body, truncate=True))
    assert status == 200 and got["usage"]["prompt_tokens"] == 300, got
    for most, n in ((-1, 300), (8, 8), (5000, 300)):
        status, got = server.post(PATH, dict(body, truncate_prompt_tokens=most))
        assert status == 200 and got["usage"]["prompt_tokens"] == n, (most, got)
    status, got = server.post(PATH, {"model": "nli", "input": [["word " * 2000, "a"]]})  # pairs are cut, as a reranker's
    assert status == 200 and got["usage"]["prompt_tokens"] == 300, got


def limited_pairs(server):
    """The longer text of a pair loses its end first, so that the other one still counts."""
    def ask(a, b, most):
        status, got = server.post(PATH, {"model": "nli", "input": [[a, b]], "truncate_prompt_tokens": most})
        assert status == 200, (a, b, most, got)
        return got["usage"]["prompt_tokens"], got["data"][0]["probs"]
    tokens = lambda text: len(server.post("/tokenize", {"model": "nli", "content": text})[1]["tokens"])
    long, yes, no = "a " * 20, "a", "the"
    around = ask(yes, yes, 300)[0] - 2 * tokens(yes)
    n, probs = ask(long, yes, 8)
    assert n == 8 and ask(long, no, 8)[1] != probs != ask(yes, long, 8)[1] and ask(yes, long, 8)[0] == 8
    assert ask(long + long, yes, 8) == (n, probs) == ask("a " * (8 - around - tokens(yes)), yes, 300)
    assert ask(long, long, around + 2)[0] == around + 2
    for most in (1, around, around + 1):
        status, error = server.post(PATH, {"model": "nli", "input": [[long, yes]], "truncate_prompt_tokens": most})
        assert status == 400 and f"a limit of {most} tokens leaves nothing of two texts: {around} stand around them" in error["error"]["message"], error
    assert server.post(PATH, {"model": "nli", "input": long, "truncate_prompt_tokens": 3})[1]["usage"]["prompt_tokens"] == 3
    status, error = server.post(PATH, {"model": "nli", "input": long, "truncate_prompt_tokens": 2})
    assert status == 400 and "leaves nothing of a text: 2 stand around it" in error["error"]["message"], error


def mistakes(server):
    for value, where, sentence in (
            (None, "input", "is required"), ([], "input", "is empty"), ("", "input", "is an empty text"), (5, "input", "expected"),
            (["a", 5], "input[1]", "expected"), ([["a"]], "input[0]", "a pair has two"), ([["a", "b", "c"]], "input[0]", "a pair has two"),
            ([["a", 5]], "input[0][1]", "expected"), ([["a", ""]], "input[0][1]", "is an empty text"), ([[]], "input[0]", "is empty"),
            (["a"] * 3000, "input", "at most"), ({"a": 1}, "input", "expected")):
        status, error = server.post(PATH, {"model": "nli", "input": value})
        assert status == 400 and error["error"]["param"] == where and sentence in error["error"]["message"], (value, error)
    status, error = server.post(PATH, {"model": "nli", "input": "a", "truncate": "yes"})
    assert status == 400 and error["error"]["param"] == "truncate", error
    for name, value in (("use_activation", False), ("activation", False), ("add_special_tokens", False), ("add_special_tokens", "no"),
                        ("truncation_side", "left"), ("truncation_side", 1), ("truncate_prompt_tokens", 0), ("truncate_prompt_tokens", -2)):
        status, error = server.post(PATH, {"model": "nli", "input": "a", name: value})
        assert status == 400 and error["error"]["param"] == name, (name, error)
    plain = {"use_activation": True, "add_special_tokens": True, "truncation_side": "right", "activation": None}
    status, headers, _ = server.request("POST", PATH, json.dumps({"model": "nli", "input": "a", "softmax": 1, **plain}).encode(), headers={"Content-Type": "application/json"})
    assert status == 200 and headers["x-hearth-ignored"] == "softmax", headers
    status, error = server.post(PATH, {"model": "nli", "input": [99999]})
    assert status == 400 and "99999" in error["error"]["message"], error
    status, error = server.post(PATH, {"model": "plain", "input": "a"})
    assert status == 400 and "no classification head" in error["error"]["message"], error
    status, error = server.post(PATH, {"model": "nobody", "input": "a"})
    assert status == 404, error


def main():
    checks = Checks()
    args = [x for name, path in MODELS.items() for x in ("--model", f"{name}={os.path.join(FOLDER, 'encoders', path)}")]
    with Server(PROGRAM, *args) as server:
        for check in (answers, tokens, one_class, lengths, limited_pairs, mistakes):
            checks.run(check, server)
    checks.exit()


main()
