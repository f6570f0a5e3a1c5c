# SPDX-License-Identifier: Apache-2.0
"""Streams under load: equal to their solo runs, unharmed by others that are cut, drained on SIGTERM; /health stays quick."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from hearth_server import Checks, Connection, Server, chat_text, encode, eventually, in_threads, percentile

PROGRAM = sys.argv[1]
STREAMS = int(sys.argv[2]) if len(sys.argv) > 2 else 40  # of the load check; make soak takes 200
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 5
QUICK = os.environ.get("HEARTH_QUICK") == "1"  # a sanitizer's build: the same checks with fewer streams
DRAINED = 6 if QUICK else 20
CUTS = 12 if QUICK else 50
OPTIONS = ("--parallel", "16", "--threads", "2")


def body_of(i, **fields):
    body = {"model": "demo", "messages": [{"role": "user", "content": f"Tell me a story about a fox, a lamp and the number {i}."}],
            "temperature": 0.7, "seed": i, "max_tokens": 24 + i % 17, "stream": True}
    body.update(fields)
    return body


def streams_equal_solo_runs(server):
    """Each of many concurrent streams gives what it gives alone, for SECONDS."""
    solo = {i: chat_text(server.stream("/v1/chat/completions", body_of(i))) for i in range(min(STREAMS, 24))}
    gaps, runs, end = [], [0], time.monotonic() + SECONDS
    lock = threading.Lock()

    def follow(i):
        while True:
            times, events = [], []
            for event in server.stream("/v1/chat/completions", body_of(i % len(solo))):
                times.append(time.monotonic())
                events.append(event)
            assert chat_text(events) == solo[i % len(solo)], (chat_text(events), solo[i % len(solo)])
            with lock:
                gaps.extend(b - a for a, b in zip(times[1:], times[2:]))
                runs[0] += 1
            if time.monotonic() > end:
                return

    resident = resident_bytes(server)
    before, cpu, others, begin = server.get("/v1/stats")[1], io_seconds(server), process_seconds(server), time.monotonic()
    in_threads([lambda i=i: follow(i) for i in range(STREAMS)])
    took, cpu, after = time.monotonic() - begin, io_seconds(server) - cpu, server.get("/v1/stats")[1]
    others = [b - a for a, b in zip(others, process_seconds(server))]
    tokens = after["tokens_generated"] - before["tokens_generated"]
    percent = cpu / tokens * 2000 * 100
    before, after = resident, resident_bytes(server)
    assert after < before + (64 << 20), (before, after)
    assert percent < IO_LIMIT, f"the I/O thread takes {percent:.2f}% of a core at 2000 tokens/s"
    for text, finish, done in solo.values():
        assert text and finish in ("stop", "length") and done
    return (f"{runs[0]} streams, {STREAMS} at once, gap p50 {percentile(gaps, .5) * 1e3:.1f} ms, p99 {percentile(gaps, .99) * 1e3:.1f} ms, "
            f"memory {before >> 20} -> {after >> 20} MB; {tokens / took:.0f} tokens/s, of the I/O thread {cpu / tokens * 1e6:.1f} us each: "
            f"{percent:.2f}% of a core at 2000 tokens/s; of the whole server {others[0] / tokens * 1e6:.1f} us, of the worker "
            f"{others[1] / tokens * 1e6:.1f} us each")


# The promise is 5% of a core at 2000 tokens/s; a machine that other tests load gives a loose bound.
IO_LIMIT = float(os.environ.get("HEARTH_IO_PERCENT", "15"))


def io_seconds(server):
    """CPU time of the thread that owns the sockets, the first one of the server's process: user and system, with the kernel's part
    of sending, which on loopback is also the receiver's."""
    pid = server.ready["pid"]
    with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def processes(server):
    """The server's process and its workers'."""
    pids = [server.ready["pid"]]
    for task in os.listdir(f"/proc/{pids[0]}/task"):
        with open(f"/proc/{pids[0]}/task/{task}/children", encoding="ascii") as f:
            pids += f.read().split()
    return pids


def process_seconds(server):
    """CPU time of the server and of all its workers, all threads of each."""
    sums = []
    for pid in processes(server):
        total = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        sums.append(total / 1e9)
    return sums[0], sum(sums[1:])


def resident_bytes(server):
    """Of the server and its workers, without file pages that are mapped: weights come and go as the system likes."""
    total = 0
    for pid in processes(server):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            total += sum(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))
    return total


def busy(server, n, stop):
    """Keeps n streams running until stop is set."""
    def follow(i):
        while not stop.is_set():
            with Connection(server) as c:
                for _ in c.stream("/v1/chat/completions", body_of(i, max_tokens=200, ignore_eos=True)):
                    if stop.is_set():
                        break

    threads = [threading.Thread(target=follow, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    return threads


def health_is_quick_under_load(server):
    stop, times = threading.Event(), []
    threads = busy(server, 4 if QUICK else 16, stop)
    try:
        eventually(lambda: server.get("/health")[1]["requests"]["running"] >= (2 if QUICK else 8), 30)
        with Connection(server) as c:
            for _ in range(60 if QUICK else 300):
                begin = time.monotonic()
                c.send(encode("GET", "/health"))
                _, headers = c.head()
                times.append(time.monotonic() - begin)
                c._exactly(int(headers["content-length"]))
                time.sleep(0.005)
    finally:
        stop.set()
        for t in threads:
            t.join()
    p99 = percentile(times, .99)
    assert p99 < HEALTH_LIMIT, f"p99 {p99 * 1e3:.1f} ms"
    return f"p50 {percentile(times, .5) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"


# The promise is 20 ms on two cores. A sanitizer's build or a machine that other tests load proves nothing about it.
HEALTH_LIMIT = float(os.environ.get("HEARTH_HEALTH_MS", "250")) / 1e3


def cut_half(server, solo):
    """Half of CUTS streams cut at random moments, also in the prompt; the others are unharmed. Seconds from the last cut to the
    end of the last sequence without a client."""
    rng = random.Random(7)
    survivors = []

    def cut(i):
        long_prompt = "word " * 700 if i % 4 == 0 else "Tell me a long story."
        body = body_of(i, max_tokens=400, ignore_eos=True)
        body["messages"][0]["content"] = long_prompt
        body["user"] = str(i)
        if i % 8 == 2:
            body["stream"] = False  # nothing was sent to this client yet
        s = server.connect()
        s.sendall(encode("POST", "/v1/chat/completions", json.dumps(body).encode()))
        time.sleep(rng.random() * 1.5)
        s.close()

    def keep(i):
        assert chat_text(server.stream("/v1/chat/completions", body_of(i, max_tokens=CUT_TOKENS))) == solo[i]
        survivors.append(i)

    def only_survivors_left():
        alive = CUTS // 2 - len(survivors)  # counted first: it only falls
        running = server.get("/health")[1]["requests"]
        return len(server.get("/v1/requests")[1]["data"]) <= alive and running["running"] + running["waiting"] <= alive

    threads = [threading.Thread(target=cut if i % 2 == 0 else keep, args=(i,)) for i in range(CUTS)]
    cutters = [t for i, t in enumerate(threads) if i % 2 == 0]
    for t in threads:
        t.start()
    for t in cutters:
        t.join()
    took = eventually(only_survivors_left, 20, 0.001)
    for t in threads:
        t.join()
    assert len(survivors) == CUTS // 2, sorted(survivors)
    return took


def cut_one(server, i):
    """Seconds that a sequence lives after its client has gone."""
    body = body_of(i, max_tokens=400, ignore_eos=True, stream=i % 2 == 0)
    if i % 3 == 1:
        body["messages"][0]["content"] = f"{i} " + "word " * 800
    s = server.connect()
    s.sendall(encode("POST", "/v1/chat/completions", json.dumps(body).encode()))
    eventually(lambda: server.get("/health")[1]["requests"]["running"] > 0, 10, 0.001)
    s.close()
    return eventually(lambda: not server.get("/v1/requests")[1]["data"], 5, 0.002)


def disconnects_free_their_sequences(server):
    """Within GONE_SECONDS, with one more try where other work on the machine came between."""
    solo = {i: chat_text(server.stream("/v1/chat/completions", body_of(i, max_tokens=CUT_TOKENS))) for i in range(1, CUTS, 2)}
    tries = []
    while not tries or (tries[-1] > GONE_SECONDS and len(tries) < 2):
        tries.append(cut_half(server, solo))
    assert tries[-1] <= GONE_SECONDS, tries
    single = []
    for i in range(2 if QUICK else 6):
        took = cut_one(server, i)
        single.append(took if took <= GONE_SECONDS else cut_one(server, i + 6))
    assert percentile(single, .5) <= GONE_SECONDS and max(single) <= SLOWEST_SECONDS, single
    return (f"gone after {' '.join(f'{t * 1e3:.0f}' for t in tries)} ms; cut alone: median {percentile(single, .5) * 1e3:.0f} ms, "
            f"slowest {max(single) * 1e3:.0f} ms")


CUT_TOKENS = 24
GONE_SECONDS = float(os.environ.get("HEARTH_GONE_MS", "200")) / 1e3
SLOWEST_SECONDS = float(os.environ.get("HEARTH_SLOWEST_MS", GONE_SECONDS * 1e3)) / 1e3  # of those that are cut one by one


def cancel_by_id(server):
    with Connection(server) as c:
        events = c.stream("/v1/chat/completions", body_of(1, max_tokens=500, ignore_eos=True))
        next(events)
        next(events)
        (request,) = server.get("/v1/requests")[1]["data"]
        assert request["path"] == "/v1/chat/completions" and request["model"] == "demo"
        assert server.post(f"/v1/requests/{request['id']}/cancel", {})[0] == 200
        rest = list(events)
        assert json.loads(rest[-1][6:])["error"]["code"] == "cancelled", rest[-1]
    assert server.post("/v1/requests/req-unknown/cancel", {})[0] == 404


def slow_reader_pauses_alone(server):
    """A client that stops reading stops its own answer; when it reads on it gets every token, as if nothing had been."""
    if QUICK:
        return "left out: a slow model does not fill the socket's buffers"
    # 2 KB for each token: more than the socket's buffers, of which the system gives 1.3 MB to begin with.
    body = body_of(3, max_tokens=1200, ignore_eos=True, logprobs=True, top_logprobs=20)
    solo = list(server.stream("/v1/chat/completions", body))
    with Connection(server, receive=32768) as c:
        events = c.stream("/v1/chat/completions", body)
        next(events)
        eventually(lambda: server.get("/v1/stats")[1]["paused"] == 1, 30)
        text, finish, done = chat_text(server.stream("/v1/chat/completions", body_of(5)))
        assert text and finish and done
        assert [r["state"] for r in server.get("/v1/requests")[1]["data"]] == ["paused"]
        eventually(lambda: server.get("/v1/stats")[1]["running"] == 1, 5)
        before = server.get("/v1/stats")[1]
        time.sleep(0.2)
        after = server.get("/v1/stats")[1]
        assert before["paused"] == after["paused"] == 1 and before["steps"] == after["steps"], (before, after)
        rest = list(events)
        assert chat_text(rest) == chat_text(solo) and len(rest) == len(solo) - 1
    assert server.get("/v1/stats")[1]["paused"] == 0
    # A paused one that is cut is gone like any other.
    with Connection(server, receive=32768) as c:
        next(c.stream("/v1/chat/completions", body))
        eventually(lambda: server.get("/v1/stats")[1]["paused"] == 1, 30)
    eventually(lambda: not server.get("/v1/requests")[1]["data"], 5)
    eventually(lambda: server.get("/v1/stats")[1]["running"] == 0, 5)


def many_prompts_of_one_body(server):
    """More requests in one body than are submitted at once; the rest follows as others end, also while the reader is slow."""
    prompts = [f"The number {i} is" for i in range(18 if QUICK else 60)]
    body = {"model": "demo", "prompt": prompts, "max_tokens": 2 if QUICK else 24, "temperature": 0, "ignore_eos": True, "stream": True,
            "logprobs": 5}

    def texts(events):
        out = {}
        for event in events:
            if event.startswith("data: {"):
                for choice in json.loads(event[6:])["choices"]:
                    out[choice["index"]] = out.get(choice["index"], "") + choice["text"]
        return out

    alone = {i: texts(server.stream("/v1/completions", dict(body, prompt=prompts[i])))[0] for i in (0, 15, 16, len(prompts) - 1)}
    quick = texts(server.stream("/v1/completions", body))
    assert len(quick) == len(prompts) and all(quick[i] == alone[i] for i in alone), (quick, alone)
    with Connection(server, receive=32768) as c:
        events = c.stream("/v1/completions", body)
        got = [next(events)]
        if not QUICK:  # a slow model does not fill the socket's buffers
            eventually(lambda: server.get("/v1/stats")[1]["paused"] > 0, 30)
        got += list(events)
        assert texts(got) == quick and got[-1] == "data: [DONE]"
    vectors = server.post("/v1/embeddings", {"model": "demo", "input": prompts})[1]["data"]
    for i in (0, 15, 16, len(prompts) - 1):
        assert vectors[i]["index"] == i
        assert vectors[i]["embedding"] == server.post("/v1/embeddings", {"model": "demo", "input": prompts[i]})[1]["data"][0]["embedding"]
    # A client that leaves in the middle of it leaves nothing behind.
    with Connection(server, receive=32768) as c:
        next(c.stream("/v1/completions", body))
    eventually(lambda: not server.get("/v1/requests")[1]["data"], 10)


def slow_reader_is_dropped_alone(program):
    """A client that reads nothing is given up after the limit; another one does not notice."""
    if QUICK:
        return "left out: a slow model does not fill the socket's buffers"
    with Server(program, *OPTIONS, "--stall-seconds", "1") as server:
        body = body_of(3, max_tokens=900, ignore_eos=True, logprobs=True, top_logprobs=20, n=8)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.sendall(encode("POST", "/v1/chat/completions", json.dumps(body).encode()))
            text, finish, done = chat_text(server.stream("/v1/chat/completions", body_of(5)))
            assert text and finish and done
            eventually(lambda: not server.get("/v1/requests")[1]["data"], 60, 0.1)


def pipelined_answers_come_in_order(server):
    with Connection(server) as c:
        c.send(b"".join(encode("POST", "/tokenize", json.dumps({"content": "a" * i}).encode()) if i % 3 else encode("GET", "/health")
                        for i in range(1, 31)))
        for i in range(1, 31):
            status, _, body = c.answer()
            assert status == 200 and (("tokens" in json.loads(body)) == bool(i % 3)), (i, body)
        status, headers, body = c.request("HEAD", "/health")
        assert status == 200 and int(headers["content-length"]) > 10 and body == b""
        c.send(encode("POST", "/tokenize", None, {"Content-Length": "15", "Expect": "100-continue"}))
        while b"100 Continue" not in c.buffer:
            c._more()
        c.send(b'{"content":"x"}')
        assert c.answer()[0] == 200


def idle_connections_cost_nothing(server):
    n = 2000
    try:
        idle = [server.connect() for _ in range(n)]
    except OSError as why:
        return f"skipped: {why}"
    try:
        eventually(lambda: server.get("/v1/stats")[1]["connections"] > n, 10)
        assert server.chat("What is 2 plus 3?", max_tokens=4)[0] == 200
        with open(f"/proc/{server.ready['pid']}/stat", encoding="ascii") as f:
            before = sum(int(v) for v in f.read().split()[13:15])
        time.sleep(1)
        with open(f"/proc/{server.ready['pid']}/stat", encoding="ascii") as f:
            ticks = sum(int(v) for v in f.read().split()[13:15]) - before
        assert ticks <= 10, ticks
        return f"{n} connections, {ticks} ticks of CPU in a second"
    finally:
        for s in idle:
            s.close()


def term_under_load_drains(program):
    """Every accepted stream ends properly, the exit code is 0, new connections are refused."""
    with Server(program, *OPTIONS, "--drain-seconds", "60") as server:
        solo = {i: chat_text(server.stream("/v1/chat/completions", body_of(i, max_tokens=20))) for i in range(DRAINED)}
        got, started = {}, threading.Barrier(DRAINED + 1)

        def follow(i):
            with Connection(server) as c:
                events = c.stream("/v1/chat/completions", body_of(i, max_tokens=20))
                first = next(events)
                started.wait()
                got[i] = chat_text([first] + list(events))

        threads = [threading.Thread(target=follow, args=(i,)) for i in range(DRAINED)]
        for t in threads:
            t.start()
        started.wait()
        server.process.send_signal(signal.SIGTERM)
        def refused():
            try:
                server.connect(2).close()
                return False
            except (ConnectionRefusedError, ConnectionResetError):  # reset: accepted by the system as the listener closed
                return True
        eventually(refused, 5)
        for t in threads:
            t.join()
        took = server.stop()
        assert got == solo
        return f"the rest took {took:.1f} s"


def drain_limit_holds(program):
    """A long answer and an unfinished body are cut at the limit; the stream is told."""
    with Server(program, *OPTIONS, "--drain-seconds", "0.2") as server:
        half = server.connect()
        half.sendall(encode("POST", "/tokenize", None, {"Content-Length": "100"}) + b'{"con')
        with Connection(server) as c:
            events = c.stream("/v1/chat/completions", body_of(1, max_tokens=3500, ignore_eos=True, n=8))  # seconds on any machine
            next(events)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            rest = list(events)
            server.stop()
            took = time.monotonic() - begin
            assert took < 6, took
            assert rest[-1] != "data: [DONE]", "the answer was over before the limit"
            assert json.loads(rest[-1][6:])["error"]["message"] == "the server is stopping", rest[-1]
        half.close()
        return f"{took:.1f} s"


def reload_changes_keys_and_level(program):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "keys")
        level = os.path.join(directory, "level")
        with open(path, "w", encoding="ascii") as f:
            f.write("# ours\nold:key-number-one\n")
        with open(level, "w", encoding="ascii") as f:
            f.write("error\n")
        with Server(program, "--api-key-file", path, "--log-level-file", level) as server:
            def status(key):
                return server.request("GET", "/v1/models", headers={"x-api-key": key})[0]
            assert status("key-number-one") == 200 and status("key-number-two") == 401
            assert "GET /v1/models" not in server.log_text()
            with open(path, "w", encoding="ascii") as f:
                f.write("new:key-number-two\n")
            with open(level, "w", encoding="ascii") as f:
                f.write("info\n")
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: status("key-number-two") == 200, 5)
            assert status("key-number-one") == 401
            assert "GET /v1/models" in server.log_text()


def systemd_hands_over_a_socket(program):
    """Socket activation, readiness, signs of life, a reload and the end, by hand."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as log, socket.socket() as listening, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        notify.bind(os.path.join(directory, "notify"))
        notify.settimeout(20)
        environment = dict(os.environ, XDG_STATE_HOME=directory, NOTIFY_SOCKET=os.path.join(directory, "notify"), LISTEN_FDS="1",
                           HEARTH_API_KEYS="a:test-key-1", HEARTH_PORT="1", WATCHDOG_USEC="100000")
        child = subprocess.Popen(["sh", "-c", 'exec 3<&0; LISTEN_PID=$$ exec "$0" serve --log-level warn', program], stdin=listening,
                                 stdout=subprocess.DEVNULL, stderr=log, env=environment)
        try:
            assert notify.recv(100) == b"READY=1"
            assert notify.recv(100) == b"WATCHDOG=1" and notify.recv(100) == b"WATCHDOG=1"
            child.send_signal(signal.SIGHUP)
            told = [t for t in iter(lambda: notify.recv(100), b"READY=1") if t != b"WATCHDOG=1"]
            assert len(told) == 1 and told[0].startswith(b"RELOADING=1\nMONOTONIC_USEC="), told
            with socket.create_connection(listening.getsockname(), timeout=10) as s:
                s.sendall(encode("GET", "/v1/models", headers={"x-api-key": "test-key-1", "Connection": "close"}))
                assert s.recv(100).startswith(b"HTTP/1.1 200")
            child.send_signal(signal.SIGTERM)
            assert [t for t in iter(lambda: notify.recv(100), b"STOPPING=1") if t != b"WATCHDOG=1"] == []
            assert child.wait(timeout=20) == 0
            log.seek(0)
            assert "HEARTH_PORT: transport.port does not hold" in log.read()
        finally:
            child.kill()
            child.wait()


def main():
    checks = Checks()
    with Server(PROGRAM, *OPTIONS) as server:
        assert server.chat("What is 12 plus 30?")[1]["choices"][0]["message"]["content"] == "12 plus 30 is 42."
        for check in (pipelined_answers_come_in_order, cancel_by_id, many_prompts_of_one_body, disconnects_free_their_sequences):
            checks.run(check, server)
        for check in () if QUICK else (slow_reader_pauses_alone, streams_equal_solo_runs, health_is_quick_under_load, idle_connections_cost_nothing):
            checks.run(check, server)
    for check in (slow_reader_is_dropped_alone, term_under_load_drains, drain_limit_holds, reload_changes_keys_and_level,
                  systemd_hands_over_a_socket):
        checks.run(check, PROGRAM)
    checks.exit()


main()
