# SPDX-License-Identifier: Apache-2.0
"""The programs that people point at a local server, unmodified, each to its final answer (make test-clients).

    run.py HEARTH [CASE...]

Each program is installed first, where it is not yet (install.py). A scripted model (scripted.py) says what the next step is; everything between it and the program is real: the request with
all its tools and texts, the template, the grammar of the call, the protocol, the tool itself. All of it runs in a network
namespace that has loopback only, so that a program which asks elsewhere notices that it cannot.
"""
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import install
import scripted

HERE = Path(__file__).resolve().parent
CASES = {}
MORE_MODELS = {"instructor_modes_json": ('{"city": "Paris"}',)}  # of cases that need another one


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


class Room:
    """One case's own home, work folder, and the server's address."""

    def __init__(self, name, base, url, log):
        self.name, self.url, self.log = name, url, log
        self.home, self.work = base / name / "home", base / name / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        subprocess.run(["git", "init", "-q", "."], cwd=self.work, check=True)

    def run(self, program, *arguments, env=None, timeout=150):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", "CI": "1", "LANG": "C.UTF-8",
                       "XDG_DATA_HOME": str(self.home / "data"), "XDG_CONFIG_HOME": str(self.home / "config"), "XDG_CACHE_HOME": str(self.home / "cache")}
        environment.update(env or {})
        r = subprocess.run([str(install.PROGRAMS / program / "node_modules/.bin" / program), *arguments], cwd=self.work, env=environment, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, text=True, errors="replace")
        assert r.returncode == 0, f"{program} ended with {r.returncode}: {r.stdout[-3000:]}"
        return r.stdout

    def put(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def has(self, name, text):
        file = self.work / name
        assert file.exists(), f"{name} was not written"
        assert file.read_text() == text, file.read_text()


def case(program, *steps):
    """The function's name is the case's and the model's; steps may be a function of the room's work folder."""
    def keep(function):
        CASES[function.__name__] = (program, steps, function)
        return function
    return keep


def said(text, what):
    assert what in text, text[-3000:]


# --- Claude Code ---

def claude(room, *arguments):
    env = {"ANTHROPIC_BASE_URL": room.url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": room.name,
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return room.run("claude", "-p", *arguments, env=env)


@case("claude", "All is well in this house.")
def claude_turn(room):
    said(claude(room, "How are things?"), "All is well in this house.")


@case("claude", lambda work: call("Write", file_path=f"{work}/note.txt", content="one two three\n"),
      lambda work: call("Edit", file_path=f"{work}/note.txt", old_string="two", new_string="2"),
      "The note is written and changed.")
def claude_edits_a_file(room):
    said(claude(room, "Write a note, then change it.", "--permission-mode", "acceptEdits"), "The note is written and changed.")
    room.has("note.txt", "one 2 three\n")


# --- Codex ---

def codex(room, *arguments, more=""):
    room.put(room.home / ".codex/config.toml", f'model = "{room.name}"\nmodel_provider = "hearth"\n[model_providers.hearth]\nname = "hearth"\n'
             f'base_url = "{room.url}/v1"\nwire_api = "responses"\n{more}')
    return room.run("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", *arguments)


@case("codex", "Nothing to report from here.")
def codex_turn(room):
    said(codex(room, "Anything to report?"), "Nothing to report from here.")


@case("codex", call("exec_command", cmd="echo written in a shell > shell.txt"), "The shell has done its work.")
def codex_runs_a_shell(room):
    said(codex(room, "Write a file."), "The shell has done its work.")
    room.has("shell.txt", "written in a shell\n")


@case("codex", call("mcp__notes__keep_note", text="milk and bread"), "The note is kept for you.")
def codex_calls_an_mcp_tool(room):
    more = f'[mcp_servers.notes]\ncommand = "python3"\nargs = ["{HERE}/mcp_notes.py", "{room.work}/kept.txt"]\n'
    said(codex(room, "Keep a note.", more=more), "The note is kept for you.")
    room.has("kept.txt", "milk and bread")


@case("codex", "The open source model is here.")
def codex_oss(room):
    room.put(room.home / ".codex/config.toml", 'model_provider = "ollama"\n')
    text = room.run("codex", "exec", "--oss", "--local-provider", "ollama", "-m", room.name, "--dangerously-bypass-approvals-and-sandbox", "Who is here?",
                    env={"CODEX_OSS_BASE_URL": room.url + "/v1"})
    said(text, "The open source model is here.")


# --- other agents ---

@case("opencode", call("bash", command="echo open > code.txt"), "The code is open to all.")
def opencode_runs_a_shell(room):
    config = {"provider": {"hearth": {"npm": "@ai-sdk/openai-compatible", "name": "hearth", "options": {"baseURL": room.url + "/v1", "apiKey": "none"},
                                      "models": {room.name: {"name": room.name}}}},
              "small_model": f"hearth/{room.name}", "autoupdate": False, "share": "disabled", "permission": {"edit": "allow", "bash": "allow"}}
    room.put(room.work / "opencode.json", json.dumps(config))
    text = room.run("opencode", "run", "-m", f"hearth/{room.name}", "Write a file.", env={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"})
    said(text, "The code is open to all.")
    room.has("code.txt", "open\n")


@case("qwen", lambda work: call("write_file", file_path=f"{work}/qwen.txt", content="written by a script\n"), "The file is there by now.")
def qwen_writes_a_file(room):
    env = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": room.url + "/v1", "OPENAI_MODEL": room.name, "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"}
    said(room.run("qwen", "-p", "Write a file.", "--yolo", "--auth-type", "openai", env=env), "The file is there by now.")
    room.has("qwen.txt", "written by a script\n")


@case("cn", lambda work: call("Write", filepath=f"{work}/cn.txt", content="to be continued\n"), "To be continued tomorrow.")
def continue_writes_a_file(room):
    room.put(room.home / "config.yaml", f"name: local\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: {room.name}\n    provider: openai\n    model: {room.name}\n"
             f"    apiBase: {room.url}/v1\n    apiKey: none\n    roles: [chat]\n    capabilities: [tool_use]\n")
    text = room.run("cn", "-p", "--auto", "--config", str(room.home / "config.yaml"), "Write a file.", env={"CONTINUE_TELEMETRY_ENABLED": "0"})
    said(text, "To be continued tomorrow.")
    room.has("cn.txt", "to be continued\n")


@case("pi", call("bash", command="echo 3.14 > pi.txt"), "The circle is squared at last.")
def pi_runs_a_shell(room):
    models = {"providers": {"hearth": {"baseUrl": room.url + "/v1", "api": "openai-completions", "apiKey": "none",
                                       "models": [{"id": room.name, "name": room.name, "contextWindow": 200000, "maxTokens": 4096}]}}}
    room.put(room.home / ".pi/agent/models.json", json.dumps(models))
    said(room.run("pi", "-p", "--provider", "hearth", "--model", room.name, "Square the circle."), "The circle is squared at last.")
    room.has("pi.txt", "3.14\n")


@case("promptfoo", "Promises are kept around here.")
def promptfoo_evaluates(room):
    config = {"prompts": ["Say something about {{topic}}"], "tests": [{"vars": {"topic": "promises"}, "assert": [{"type": "contains", "value": "kept around"}]}],
              "providers": [{"id": f"openai:chat:{room.name}", "config": {"apiBaseUrl": room.url + "/v1", "apiKey": "none"}},
                            {"id": f"ollama:chat:{room.name}"}, {"id": f"anthropic:messages:{room.name}", "config": {"apiBaseUrl": room.url, "apiKey": "none"}}]}
    room.put(room.work / "promptfooconfig.json", json.dumps(config))
    room.run("promptfoo", "eval", "-c", "promptfooconfig.json", "--no-cache", "-o", "out.json", env={
        "OLLAMA_BASE_URL": room.url, "PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1"})
    stats = json.loads((room.work / "out.json").read_text())["results"]["stats"]
    assert stats["successes"] == 3 and stats["failures"] == 0, stats


# --- frameworks: one Node program each ---

def framework(name):
    @case(name, call("get_weather", city="Paris"), "It is sunny in Paris today.")
    def run(room):
        r = subprocess.run(["node", "main.mjs", room.url, room.name], cwd=install.PROGRAMS / name, env={"PATH": os.environ["PATH"], "HOME": str(room.home)},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, text=True)
        assert r.returncode == 0, r.stdout[-3000:]
        said(r.stdout, "ok")
    CASES[name] = CASES.pop("run")


for file in sorted(install.PROGRAMS.glob("*/main.mjs")):
    framework(file.parent.name)


# --- running ---

def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def prompt_tokens(log):
    return max([int(n) for n in re.findall(r"(\d+) prompt tokens", log)] or [0])


def chosen(wanted):
    unknown = [n for n in wanted if n not in CASES]
    if unknown:
        sys.exit(f"unknown case {unknown[0]}; there are: {' '.join(CASES)}")
    return [n for n in CASES if not wanted or n in wanted]


def install_all(names):
    """What cannot be installed fails as a case; the others run."""
    for program in sorted({CASES[n][0] for n in names}):
        why = install.install(program)
        if why:
            print(f"{program} could not be installed: {why}", flush=True)


def main(hearth, names):
    base = Path(tempfile.mkdtemp(prefix="hearth-clients-"))
    models = base / "models"
    models.mkdir()
    options = []
    for name in names + list(MORE_MODELS):
        work = base / name / "work"
        steps = MORE_MODELS[name] if name in MORE_MODELS else CASES[name][1]
        scripted.write(models / f"{name}.gguf", [s(work) if callable(s) else s for s in steps])
        options += ["--model", f"{name}={models / name}.gguf"]
    log_path = base / "log"
    failed = 0
    with open(log_path, "w", encoding="utf-8") as log:
        env = dict(os.environ, XDG_STATE_HOME=str(base), XDG_RUNTIME_DIR=str(base), XDG_DATA_HOME=str(base))
        server = subprocess.Popen([hearth, "serve", "--port", "0", "--no-socket", "--no-config", "--ready-json", "--max-loaded", "2", *options],
                                  stdout=subprocess.PIPE, stderr=log, env=env, text=True)
        url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        for name in names:
            begin, at = time.monotonic(), log_path.stat().st_size
            try:
                CASES[name][2](Room(name, base, url, log_path))
                verdict = "ok"
            except (AssertionError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as why:
                verdict, failed = "FAILED", failed + 1
                print(why)
            part = log_path.read_text(encoding="utf-8", errors="replace")[at:]
            if verdict != "ok":
                print(part[-1500:])
            print(f"check {verdict} {name} ({time.monotonic() - begin:.1f} s; {prompt_tokens(part)} prompt tokens)", flush=True)
        server.terminate()
        if server.wait(timeout=60) != 0:
            print("check FAILED the server did not end well")
            failed += 1
    shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    names = chosen(sys.argv[2:])
    if os.environ.get("HEARTH_ALONE") != "1":
        if subprocess.run(["unshare", "-rn", "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            print("skipped: no network namespace may be made here (unshare -rn)")
            sys.exit(0)
        install_all(names)
        os.execvpe("unshare", ["unshare", "-rn", sys.executable, *sys.argv], dict(os.environ, HEARTH_ALONE="1"))
    loopback_up()
    sys.exit(main(os.path.abspath(sys.argv[1]), names))
