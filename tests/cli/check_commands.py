#!/usr/bin/env python3
"""Every command of the program: --help, an unknown option, a missing argument, its error case, --json.

The commands come from `hearth man --json`, so a new one must be described in CASES before this passes.
Completion scripts run in their shells, man pages through groff, where those are installed.

usage: check_commands.py PROGRAM
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "models/demo/demo.gguf")
NOWHERE = "/nowhere/model.gguf"
HOME = tempfile.mkdtemp(prefix="hearth-commands-")
ENV = {"HOME": HOME, "PATH": os.path.dirname(PROGRAM) + ":" + os.environ["PATH"], "XDG_RUNTIME_DIR": HOME,
       "LC_ALL": "C.UTF-8", "HF_ENDPOINT": "http://127.0.0.1:1", "HEARTH_OLLAMA_REGISTRY": "http://127.0.0.1:1"}
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        ENV[name] = os.environ[name]

LINES = {"serve": 40, "debug options": 40, "run": 26, "debug random-model": 25}  # of --help; all others: one screen of 24
NOT_A_LISTING = None

# error: arguments that must fail, the status, and what must be said. json: arguments whose output must be JSON.
CASES = {
    "run": dict(error=([NOWHERE, "x"], 1, NOWHERE), json=["demo", "Hello", "--json", "-n", "4"]),
    "serve": dict(error=(["--model", "x=" + NOWHERE, "--port", "0"], 1, NOWHERE), json=NOT_A_LISTING),
    "embed": dict(error=([NOWHERE], 1, NOWHERE), json=NOT_A_LISTING),
    "pull": dict(error=(["owner/repo", "--quiet"], 1, "127.0.0.1"), json=NOT_A_LISTING),  # progress, see pull_json
    "bench": dict(error=([NOWHERE], 1, NOWHERE), json=["demo", "-p", "8", "-n", "2", "-t", "1", "--json"]),
    "perplexity": dict(error=([NOWHERE, "/nowhere/text"], 1, "/nowhere/"), json=["demo", str(ROOT / "Makefile"), "--ctx", "64", "--json"]),
    "convert": dict(error=([NOWHERE, HOME + "/o.gguf"], 1, NOWHERE), json=["demo", HOME + "/c.gguf", "--type", "Q8_0", "--dry-run", "--json"]),
    "quantize": dict(error=([NOWHERE, HOME + "/o.gguf", "Q8_0"], 1, NOWHERE),
                     json=["demo", HOME + "/q.gguf", "Q4_K_M", "--dry-run", "--json"]),
    "imatrix": dict(error=([NOWHERE, "/nowhere/text", HOME + "/i.gguf"], 1, NOWHERE),
                    json=["demo", str(ROOT / "VERSION"), HOME + "/i.gguf", "--json"]),
    "merge": dict(error=([NOWHERE, HOME + "/o.gguf", "--with", NOWHERE], 1, NOWHERE),
                  json=["demo", HOME + "/m.gguf", "--with", "demo", "--dry-run", "--json"]),
    "compare": dict(error=([NOWHERE, NOWHERE, "--text", "/nowhere/text"], 1, NOWHERE),
                    json=["demo", "demo", "--text", str(ROOT / "VERSION"), "--json"]),
    "list": dict(error=(["x"], 2, "unexpected argument 'x'"), json=["--json"]),
    "create": dict(error=(["mine", NOWHERE], 1, NOWHERE), json=NOT_A_LISTING),
    "adapter add": dict(error=(["nobody", NOWHERE], 1, "nobody"), json=NOT_A_LISTING),
    "adapter list": dict(error=(["nobody"], 1, "nobody"), json=["--json"]),
    "adapter show": dict(error=(["nobody", "x"], 1, "nobody"), json=NOT_A_LISTING),
    "adapter rm": dict(error=(["nobody", "x"], 1, "nobody"), json=NOT_A_LISTING),
    "cp": dict(error=(["nobody", "other"], 1, "nobody"), json=NOT_A_LISTING),
    "rm": dict(error=(["nobody"], 1, "nobody"), json=NOT_A_LISTING),
    "show": dict(error=([NOWHERE], 1, NOWHERE), json=["demo", "--json"]),
    "search": dict(error=(["--bogus"], 2, "--bogus"), json=["--json"]),
    "info": dict(error=([NOWHERE], 1, NOWHERE), json=["demo", "--json"]),
    "ps": dict(error=(["--host", "127.0.0.1:1"], 1, "127.0.0.1:1"), json=["--json"]),
    "stop": dict(error=(["demo", "--host", "127.0.0.1:1"], 1, "127.0.0.1:1"), json=NOT_A_LISTING),
    "config show": dict(error=([NOWHERE], 1, NOWHERE), json=["--json", "--origin"]),
    "config check": dict(error=(["/nowhere/server.yaml"], 1, "/nowhere/server.yaml"), json=NOT_A_LISTING),
    "config init": dict(error=(["--config", "/proc/nowhere/server.yaml"], 1, "/proc/nowhere"), json=NOT_A_LISTING),
    "config path": dict(error=(["a", "b"], 2, "unexpected argument 'b'"), json=NOT_A_LISTING),
    "config reference": dict(error=(["x"], 2, "unexpected argument 'x'"), json=NOT_A_LISTING),
    "completion": dict(error=(["tcsh"], 2, "tcsh"), json=NOT_A_LISTING),
    "doctor": dict(error=(["x"], 2, "unexpected argument 'x'"), json=["--json"]),
    "debug dequant": dict(error=(["--type", "Q9_9"], 2, "Q9_9"), json=NOT_A_LISTING),
    "debug kernels": dict(error=(["--cpu", "abacus"], 2, "abacus"), json=["--json"]),
    "debug gguf": dict(error=([NOWHERE, HOME + "/o.gguf"], 1, NOWHERE), json=NOT_A_LISTING),
    "debug random-model": dict(error=(["--arch", "nobody", HOME + "/o.gguf"], (1, 2), "nobody"), json=NOT_A_LISTING),
    "debug options": dict(error=(["--port", "http"], 2, "http"), json=[]),
    "debug masks": dict(error=(["--vocab", NOWHERE], 1, NOWHERE), json=NOT_A_LISTING),
    "debug sample": dict(error=(["--vocab", NOWHERE], 1, NOWHERE), json=NOT_A_LISTING),
    "version": dict(error=(["x"], 2, "unexpected argument 'x'"), json=["--json"]),
    "tokenize": dict(error=([NOWHERE, "--text", "x"], 1, NOWHERE), json=[DEMO, "--text", "x"]),
    "detokenize": dict(error=([NOWHERE, "--ids", "[1]"], 1, NOWHERE), json=NOT_A_LISTING),
    "logits": dict(error=([NOWHERE, "--ids", "1"], 1, NOWHERE), json=NOT_A_LISTING),
    "render": dict(error=([NOWHERE], 1, NOWHERE), json=NOT_A_LISTING),
    "worker": dict(error=([], 2, "started by hearth serve"), json=NOT_A_LISTING),
    "__complete": dict(error=None, json=NOT_A_LISTING),  # says nothing rather than fail: a shell waits for it
    "man": dict(error=(["nobody"], 2, "nobody"), json=["--json"]),
}

failures = []


def check(ok, *words):
    if not ok:
        failures.append(" ".join(str(w) for w in words))
        print("FAILED:", *words)


def run(*arguments, env=None, text=True):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=text, timeout=120,
                          env=env or ENV)


def fits(name, arguments, limit):
    r = run(*arguments)
    lines = r.stdout.splitlines()
    check(r.returncode == 0 and not r.stderr, name, "--help ends with", r.returncode, r.stderr)
    check(lines and lines[0].startswith("usage: hearth"), name, "--help begins with", lines[:1])
    check(max(map(len, lines), default=0) <= 80, name, "--help is wider than 80:", [l for l in lines if len(l) > 80])
    check(len(lines) <= limit, name, "--help has", len(lines), "lines")
    return r.stdout


def check_command(c):
    name, words = c["name"], c["name"].split()
    text = fits(name, words + ["--help"], LINES.get(name, 24))
    every = run(*words, "--help-all").stdout
    for o in c["options"]:
        check("--" + o["name"] in text, name, "--help does not name", o["name"])
        check("--" + o["name"] in every, name, "--help-all does not explain", o["name"])
    if name == "__complete":
        return
    r = run(*words, "--no-such-option")
    check(r.returncode == 2 and "unknown option --no-such-option" in r.stderr and r.stderr.startswith("hearth " + name + ": "),
          name, "and an unknown option:", r.returncode, r.stderr)
    valued = [o for o in c["options"] if o["kind"] in ("string", "int", "real")]
    if valued:
        r = run(*words, "--" + valued[0]["name"])
        check(r.returncode == 2 and "needs a value" in r.stderr, name, valued[0]["name"], r.returncode, r.stderr)
    if c["min_args"] > 0:
        r = run(*words)
        check(r.returncode == 2 and "argument is missing" in r.stderr, name, "without arguments:", r.returncode, r.stderr)
    if c["max_args"] >= 0:
        r = run(*words, *["x"] * (c["max_args"] + 1))
        check(r.returncode == 2 and "unexpected argument 'x'" in r.stderr, name, "too many:", r.returncode, r.stderr)


def check_case(c, case):
    name, words = c["name"], c["name"].split()
    has_json = any(o["name"] == "json" for o in c["options"])
    check(not has_json or case["json"] is not NOT_A_LISTING or name == "pull", name, "has --json that is not tried")
    if case["error"]:
        arguments, status, said = case["error"]
        r = run(*words, *arguments)
        check(r.returncode in (status if isinstance(status, tuple) else (status,)) and said in r.stderr
              and r.stderr.startswith("hearth " + name + ": " if name != "config check" else said),
              name, arguments, "ends with", r.returncode, r.stderr)
    if case["json"] is not NOT_A_LISTING:
        r = run(*words, *case["json"])
        try:
            json.loads(r.stdout)
        except ValueError as e:
            check(False, name, case["json"], "is not JSON:", e, r.stdout[:200], r.stderr[:200])


def check_pull_json():
    r = run("pull", "owner/repo", "--json")
    check(r.returncode == 1, "pull --json ends with", r.returncode)
    for line in r.stdout.splitlines():
        try:
            json.loads(line)
        except ValueError:
            check(False, "pull --json prints", line)


def check_main(commands):
    text = run("--help").stdout
    lines = text.splitlines()
    check(max(map(len, lines)) <= 80 and len(lines) <= 40, "hearth --help has", len(lines), "lines")
    for c in commands:
        if not c["hidden"] and " " not in c["name"]:
            check("\n  " + c["name"] + " " in text, "hearth --help does not list", c["name"])
    r = run("sevre")
    check(r.returncode == 2 and "did you mean serve?" in r.stderr, "a mistyped command:", r.stderr)
    check(run("help", "serve").stdout == run("serve", "--help").stdout, "hearth help serve")
    check(run("help", "config", "show").stdout == run("config", "show", "--help").stdout, "hearth help config show")
    check(run("help", "config").stdout == run("config", "--help").stdout, "hearth help config")
    r = run()
    check(r.returncode == 2 and "usage: hearth COMMAND" in r.stderr, "no command at all:", r.returncode)
    r = run("run", "--tempp", "1")
    check(r.returncode == 2 and "did you mean --temp?" in r.stderr, "a mistyped option:", r.stderr)
    r = run("run", "dmo", "hello")
    check(r.returncode == 1 and "did you mean 'demo'?" in r.stderr, "a mistyped model:", r.stderr)


def bash_offers(script, line):
    code = f"""source {script}
COMP_LINE={json.dumps(line)}; COMP_POINT=${{#COMP_LINE}}
_hearth
printf '%s\\n' "${{COMPREPLY[@]}}" """
    r = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, env=ENV, timeout=60)
    check(not r.stderr, "bash says", r.stderr)
    return r.stdout.split()


def check_completion(commands):
    script = os.path.join(HOME, "hearth.bash")
    with open(script, "w") as f:
        f.write(run("completion", "bash").stdout)
    run("create", "mine:small", DEMO)
    top = {c["name"] for c in commands if not c["hidden"] and " " not in c["name"]}
    check(set(bash_offers(script, "hearth ")) == top, "bash offers", bash_offers(script, "hearth "))
    check(bash_offers(script, "hearth ser") == ["serve"], "bash: hearth ser")
    check(set(bash_offers(script, "hearth config ")) == {"show", "check", "init", "path", "reference"}, "bash: config")
    check(set(bash_offers(script, "hearth run ")) == {"demo", "vision-demo", "mine:small"}, "bash: run", bash_offers(script, "hearth run "))
    check(bash_offers(script, "hearth run mine:s") == ["small"], "bash: a name with a colon")
    check(set(bash_offers(script, "hearth serve --log-")) == {"--log-format", "--log-level", "--log-level-file"}, "bash: --log-")
    check(set(bash_offers(script, "hearth serve --log-format ")) == {"text", "json"}, "bash: --log-format")
    check(set(bash_offers(script, "hearth run --think ")) == {"on", "off"}, "bash: --think")
    check(bash_offers(script, "hearth completion f") == ["fish"], "bash: completion")
    check(bash_offers(script, "hearth quantize demo out") == [], "bash: files are the shell's")
    run("rm", "mine:small")
    for shell in ("zsh", "fish"):
        if not shutil.which(shell):
            print("skipped: no", shell)
            continue
        path = os.path.join(HOME, "hearth." + shell)
        with open(path, "w") as f:
            f.write(run("completion", shell).stdout)
        r = subprocess.run([shell, "-n", path], capture_output=True, text=True)
        check(r.returncode == 0 and not r.stderr, shell, r.stderr)


def check_man(commands):
    pages = os.path.join(HOME, "man")
    os.mkdir(pages)
    check(run("man", "--write", pages).returncode == 0, "man --write")
    wanted = {"hearth.1"} | {f"hearth-{c['name']}.1" for c in commands if not c["hidden"] and " " not in c["name"]}
    check(set(os.listdir(pages)) == wanted, "pages:", os.listdir(pages))
    for c in commands:
        page = os.path.join(pages, f"hearth-{c['name'].split()[0]}.1")
        text = open(page).read().replace("\\-", "-") if os.path.exists(page) else ""
        for o in c["options"] if text else []:
            check("--" + o["name"] in text, page, "does not explain", o["name"])
    if not shutil.which("groff"):
        print("skipped: no groff")
        return
    for page in sorted(os.listdir(pages)):
        r = subprocess.run(["groff", "-ww", "-man", "-Tutf8", os.path.join(pages, page)], capture_output=True, text=True)
        text = re.sub("\x1b\\[[0-9;]*m|.\x08", "", r.stdout)
        check(r.returncode == 0 and not r.stderr and re.search("EXIT +STATUS", text), page, r.stderr)


def check_docs(commands):
    text = (ROOT / "docs/configuration.md").read_text()
    check(run("config", "reference").stdout in text,
          "docs/configuration.md is not what 'hearth config reference' prints: run scripts/docs")
    text = (ROOT / "docs/cli.md").read_text()
    for c in commands:
        if not c["hidden"] and not c["group"]:
            check(re.search(f"`hearth {c['name']}[ `]", text), "docs/cli.md does not explain hearth", c["name"] + ": run scripts/docs")


def check_folder_of_a_name():
    """A folder that only has a model's name does not hide the model; asked for by its path, it is refused for what it lacks."""
    with tempfile.TemporaryDirectory() as place:
        (pathlib.Path(place) / "demo").mkdir()
        name, path = (subprocess.run([PROGRAM, "info", model, "--json"], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENV)
                      for model in ("demo", "./demo"))
        check(name.returncode == 0, "hearth info demo beside a folder of that name:", name.stderr)
        check(path.returncode != 0 and "holds no model" in path.stderr, "hearth info ./demo of an empty folder:", path.stderr)


def main():
    check_folder_of_a_name()
    commands = json.loads(run("man", "--json").stdout)
    for c in commands:
        if c["group"]:
            fits(c["name"], [c["name"], "--help"], 24)
            check(run(c["name"], "bogus").returncode == 2, c["name"], "bogus")
            continue
        check_command(c)
        check(c["name"] in CASES, c["name"], "is not described in CASES")
    known = {c["name"] for c in commands}
    server = subprocess.Popen([PROGRAM, "serve", "--no-tcp"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENV)
    try:
        server.stdout.readline()  # ready: ps has somebody to ask
        for c in commands:
            if c["name"] in CASES:
                check_case(c, CASES[c["name"]])
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()
    check_pull_json()
    check_main(commands)
    check_completion(commands)
    check_man(commands)
    check_docs(commands)
    shutil.rmtree(HOME)
    print(f"{len(known)} commands, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
