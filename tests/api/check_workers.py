# SPDX-License-Identifier: Apache-2.0
"""Models in processes of their own, through the real server: killed under load, signalled, orphaned, crowded out."""
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from hearth_server import Checks, Connection, Server, chat_text, encode, eventually, in_threads

PROGRAM = sys.argv[1]
KILLS = 100 if os.environ.get("HEARTH_LONG") else 6
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
DEMO, DRAFT = os.path.join(MODELS, "demo.gguf"), os.path.join(MODELS, "draft.gguf")
THREE = ("--model", f"victim={DEMO}", "--model", f"other={DEMO}", "--model", f"third={DRAFT}", "--threads", "1", "--parallel", "8")
QUICK = os.environ.get("HEARTH_QUICK") == "1"
PROMPTS = 3 if QUICK else 6


def body_of(model, i, **fields):
    body = {"model": model, "messages": [{"role": "user", "content": f"Tell me a story about a fox and the number {i}."}],
            "temperature": 0.7, "seed": i, "max_tokens": 8 if QUICK else 30 + i, "stream": True}
    body.update(fields)
    return body


def pids(server):
    return {m["name"]: m.get("pid", 0) for m in server.get("/v1/stats")[1]["models"]}


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def is_reaped(pid):
    return not os.path.exists(f"/proc/{pid}")


def ask(server, model, i):
    """('text', answer) or ('error', sentence); anything else is a failure of the test."""
    with Connection(server) as c:
        c.send(encode("POST", "/v1/chat/completions", json.dumps(body_of(model, i)).encode()))
        status, headers = c.head()
        if status != 200:
            error = json.loads(c._exactly(int(headers["content-length"])))["error"]["message"]
            assert status >= 500, (status, error)
            return "error", error
        events = b"".join(c.chunks()).decode().split("\n\n")
        errors = [e for e in events if e.startswith("data: {") and "error" in json.loads(e[6:])]
        if errors:
            return "error", json.loads(errors[-1][6:])["error"]["message"]
        text, finish, done = chat_text([e for e in events if e])
        assert done and finish, events[-3:]
        return "text", text


def killed_under_load(server):
    """A worker killed with -9 at random moments: its requests end with an error, the others' answers are those of a quiet
    server, and the next request is answered."""
    rng = random.Random(5)
    solo = {(m, i): ask(server, m, i) for m in ("victim", "other", "third") for i in range(PROMPTS)}
    assert all(kind == "text" and text for kind, text in solo.values()), solo
    stop, lock, count = threading.Event(), threading.Lock(), {"text": 0, "error": 0, "others": 0}

    def follow(model, i):
        while not stop.is_set():
            kind, text = ask(server, model, i)
            if kind == "text":
                assert text == solo[model, i][1], (model, text, solo[model, i])
            else:
                assert model == "victim" and "worker ended unexpectedly (signal 9" in text, (model, text)
            with lock:
                count[kind if model == "victim" else "others"] += 1

    def kill():
        try:
            for k in range(KILLS):
                if k % 3:
                    time.sleep(rng.random() * 0.12)
                pid = 0
                while not pid or is_reaped(pid):  # the one killed before stands in the list until the server has noticed
                    pid = pids(server)["victim"]
                os.kill(pid, signal.SIGKILL)
                eventually(lambda: is_reaped(pid), 10, 0.0005)
                if k % 3 < 2:  # otherwise the next one falls into the start of its successor
                    assert ask(server, "victim", k % PROMPTS) == solo["victim", k % PROMPTS]
        finally:
            stop.set()

    before = pids(server)
    in_threads([lambda i=i: follow("victim", i) for i in range(PROMPTS)] +
               [lambda i=i: follow("other", i) for i in range(2)] + [lambda: follow("third", 0), kill])
    after = pids(server)
    assert before["other"] == after["other"] and before["third"] == after["third"], (before, after)
    assert count["error"] > 0, count
    return f"{KILLS} kills: {count['error']} requests ended with an error, {count['text']} were answered; {count['others']} of other models, all right"


def signals_are_ignored(server):
    """What a terminal or a service manager sends to the whole group does not end a worker."""
    server.chat("hi", model="victim", max_tokens=1)
    pid = pids(server)["victim"]
    results = []
    t = threading.Thread(target=lambda: results.append(ask(server, "victim", 1)))
    t.start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    t.join()
    assert results[0][0] == "text", results
    assert pids(server)["victim"] == pid


def environment_is_empty(server):
    """A worker knows neither keys nor tokens, and has only its socket besides the standard descriptors and its model."""
    pid = pids(server)["victim"]
    with open(f"/proc/{pid}/environ", "rb") as f:
        names = [v.split(b"=")[0].decode() for v in f.read().split(b"\0") if v]
    assert not [n for n in names if not n.endswith("SAN_OPTIONS")], names
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = f.read()
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status


def crowded_out(program):
    """Three models, places for two: requests in random order from several clients are all answered."""
    rng = random.Random(9)
    with Server(program, *THREE, "--max-loaded", "2") as server:
        solo = {(m, i): ask(server, m, i) for m in ("victim", "other", "third") for i in range(2)}

        def client(seed):
            mine = random.Random(seed)
            for _ in range(2 if QUICK else 5):
                key = mine.choice(sorted(solo))
                assert ask(server, *key) == solo[key]

        in_threads([lambda s=rng.random(): client(s) for _ in range(4)])
        assert sum(p > 0 for p in pids(server).values()) <= 2


def no_orphans(program):
    server = Server(program, *THREE)
    try:
        server.chat("hi", model="victim", max_tokens=1)
        server.chat("hi", model="third", max_tokens=1)
        workers = [p for p in pids(server).values() if p]
        assert len(workers) == 2
        server.process.kill()
        server.process.wait()
        return f"gone after {eventually(lambda: all(is_gone(p) for p in workers), 10, 0.001) * 1e3:.0f} ms"
    finally:
        server.process.kill()
        server.log.close()
        server.dir.cleanup()


def worker_by_hand(program):
    """The command is not in the list, and refuses to run without its socket."""
    listed = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    assert "\n  worker" not in listed
    done = subprocess.run([program, "worker"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "started by hearth serve" in done.stderr, done


def bad_frames_end_it(program):
    """A worker that reads something that is not a frame, or a request at the wrong time, ends; so does one whose socket closes."""
    def frame(kind, body=b"", version=1):
        return struct.pack("<IBBHQ", len(body), version, kind, 0, 0) + body

    cases = {b"GET / HTTP/1.1\r\nHost: x\r\n\r\n": 3, frame(2, b"x" * 20): 3, frame(0, b"short"): 3, frame(0, version=2): 3,
             frame(200): 3, struct.pack("<IBBHQ", 0xffffffff, 1, 0, 0, 0): 3, b"": 3}
    for data, code in cases.items():
        ours, theirs = socket.socketpair()
        worker = subprocess.Popen([program, "worker", "--parent", str(os.getpid())], stderr=subprocess.PIPE,
                                  preexec_fn=lambda fd=theirs.fileno(): os.dup2(fd, 3), close_fds=False)
        theirs.close()
        ours.sendall(data)
        if not data:
            ours.close()
        assert worker.wait(timeout=30) == code, (data, worker.returncode, worker.stderr.read())
        worker.stderr.close()
        ours.close()


def main():
    checks = Checks()
    with Server(PROGRAM, *THREE) as server:
        checks.run(killed_under_load, server)
        checks.run(signals_are_ignored, server)
        checks.run(environment_is_empty, server)
    checks.run(crowded_out, PROGRAM)
    checks.run(no_orphans, PROGRAM)
    checks.run(worker_by_hand, PROGRAM)
    checks.run(bad_frames_end_it, PROGRAM)
    checks.exit()


main()
