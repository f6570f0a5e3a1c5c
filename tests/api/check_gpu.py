# SPDX-License-Identifier: Apache-2.0
"""`hearth serve` on a GPU, inside its sandbox and without being told: every stream equal to its solo run, device memory over
many requests, a worker killed under load, two models side by side. Without a device it says so and passes.

check_gpu.py HEARTH [STREAMS REQUESTS [MODEL]]; HEARTH_TEST_DEVICE=cpu runs what does not need a GPU."""
import http.client
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

from hearth_server import LOOPBACK, Checks, Server, in_threads

PROGRAM = sys.argv[1]
STREAMS = int(sys.argv[2]) if len(sys.argv) > 2 else 24
REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 200
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DRAFT = os.path.join(ROOT, "models", "demo", "draft.gguf")
MODEL = sys.argv[4] if len(sys.argv) > 4 else DRAFT
DEVICE = os.environ.get("HEARTH_TEST_DEVICE", "cuda:0")
TOKENS = 24
CLIENTS = min(48, REQUESTS)
WORDS = "the fire in a hearth burns slow and warm while snow falls on roof tiles far from any town or road we know".split()


def has_device():
    checks = json.loads(subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, check=False).stdout)["checks"]
    return DEVICE == "cpu" or any(c["check"] == "gpu" and c["message"].startswith(DEVICE) for c in checks)


def body_of(i, tokens, model="m", stream=False):
    pick = random.Random(i)
    return {"model": model, "prompt": " ".join(pick.choice(WORDS) for _ in range(3 + i % 40)), "max_tokens": tokens,
            "temperature": 0.8 if i % 3 == 0 else 0, "seed": i, "stream": stream, "ignore_eos": True}


def ask(connection, i, tokens, model="m"):
    """(text, None) or (None, why)."""
    connection.request("POST", "/v1/completions", json.dumps(body_of(i, tokens, model)), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    return (body["choices"][0]["text"], None) if answer.status == 200 else (None, body["error"]["message"])


def stream(server, i):
    text = ""
    for event in server.stream("/v1/completions", body_of(i, TOKENS, stream=True)):
        if event.startswith("data: {"):
            chunk = json.loads(event[6:])
            assert "error" not in chunk, event
            text += "".join(c["text"] for c in chunk["choices"])
    return text


def connect(server):
    return http.client.HTTPConnection(LOOPBACK, server.port, timeout=120)


def model_of(server, name="m"):
    return next(m for m in server.get("/v1/stats")[1]["models"] if m["name"] == name)


def memory(pid):
    """MiB of the device that a process has, as its driver counts; None: not known."""
    if DEVICE == "cpu":
        return None
    lines = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, check=False).stdout.splitlines()
    found = [line.split(",")[1].strip() for line in lines if line.split(",")[0].strip() == str(pid)]
    return int(found[0]) if found and found[0].isdigit() else None


def placed(server):
    """Nobody named a device: it is the GPU, behind both walls, and everybody is told."""
    text, why = ask(connect(server), 1, 4)
    assert why is None and text is not None, why
    m = model_of(server)
    assert m["device"] == DEVICE and m["device_bytes"][DEVICE] > 0, m
    assert DEVICE in server.get("/v1/stats")[1]["budget_bytes"]
    ps = server.get("/api/ps")[1]["models"][0]
    assert ps["size_vram"] == (0 if DEVICE == "cpu" else m["device_bytes"][DEVICE]), ps
    assert server.get("/v1/fit?model=m")[1]["device"] == DEVICE
    metrics = server.request("GET", "/metrics")[2].decode()
    assert f'hearth_device_memory_bytes{{device="{DEVICE}",kind="models"}}' in metrics
    log = server.log_text()
    assert "no new privileges, system-call filter, Landlock" in log and "computes on the CPU" not in log, log


def streams_like_solo(server):
    c = connect(server)
    solo = [ask(c, i, TOKENS) for i in range(STREAMS)]
    assert all(why is None for _, why in solo), solo
    got = {}

    def follow(i):
        got[i] = stream(server, i)

    begin = time.monotonic()
    in_threads([lambda i=i: follow(i) for i in range(STREAMS)])
    different = [i for i in range(STREAMS) if got[i] != solo[i][0]]
    assert not different, (different[:10], got[different[0]], solo[different[0]])
    return f"{STREAMS} streams in {time.monotonic() - begin:.1f} s"


def client(port, number, requests, results):
    answers, why = 0, None
    c = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
    for i in range(requests):
        try:
            text, error = ask(c, number * 1000 + i % 200, 6)
        except (OSError, http.client.HTTPException) as e:
            text, error = None, repr(e)
            c = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
        answers += text is not None
        why = why or error
    results.put((answers, why))


def load(server, requests, meanwhile=None):
    """Many short requests from processes of their own: how many were answered, and the first error of each client."""
    results = multiprocessing.Queue()
    each = [requests // CLIENTS + (k < requests % CLIENTS) for k in range(CLIENTS)]
    clients = [multiprocessing.Process(target=client, args=(server.port, k, n, results)) for k, n in enumerate(each)]
    for p in clients:
        p.start()
    if meanwhile:
        meanwhile()
    got = [results.get(timeout=120) for _ in clients]
    for p in clients:
        p.join()
    return sum(a for a, _ in got), [w for _, w in got if w]


def no_leak(server):
    load(server, min(REQUESTS, 500))  # graphs of every size are recorded
    pid = model_of(server)["pid"]
    before, begin = memory(pid), time.monotonic()
    answers, errors = load(server, REQUESTS)
    took, after = time.monotonic() - begin, memory(pid)
    assert answers == REQUESTS and not errors, (answers, errors[:3])
    assert model_of(server)["pid"] == pid
    # graphs of sizes that come up late take 2 MiB at a time
    assert before is None or after <= before + 4, (before, after)
    return f"{REQUESTS} requests in {took:.1f} s, device memory {before} MiB before and {after} after"


def killed(server):
    """Requests of a killed worker end with a reason; the next one gets a new worker on the same device."""
    c = connect(server)
    first = ask(c, 2, TOKENS)
    pid = model_of(server)["pid"]

    def kill():
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)

    answers, errors = load(server, 40 * CLIENTS, kill)
    assert all("ended unexpectedly (signal 9" in e for e in errors), errors[:3]
    begin = time.monotonic()
    assert ask(c, 2, TOKENS) == first
    m = model_of(server)
    assert m["pid"] != pid and m["device"] == DEVICE
    return f"{answers} of {40 * CLIENTS} answered, the next after {time.monotonic() - begin:.1f} s"


def side_by_side(server):
    c = connect(server)
    alone = ask(c, 3, TOKENS)
    assert ask(c, 3, TOKENS, "other")[1] is None and ask(c, 3, TOKENS) == alone
    both = [model_of(server), model_of(server, "other")]
    assert all(m["device"] == DEVICE for m in both) and both[0]["pid"] != both[1]["pid"]


def forced(unused):
    with Server(PROGRAM, "--model", f"m={DRAFT}", "--device", "cpu") as server:
        assert ask(connect(server), 1, 4)[1] is None
        assert model_of(server)["device"] == "cpu" and server.get("/api/ps")[1]["models"][0]["size_vram"] == 0


if not has_device():
    print(f"skipped: no device ({DEVICE})")
    sys.exit(0)
checks = Checks()
with Server(PROGRAM, "--model", f"m={MODEL}", "--model", f"other={DRAFT}", "--parallel", "64", log_level="info") as running:
    for check in (placed, streams_like_solo, no_leak, killed, side_by_side, forced):
        checks.run(check, running)
checks.exit()
