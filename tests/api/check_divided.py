# SPDX-License-Identifier: Apache-2.0
"""A model that is larger than a GPU: as much of it there as fits, the rest on the CPU, without being told.

check_divided.py SOFT_HEARTH, a program whose GPU is in software (tests/gpu), so that its memory can be chosen."""
import json
import os
import subprocess
import sys
import tempfile

from hearth_server import Checks, Server

PROGRAM = sys.argv[1]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DEMO = os.path.join(ROOT, "models", "demo", "demo.gguf")
MIB = 1 << 20


def gpu(total, taken=0, chip=90, count=1):
    return {"CUDA_DEVICE_ORDER": f"soft:{chip}:{total * MIB}:{taken * MIB}:{count}"}


def info(model, *options, **where):
    done = subprocess.run([PROGRAM, "info", model, "--json", *options], capture_output=True, text=True, check=False,
                          env=dict(os.environ, **gpu(**where)))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answer(server):
    status, body = server.post("/v1/chat/completions", {"model": "demo", "temperature": 0, "max_tokens": 12,
                                                        "messages": [{"role": "user", "content": "What is 12 plus 30?"}]})
    assert status == 200, body
    return body["choices"][0]["message"]["content"]


def stats(server):
    return next(m for m in server.get("/v1/stats")[1]["models"] if m["name"] == "demo")


def layers_that_fit():
    """The less memory, the fewer layers; each time what is said to be there fits."""
    seen = []
    for total in (1200, 760, 700, 690, 660):
        x = info(DEMO, total=total)
        device, memory = x["device"], x["memory"]
        seen.append(8 if device == "cuda:0" else 0 if device == "cpu" else int(device.removeprefix("cuda:0/")))
        assert device == "cpu" or memory["device"] <= memory["device_limit"] < total * MIB, x
    assert seen == sorted(seen, reverse=True) and seen[0] == 8 and seen[-1] == 0 and 0 < seen[2] < 8, seen


def experts_first():
    """Of a mixture everything but experts stays on the GPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "moe.gguf")
        subprocess.run([PROGRAM, "debug", "random-model", "--arch", "qwen3moe", "--layers", "8", "--dim", "256", "--ff", "512",
                        "--heads", "4", "--experts", "32", "--experts-used", "4", "--vocab", "512", "--context", "512",
                        "--set", "expert_feed_forward_length=512", path], check=True, capture_output=True)
        all_there = info(path, total=4000)
        assert all_there["device"] == "cuda:0", all_there
        bytes_there = all_there["memory"]["device"] // MIB
        seen = [info(path, total=(bytes_there - less) * 10 // 9)["device"] for less in (10, 30, 60, 90)]
        counts = [int(d.removeprefix("cuda:0/experts:")) for d in seen]
        assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1], seen
        compared = subprocess.run([PROGRAM, "logits", path, "--ids", "1,2,3,4", "--device", "cuda:0/experts:3", "--compare-scalar"],
                                  capture_output=True, text=True, check=False, env=dict(os.environ, **gpu(4000)))
        assert compared.returncode == 0, compared.stderr


def served():
    """The same answer as ever; everybody is told where the model is."""
    with Server(PROGRAM, "--model", f"demo={DEMO}", env=gpu(700)) as server:
        assert answer(server) == "12 plus 30 is 42."
        m = stats(server)
        assert m["device"].startswith("cuda:0/") and m["device_bytes"]["cuda:0"] > 0 and m["device_bytes"]["cpu"] > 0, m
        ps = server.get("/api/ps")[1]["models"][0]
        assert 0 < ps["size_vram"] == m["device_bytes"]["cuda:0"] < ps["size"], ps
        assert "layers are on cuda:0, the others on the CPU" in server.log_text(), server.log_text()


def others_use_the_memory():
    """There should be room for all of it, and there is not: less and less is tried."""
    with Server(PROGRAM, "--model", f"demo={DEMO}", env=gpu(1200, taken=1100)) as server:
        assert answer(server) == "12 plus 30 is 42."
        m = stats(server)
        assert m["device"].startswith("cuda:0/"), m
        assert "the model is tried on cuda:0/" in server.log_text(), server.log_text()
    with Server(PROGRAM, "--model", f"demo={DEMO}", env=gpu(1200, taken=1190)) as server:
        assert answer(server) == "12 plus 30 is 42."
        assert stats(server)["device"] == "cpu", stats(server)


def several():
    """As few GPUs as hold it together; then all of them and the CPU; or those that were named."""
    seen = [info(DEMO, total=total, count=3)["device"] for total in (1200, 800, 700, 600)]
    assert seen == ["cuda:0", "cuda:0+cuda:1", "cuda:0/2+cuda:1/3+cuda:2/2", "cpu"], seen
    with Server(PROGRAM, "--model", f"demo={DEMO}", env=gpu(720, count=2)) as server:
        # The file is small: one context is made, and the CPU has what one GPU has no room for.
        assert answer(server) == "12 plus 30 is 42."
        assert stats(server)["device"].startswith("cuda:0/"), stats(server)
    with Server(PROGRAM, "--model", f"demo={DEMO}", "--device", "cuda:0+cuda:1", env=gpu(1200, count=2)) as server:
        assert answer(server) == "12 plus 30 is 42."
        m = stats(server)
        assert m["device"] == "cuda:0+cuda:1" and all(m["device_bytes"][d] > 0 for d in ("cuda:0", "cuda:1")), m
        ps = server.get("/api/ps")[1]["models"][0]
        assert ps["size_vram"] == m["device_bytes"]["cuda:0"] + m["device_bytes"]["cuda:1"], ps


def side_by_side():
    """A second model goes to the GPU that has more room."""
    with Server(PROGRAM, "--model", f"demo={DEMO}", "--model", f"other={DEMO}", env=gpu(1200, count=2)) as server:
        for model in ("demo", "other"):
            status, body = server.post("/v1/completions", {"model": model, "prompt": "1", "max_tokens": 1})
            assert status == 200, body
        at = {m["name"]: m["device"] for m in server.get("/v1/stats")[1]["models"]}
        assert at == {"demo": "cuda:0", "other": "cuda:1"}, at


def chosen():
    """What was asked for, or a reason why not."""
    with Server(PROGRAM, "--model", f"demo={DEMO}", "--gpu-layers", "2", env=gpu(4000)) as server:
        assert answer(server) == "12 plus 30 is 42."
        assert stats(server)["device"] == "cuda:0/2", stats(server)
    assert info(DEMO, "--gpu-layers", "0", total=4000)["device"] == "cpu"
    for all_of_it in ("8", "experts:2"):
        assert info(DEMO, "--gpu-layers", all_of_it, total=4000)["device"] == "cuda:0"
    for options, why in ((["--gpu-layers", "many"], "neither auto nor a number"),
                         (["--device", "cpu", "--gpu-layers", "3"], "with the device cpu"),
                         (["--device", "cuda:0+cuda:1", "--gpu-layers", "3"], "says itself where the layers are"),
                         (["--device", "cuda:0+cuda:1"], "there is no device 'cuda:1'"),
                         (["--device", "cuda:0/2+cuda:0"], "either all devices behind the first"),
                         (["--device", "cuda:0/experts:2+cuda:0/3"], "between the CPU and one device")):
        done = subprocess.run([PROGRAM, "info", DEMO, *options], capture_output=True, text=True, check=False,
                              env=dict(os.environ, **gpu(4000)))
        assert done.returncode != 0 and why in done.stderr, (options, done.stderr)


checks = Checks()
for check in (layers_that_fit, experts_first, served, others_use_the_memory, several, side_by_side, chosen):
    checks.run(check)
checks.exit()
