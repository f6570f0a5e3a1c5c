# SPDX-License-Identifier: Apache-2.0
"""The units of systemd: well-formed, narrow, and the server works behind what they forbid.

usage: check_unit.py PROGRAM ENCLOSE DIRECTORY     (DIRECTORY: system/hearth.service, system/hearth.socket, user/hearth.service)

systemd-analyze judges the files and tells what its sets of system calls contain. Then `enclose` builds the same walls, and a
real server with real workers runs behind them; as root also as another user, with the file system read-only. What only a
running systemd does (control groups with their devices, PrivateUsers, ProtectProc) is not tried here.
"""
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.request
import zlib

PROGRAM, ENCLOSE, UNITS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3])
SANDBOX = ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
NOBODY = 65534


def analyze(*arguments, **more):
    done = subprocess.run(["systemd-analyze", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    return done.returncode, done.stdout


def settings(path):
    """Every assignment of a unit, in order."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


def members(name):
    """A call, or the calls of a set, as this systemd has them."""
    if not name.startswith("@"):
        return {name}
    code, text = analyze("syscall-filter", name)
    assert code == 0, text
    found = [line.strip() for line in text.splitlines()[1:]]
    return set().union(*(members(m) for m in found if m and not m.startswith("#")))


def allowed_calls(path):
    """systemd.exec(5): the first line makes it an allow-list, "~" takes away, and always there is @default."""
    calls = members("@default")
    for key, value in settings(path):
        if key != "SystemCallFilter":
            continue
        named = set().union(*(members(n) for n in value.lstrip("~").split()))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def well_formed(directory):
    """systemd-analyze verify says nothing; and it would, were a key wrong."""
    for kind, unit in (("system", "hearth.service"), ("system", "hearth.socket"), ("user", "hearth.service")):
        for wrong in (False, True):
            place = pathlib.Path(directory) / f"{kind}-{wrong}"
            place.mkdir(exist_ok=True)
            for f in (UNITS / kind).iterdir():  # without a manual page, and with a program that is there
                text = re.sub("(?m)^ExecStart=[^ ]+", "ExecStart=" + PROGRAM, re.sub("(?m)^Documentation=.*\n", "", f.read_text()))
                (place / f.name).write_text(text.replace("Description=", "Descripton=") if wrong else text)
            code, said = analyze("verify", "--man=no", f"--{kind}", str(place / unit), env=dict(os.environ, XDG_RUNTIME_DIR=directory))
            assert ("Unknown key" in said) if wrong else (code == 0 and said.strip() == ""), (unit, said)


def narrow():
    code, said = analyze("security", "--offline=true", "--threshold=15", str(UNITS / "system/hearth.service"), env=dict(os.environ, LC_ALL="C"))
    assert code == 0, said[-300:]
    return re.search("exposure level[^0-9]*([0-9.]+[0-9])", said).group(1)


def time_to_stop():
    """Longer than draining, and than the 30 s that a worker has to end."""
    row = subprocess.run([PROGRAM, "config", "reference"], stdout=subprocess.PIPE, text=True, check=True).stdout
    drain = int(re.search(r"`transport.drain_timeout`[^`]*`(\d+)s`", row).group(1))
    for unit in ("system/hearth.service", "user/hearth.service"):
        assert int(dict(settings(UNITS / unit))["TimeoutStopSec"]) > drain + 30 + 5, unit


def picture():
    """A PNG of 32 x 32 red points."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + b"\xff\0\0" * 32) * 32
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def others_reach(path):
    """Whether a user who owns nothing may run it."""
    return all(p.stat().st_mode & 1 for p in (path, *path.parents))


def quietly(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Service:
    """The unit's program behind the unit's walls; without calls, in the open. Its directories lie in one place, where the unit's
    environment leads."""

    def __init__(self, directory, unit, calls):
        self.dir = tempfile.mkdtemp(dir=directory)
        os.chmod(directory, 0o755)
        root = os.geteuid() == 0 and all(others_reach(pathlib.Path(p)) for p in (PROGRAM, ENCLOSE))
        environment = {"PATH": os.environ["PATH"], "HEARTH_PORT": "0", "HEARTH_PRELOAD": "demo"}
        for word in " ".join(v for k, v in settings(unit) if k == "Environment").split():
            name, path = word.split("=")
            environment[name] = self.dir + path
            os.makedirs(self.dir + path + "/hearth", exist_ok=True)
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        names = {"AF_UNIX": socket.AF_UNIX, "AF_INET": socket.AF_INET, "AF_INET6": socket.AF_INET6}
        families = ",".join(str(int(names[f])) for f in dict(settings(unit))["RestrictAddressFamilies"].split())
        pathlib.Path(self.dir + "/calls").write_text("\n".join(sorted(calls)), encoding="ascii")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.dir + "/notify")
        self.notify.settimeout(60)
        environment["NOTIFY_SOCKET"] = self.dir + "/notify"
        command = [PROGRAM, "serve", "--ready-json"]
        if calls:
            command = [ENCLOSE, self.dir + "/calls", families, str(NOBODY if root else -1), *command]
        if calls and root:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", self.dir], check=True)
        if calls and root and quietly("unshare", "--mount", "--ipc", "mount", "-o", "remount,bind,ro", "/"):
            walls = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
            command = ["unshare", "--mount", "--ipc", "sh", "-c", walls, self.dir, *command]
        self.log = open(self.dir + "/log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, env=environment, cwd="/")
        line = self.process.stdout.readline()
        assert line, self.log_text()
        self.url = json.loads(line)["url"]
        assert self.notify.recv(100) == b"READY=1"

    def log_text(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            print(self.log_text()[-3000:])
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.notify.close()


def content(words, image=None):
    parts = [{"type": "text", "text": words}]
    if image:
        parts.append({"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(image).decode()}})
    return parts


QUESTION = {"model": "demo", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0}


def walls_of(service):
    """What the worker of the demo says about its own walls."""
    service.ask("/v1/chat/completions", QUESTION)
    return re.search("worker: demo: (sandbox: .*)", service.log_text()).group(1)


def serves(directory, kind, walls):
    unit = UNITS / kind / "hearth.service"
    calls = allowed_calls(unit)
    assert set(SANDBOX) <= calls and "bpf" not in calls and "mount" not in calls
    with Service(directory, unit, calls) as s:
        assert walls_of(s) == walls
        answer = s.ask("/v1/chat/completions", QUESTION)
        assert answer["choices"][0]["message"]["content"] == "12 plus 30 is 42.", answer
        seen = {"model": "vision-demo", "messages": [{"role": "user", "content": content("What do you see?", picture())}], "temperature": 0, "max_tokens": 20}
        assert s.ask("/v1/chat/completions", seen)["choices"][0]["message"]["content"]
        s.process.send_signal(signal.SIGHUP)
        assert s.notify.recv(100).startswith(b"RELOADING=1") and s.notify.recv(100) == b"READY=1"
        s.process.send_signal(signal.SIGTERM)
        assert s.notify.recv(100) == b"STOPPING=1" and s.process.wait(60) == 0


def needs_its_names(directory, walls):
    """Without the calls that the unit names beside systemd's sets a worker has fewer walls: what is built here is real."""
    unit = UNITS / "system/hearth.service"
    with Service(directory, unit, allowed_calls(unit) - set(SANDBOX)) as s:
        assert "Landlock" not in walls or walls_of(s) != walls


def main():
    if not shutil.which("systemd-analyze"):
        print("skipped: no systemd-analyze")
        return
    with tempfile.TemporaryDirectory() as directory:
        well_formed(directory)
        print("units are well-formed; exposure", narrow())
        time_to_stop()
        with Service(directory, UNITS / "system/hearth.service", ()) as s:
            walls = walls_of(s)
        for kind in ("system", "user"):
            serves(directory, kind, walls)
            print("serves behind the walls of the", kind, "unit; workers:", walls)
        needs_its_names(directory, walls)
        print("workers have fewer walls without the calls that the unit names")


main()
