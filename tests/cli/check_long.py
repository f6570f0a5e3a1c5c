#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands that take long (convert, quantize, merge, imatrix, compare, perplexity): a bar on a terminal, Ctrl-C,
SIGTERM, SIGHUP and a full disk leave nothing behind, and the latter names the bytes that are missing.

  check_long.py HEARTH
"""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

HEARTH = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models/demo/draft.gguf")  # small: this is about what happens around the work
TEXT = os.path.join(ROOT, "docs/convert.md")


def jobs(folder, source):
    """Every command with where it writes; None: it writes nothing."""
    out = os.path.join(folder, "out")
    return {
        "convert gguf": (["convert", source, out, "--type", "Q8_0"], out),
        "convert hf": (["convert", DEMO, out, "--to", "hf", "--shard-size", "1"], out),
        "convert mlx": (["convert", DEMO, out, "--to", "mlx", "--type", "4bit"], out),
        "quantize": (["quantize", DEMO, out, "Q4_0"], out),
        "merge": (["merge", DEMO, out, "--with", DEMO, "--method", "slerp"], out),
        "imatrix": (["imatrix", DEMO, TEXT, out, "--ctx", "64", "--chunks", "6"], out),
        "compare": (["compare", DEMO, DEMO, "--text", TEXT + ".short", "--svg", out], out),
        "perplexity": (["perplexity", DEMO, TEXT + ".short", "--ctx", "128"], None),
    }


def on_terminal(arguments, interrupt):
    """What a terminal shows, and the status. interrupt: this signal (SIGINT by its key) as soon as there is a bar."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(HEARTH, [HEARTH, *arguments])
    shown, sent = b"", False
    while True:
        if not select.select([terminal], [], [], 120)[0]:
            raise AssertionError(f"{arguments}: nothing for two minutes; so far {shown!r}")
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            more = b""
        if not more:
            break
        shown += more
        if interrupt and not sent and b"%" in shown:
            os.write(terminal, b"\x03") if interrupt == signal.SIGINT else os.kill(child, interrupt)
            sent = True
    os.close(terminal)
    return shown.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def check_bar(name, arguments, out, folder):
    shown, status = on_terminal(arguments, None)
    assert status == 0, (name, status, shown)
    assert re.search(r"\r *\d+% \[[#.]+\] .* of ", shown), (name, "no bar", shown)
    assert "\r\x1b[K" in shown[shown.rindex("%"):] or name in ("compare", "perplexity"), (name, "the bar stays", shown)
    if out:
        assert os.path.exists(out), name
        remove(out)
    assert os.listdir(folder) == [], (name, os.listdir(folder))


def check_interrupt(name, arguments, out, folder, by):
    """It may have been done before the signal came: then it ends well, or by the signal on its way out."""
    shown, status = on_terminal(arguments, by)
    done = status in (0, -by)
    assert done or status in (1, 130), (name, status, shown)
    assert done or "asked to stop" in shown, (name, shown)
    if out and done and os.path.exists(out):
        remove(out)
    assert os.listdir(folder) == [], (name, status, os.listdir(folder))


def check_disk(name, arguments, out, folder):
    """A file system of its own that is too small; without the right to make one this is left out."""
    bytes_free = 4096 if name in ("imatrix", "compare") else 1 << 20
    script = f'mount -t tmpfs -o size={bytes_free} none "{folder}" && "$@"; status=$?; echo --; ls -A "{folder}"; exit $status'
    got = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", HEARTH, *arguments],
                         capture_output=True, text=True)
    assert got.returncode == 1 and "missing" in got.stderr and re.search(r"\d+ are missing|\d+ bytes", got.stderr), (name, got)
    assert got.stdout.rsplit("--\n", 1)[1] == "", (name, got.stdout)


def can_mount():
    return subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
                          capture_output=True).returncode == 0


with tempfile.TemporaryDirectory() as temporary:
    source, folder = os.path.join(temporary, "source"), os.path.join(temporary, "work")
    os.mkdir(folder)
    TEXT = os.path.join(temporary, "text")
    words = open(os.path.join(ROOT, "docs/convert.md")).read()
    open(TEXT, "w").write(words)
    open(TEXT + ".short", "w").write(words[:2500])
    subprocess.run([HEARTH, "convert", DEMO, source, "--to", "hf"], check=True, capture_output=True)
    room = shutil.which("unshare") and can_mount()
    for job, (command, result) in jobs(folder, source).items():
        check_bar(job, command, result, folder)
        check_interrupt(job, command, result, folder, signal.SIGINT)
        if result:
            check_interrupt(job, command, result, folder, signal.SIGHUP if job == "quantize" else signal.SIGTERM)
        if result and room:
            check_disk(job, command, result, folder)
    got = json.loads(subprocess.run([HEARTH, "perplexity", DEMO, TEXT + ".short", "--json", "--ctx", "128", "--kv", "q8_0"],
                                    check=True, capture_output=True, text=True).stdout)
    plain = subprocess.run([HEARTH, "perplexity", DEMO, TEXT + ".short", "--ctx", "128", "--kv", "q8_0"], check=True,
                           capture_output=True, text=True).stdout
    said = re.search(r"perplexity ([\d.]+) \+/- ([\d.]+)[^$]*mean ([\d.]+)", plain)
    for text, value in zip(said.groups(), (got["perplexity"], got["perplexity_error"], got["kl_mean"])):
        assert abs(float(text) - value) <= 1e-6 + 1e-7 * value, (got, plain)
    assert 0 < got["same_top"] <= 1 and got["windows"] > 1, got
print("bars, signals" + (" and full disks" if room else "; full disks skipped: file systems cannot be mounted here"))
