#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Settings: every key arrives where it is used, from every origin; each border of the precedence; what a server does.

usage: check_config.py PROGRAM
"""
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))
from hearth_server import Checks  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "models/demo/demo.gguf")
HOME = tempfile.TemporaryDirectory(prefix="hearth-config-")
KV = {"f32": 0, "f16": 1, "bf16": 2, "q8_0": 3, "q4_0": 4}

# key: (value as written, value expected, where `hearth debug options` shows it, flag's own spelling if it differs)
EACH = {
    "transport.host": ("::1", "::1", "server.tcp_host"),
    "transport.port": ("1234", 1234, "server.tcp_port"),
    "transport.tcp": ("false", None, "server.tcp_host"),
    "transport.unix_socket": ("false", None, "server.socket_path"),
    "transport.socket": ("/x/s", "/x/s", "server.socket_path"),
    "transport.tls_cert": ("/x/c.pem", "/x/c.pem", "server.tls_cert"),
    "transport.tls_key": ("/x/k.pem", "/x/k.pem", "server.tls_key"),
    "transport.cors_origins": ("https://a.example", ["https://a.example"], "server.cors_origins"),
    "transport.allowed_hosts": ("box", ["box"], "server.allow_hosts"),
    "transport.ui": ("no", 1, "server.no_ui"),
    "transport.max_head_bytes": ("16KiB", 16384, "server.head_bytes"),
    "transport.max_body_bytes": ("3MiB", 3 << 20, "server.body_bytes", "3"),
    "transport.max_total_body_bytes": ("70MiB", 70 << 20, "server.total_body_bytes"),
    "transport.stream_bytes": ("2MiB", 2 << 20, "server.stream_bytes"),
    "transport.max_connections": ("77", 77, "server.max_connections"),
    "transport.head_timeout": ("3s", 3, "server.head_seconds", "3"),
    "transport.body_timeout": ("4s", 4, "server.body_seconds", "4"),
    "transport.idle_timeout": ("5s", 5, "server.idle_seconds", "5"),
    "transport.stall_timeout": ("6s", 6, "server.stall_seconds", "6"),
    "transport.heartbeat": ("500ms", 0.5, "server.heartbeat_seconds", "0.5"),
    "transport.drain_timeout": ("2m", 120, "server.drain_seconds", "120"),
    "scheduler.max_sequences": ("3", 3, "host.max_seqs"),
    "scheduler.token_budget": ("128", 128, "host.step_tokens"),
    "scheduler.max_queue": ("9", 9, "host.max_waiting"),
    "scheduler.max_preparing": ("10", 10, "host.max_preparing"),
    "scheduler.latency_target_ms": ("50", 50, "host.target_step_ms"),
    "scheduler.threads": ("2", 2, "host.n_threads"),
    "scheduler.device": ("cuda:1", "cuda:1/20", "host.device"),
    "scheduler.gpu_layers": ("20", "cuda:1/20", "host.device"),
    "scheduler.experts": ("2GiB", 2 << 30, "host.expert_bytes"),
    "scheduler.grammar_bytes": ("32MiB", 32 << 20, "host.grammar_bytes"),
    "kv_cache.bytes": ("100MiB", 100 << 20, "host.cache_bytes", "100"),
    "kv_cache.page_tokens": ("64", 64, "host.page_tokens"),
    "kv_cache.type": ("q8_0", KV["q8_0"], "host.k_type"),
    "kv_cache.precise_layers": ("3", 3, "host.precise_layers"),
    "kv_cache.prefix_cache": ("off", 1, "host.no_prefix_cache"),
    "kv_cache.host_bytes": ("1GiB", 1 << 30, "host.host_cache_bytes"),
    "kv_cache.disk_dir": ("/x/cache", "/x/cache", "host.disk_cache_dir"),
    "kv_cache.disk_bytes": ("2GB", 2 * 10**9, "host.disk_cache_bytes"),
    "speculative.type": ("off", 0, "host.speculate"),
    "speculative.max": ("5", 5, "host.draft_max"),
    "responses.bytes": ("2MiB", 2 << 20, "server.kept_bytes"),
    "responses.keep": ("10m", 600, "server.kept_seconds"),
    "models.context": ("512", 512, "host.n_ctx"),
    "models.keep_alive": ("1h", 3600000, "host.keep_alive_ms"),
    "models.max_loaded": ("2", 2, "host.max_loaded"),
    "models.mem_limit": ("8GiB", 8 << 30, "host.max_bytes"),
    "security.sandbox": ("off", 1, "host.no_sandbox"),
    "security.image_hosts": ("pictures.example", ["pictures.example"], "server.image_hosts"),
    "security.image_networks": ("10.0.0.0/8", ["10.0.0.0/8"], "server.image_networks"),
    "security.metrics_open": ("yes", 1, "server.metrics_open"),
    "security.health_needs_key": ("yes", 1, "server.health_needs_key"),
    "telemetry.metrics": ("no", 1, "server.no_metrics"),
    "telemetry.request_log": ("no", 1, "server.no_request_log"),
    "sampling.temperature": ("0.25", 0.25, "model.temperature"),
    "sampling.top_k": ("7", 7, "model.top_k"),
    "sampling.top_p": ("0.5", 0.5, "model.top_p"),
    "sampling.min_p": ("0.125", 0.125, "model.min_p"),
    "sampling.typical_p": ("0.75", 0.75, "model.typical_p"),
    "sampling.top_n_sigma": ("2", 2, "model.top_n_sigma"),
    "sampling.repeat_penalty": ("1.5", 1.5, "model.repeat_penalty"),
    "sampling.repeat_last_n": ("33", 33, "model.repeat_last_n"),
    "sampling.presence_penalty": ("0.5", 0.5, "model.presence_penalty"),
    "sampling.frequency_penalty": ("0.25", 0.25, "model.frequency_penalty"),
    "sampling.mirostat": ("2", 2, "model.mirostat"),
    "sampling.mirostat_tau": ("4", 4, "model.mirostat_tau"),
    "sampling.mirostat_eta": ("0.5", 0.5, "model.mirostat_eta"),
    "sampling.seed": ("11", 11, "model.seed"),
    "sampling.xtc_probability": ("0.5", 0.5, "model.xtc_probability"),
    "sampling.xtc_threshold": ("0.25", 0.25, "model.xtc_threshold"),
    "sampling.dry_multiplier": ("0.5", 0.5, "model.dry_multiplier"),
    "sampling.dry_base": ("2", 2, "model.dry_base"),
    "sampling.dry_allowed_length": ("4", 4, "model.dry_allowed_length"),
    "sampling.dry_penalty_last_n": ("99", 99, "model.dry_penalty_last_n"),
    "sampling.dynatemp_range": ("0.5", 0.5, "model.dynatemp_range"),
    "sampling.dynatemp_exponent": ("2", 2, "model.dynatemp_exponent"),
    "sampling.max_tokens": ("21", 21, "model.max_tokens"),
    "sampling.min_tokens": ("2", 2, "model.min_tokens"),
    "sampling.stop": ("END", ["END"], "model.stop"),
}
# Seen below in what a server does.
ELSEWHERE = {"chats.bytes", "kv_cache.type_k", "kv_cache.type_v", "models.directory", "models.default", "models.list", "models.pinned",
             "models.preload", "telemetry.log_level", "telemetry.log_level_file", "telemetry.log_format", "telemetry.log_file",
             "security.api_key_file", "security.api_keys", "security.token_file", "security.rate_requests", "security.rate_tokens"}
APART = {"transport.tcp", "transport.unix_socket"}  # hide what others show


def environment(**more):
    home = tempfile.mkdtemp(dir=HOME.name)
    env = {"HOME": home, "PATH": os.environ["PATH"], "XDG_CONFIG_HOME": home + "/config", "XDG_RUNTIME_DIR": home}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update(more)
    os.makedirs(home + "/config/hearth/models")
    return env


def write(env, name, text):
    path = pathlib.Path(env["XDG_CONFIG_HOME"]) / "hearth" / name
    path.write_text(text)
    return str(path)


def run(env, *arguments, status=0):
    r = subprocess.run([PROGRAM, *arguments], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert r.returncode == status, (arguments, r.returncode, r.stdout, r.stderr)
    return r


def options(env, *flags):
    return json.loads(run(env, "debug", "options", *flags).stdout)


def seen(shown, where):
    part, field = where.split(".")
    return shown[part][field]


def yaml_of(values):
    text, section = "", None
    for key, value in values.items():
        part, name = key.split(".")
        if part != section:
            text += part + ":\n"
            section = part
        text += f"  {name}: {value}\n"
    return text


def reference():
    """Every key of server.yaml with its environment variable and its flag, from the program's own table."""
    text = run(environment(), "config", "reference").stdout.split("### models/")[0]
    rows = re.findall(r"^\| `([^`]+)` \| [^|]* \| [^|]* \| `?([A-Z_]*)`? \| (?:`--([a-z-]+)`)? ?\|", text, re.M)
    assert len(rows) > 60, len(rows)
    return {key: (env, flag) for key, env, flag in rows}


def every_key_is_known():
    keys = set(reference())
    assert keys == set(EACH) | ELSEWHERE, (keys ^ (set(EACH) | ELSEWHERE))
    envs = [e for e, _ in reference().values() if e]
    assert len(envs) == len(set(envs)), "a variable stands for two keys"


def every_key_from_the_file():
    env = environment()
    defaults = options(env)
    write(env, "server.yaml", yaml_of({k: v[0] for k, v in EACH.items() if k not in APART}))
    shown = options(env)
    for key, (text, want, where, *_) in EACH.items():
        if key not in APART:
            assert seen(shown, where) == want, (key, text, seen(shown, where))
            assert seen(defaults, where) != want, (key, "the default is", want)
    assert shown["host"]["v_type"] == KV["q8_0"]
    write(env, "server.yaml", yaml_of({"kv_cache.type": "bf16", "kv_cache.type_k": "q8_0", "kv_cache.type_v": "q4_0"}))
    shown = options(env)
    assert (shown["host"]["k_type"], shown["host"]["v_type"]) == (KV["q8_0"], KV["q4_0"])
    for key in APART:
        write(env, "server.yaml", yaml_of({"transport.socket": "/x/s", key: "false"}))
        assert seen(options(env), EACH[key][2]) is None


def every_key_from_the_environment():
    table = reference()
    values = {table[k][0]: v[0] for k, v in EACH.items() if k not in APART and table[k][0]}
    shown = options(environment(**values))
    for key, (text, want, where, *_) in EACH.items():
        if key not in APART and table[key][0]:
            assert seen(shown, where) == want, (key, text, seen(shown, where))
    wrong = run(environment(HEARTH_PORT="http"), "debug", "options", status=2).stderr
    assert "HEARTH_PORT (transport.port): expected an integer from 0 to 65535, found 'http'" in wrong, wrong


def every_flag():
    table, serve = reference(), run(environment(), "serve", "--help-all").stdout
    flags, wanted = [], {}
    for key, (text, want, where, *own) in EACH.items():
        flag = table[key][1]
        if not flag or f"--{flag}" not in serve or key in APART:
            continue
        flags += [f"--{flag}"] if key == "security.health_needs_key" else [f"--{flag}", own[0] if own else text]
        wanted[where] = want
    assert len(wanted) > 20
    shown = options(environment(HEARTH_PORT="1", HEARTH_HEAD_TIMEOUT="1"), *flags)
    for where, want in wanted.items():
        assert seen(shown, where) == want, (where, seen(shown, where), want)
    assert options(environment(), "--no-tcp")["server"]["tcp_host"] is None
    assert options(environment(), "--no-socket", "--socket", "/x")["server"]["socket_path"] is None
    several = options(environment(), "--cors-origin", "https://a", "--cors-origin", "https://b,c")["server"]["cors_origins"]
    assert several == ["https://a", "https://b,c"], several


def model_keys():
    env = environment()
    write(env, "models/my.jinja", "{{ messages[0].content }}")
    write(env, "models/demo.yaml", "context: 256\nsystem: 'Be: brief'\ntemplate_file: my.jinja\nsampling: {dynatemp_range: 0.5, top_k: 5}\n"
          "presets: {cold: {temperature: 0, top_k: 3}}\npreset: cold\nmessages: [{role: user, content: 'a \"b\"'}]\n"
          "rope_scaling: {type: linear, factor: 2, original_context: 512}\n")
    m = options(env)["model"]
    assert m["context"] == 256 and m["system"] == "Be: brief" and m["template"] == "{{ messages[0].content }}", m
    assert m["temperature"] == 0 and m["top_k"] == 3 and m["dynatemp_range"] == 0.5, m
    assert json.loads(m["messages"]) == [{"role": "user", "content": 'a "b"'}]
    assert (m["rope_type"], m["rope_factor"], m["rope_original_context"]) == ("linear", 2, 512)
    assert options(dict(env, HEARTH_TOP_K="9"))["model"]["top_k"] == 9  # the environment lies over a preset
    assert options(env, "--no-config")["model"]["context"] == 0


def precedence():
    """One value, set everywhere; origin after origin is taken away. run says what it got by the length of its answer."""
    env = environment()
    modelfile = os.path.join(env["HOME"], "Modelfile")
    pathlib.Path(modelfile).write_text(f"FROM {DEMO}\nPARAMETER num_predict 7\nPARAMETER temperature 0\n")
    run(env, "create", "mine", "-f", modelfile)
    server = write(env, "server.yaml", "sampling:\n  max_tokens: 8\n  temperature: 0\n")
    own = write(env, "models/mine.yaml", "sampling: {max_tokens: 6}\n")

    def tokens(e, *flags):
        r = run(e, "run", "-v", *flags, "mine", "Tell me a story about a cat and a boat.")
        return int(re.search(r"answer (\d+) tokens", r.stderr).group(1))

    def shown(e):
        v = json.loads(run(e, "config", "show", "mine", "--json", "--origin").stdout)["sampling"]["max_tokens"]
        return v["value"], v["origin"]

    told = dict(env, HEARTH_MAX_TOKENS="5")
    assert tokens(told, "--max-tokens", "4") == 4
    assert tokens(told) == 5 and shown(told) == (5, "environment")
    assert tokens(env) == 6 and shown(env) == (6, "model settings")
    os.remove(own)
    assert tokens(env) == 7 and shown(env) == (7, "registry")
    run(env, "create", "mine", DEMO, "--replace")
    assert tokens(env) == 8 and shown(env) == (8, "server.yaml")
    os.remove(server)
    assert shown(env) == (None, "unset")
    assert run(env, "run", "demo", "What is 12 plus 30?", "--temp", "0").stdout == "12 plus 30 is 42.\n"


def which_file():
    env = environment()
    write(env, "server.yaml", "transport: {port: 1}\n")
    other, third = write(env, "b.yaml", "transport: {port: 2}\n"), write(env, "c.yaml", "transport: {port: 3}\n")
    port = lambda e, *f: options(e, *f)["server"]["tcp_port"]  # noqa: E731
    assert port(env) == 1 and port(dict(env, HEARTH_CONFIG=other)) == 2
    assert port(dict(env, HEARTH_CONFIG=other), "--config", third) == 3
    assert port(env, "--no-config") == 11434 and port(dict(env, HEARTH_PORT="9"), "--config", third) == 9
    assert "/nowhere.yaml" in run(env, "debug", "options", "--config", "/nowhere.yaml", status=1).stderr
    write(env, "server.yaml", "transport: {port: 1, prot: 2}\nmodles: {}\n")
    for command in (["serve"], ["run", "demo", "x"], ["config", "show"]):
        r = run(env, *command, status=1)
        assert "server.yaml:1:22: transport.prot: unknown key; did you mean port?" in r.stderr, r.stderr
        assert "server.yaml:2:1: modles: unknown key; did you mean models?" in r.stderr and "has 2 problems" in r.stderr


def names_of_files():
    env = environment()
    here = env["XDG_CONFIG_HOME"] + "/hearth/"
    write(env, "server.yaml", "kv_cache: {disk_dir: cache}\ntransport: {socket: ~/s}\n")
    shown = options(env)
    assert shown["host"]["disk_cache_dir"] == here + "cache" and shown["server"]["socket_path"] == env["HOME"] + "/s", shown
    shown = options(dict(env, HEARTH_KV_DISK_DIR="there", HEARTH_SOCKET="~/t"))
    assert shown["host"]["disk_cache_dir"] == "there" and shown["server"]["socket_path"] == env["HOME"] + "/t", shown
    os.symlink(DEMO, here + "m.gguf")
    write(env, "server.yaml", "models: {list: [{name: a, path: ./m.gguf}, {name: b, path: demo}]}\ntransport: {port: 0, unix_socket: off}\n")
    with Serving(env) as s:
        assert [m["id"] for m in s.ask("/v1/models")[1]["data"]] == ["a", "b"]


def check_of_variables():
    r = run(environment(HEARTH_PROT="1", HEARTH_CORPUS="1"), "config", "check")
    assert r.stderr == "HEARTH_PROT is not a known variable; did you mean HEARTH_PORT?\n", r.stderr
    r = run(environment(HEARTH_TOP_P="2"), "config", "check", status=1)
    assert "HEARTH_TOP_P (sampling.top_p): '2' is out of range; expected a number from 0 to 1" in r.stderr, r.stderr
    run(environment(HEARTH_TOP_P="1", HEARTH_HOST="x", HEARTH_CONFIG="/dev/null"), "config", "check")


def rope_refused():
    """Where another rotation cannot be described the setting is refused, not ignored."""
    env = environment()
    golden = ROOT / "tests/golden/models"
    run(env, "debug", "gguf", str(golden / "llama_rope3"), env["HOME"] + "/factors.gguf")
    for name, path, why in (("factors", env["HOME"] + "/factors.gguf", "the file brings factors"),
                            ("latent", str(golden / "deepseek_v3"), "its own rule"),
                            ("learnt", str(golden / "gpt2"), "no rotation to scale")):
        run(env, "create", name, path)
        write(env, f"models/{name}.yaml", "rope_scaling: {type: yarn, factor: 4}\n")
        r = run(env, "run", name, "x", status=1)
        assert "rope_scaling: " in r.stderr and why in r.stderr, r.stderr


def secrets():
    env = environment(HEARTH_API_KEYS="alice:sk-secret-1")
    for arguments in (["config", "show"], ["config", "show", "--json", "--origin"]):
        out = run(env, *arguments).stdout
        assert "secret" not in out and "***" in out
    env = environment()
    write(env, "server.yaml", "security:\n  api_keys: [sk-secret-2]\n")
    assert "secret" not in run(env, "config", "show", "--json").stdout


class Serving:
    def __init__(self, env, *flags):
        self.process = subprocess.Popen([PROGRAM, "serve", "--ready-json", *flags], env=env, stdout=subprocess.PIPE,
                                        stderr=open(env["HOME"] + "/err", "w"))
        line = self.process.stdout.readline()
        assert line, open(env["HOME"] + "/err").read()
        self.ready = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, path, body=None, key=None, context=None):
        r = urllib.request.Request(self.ready["url"] + path, data=json.dumps(body).encode() if body is not None else None,
                                   headers={"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {}))
        try:
            with urllib.request.urlopen(r, timeout=60, context=context) as a:
                text = a.read().decode()
                return a.status, json.loads(text) if text.startswith(("{", "[")) else text
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()


def wait_for(path, text):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if os.path.exists(path) and text in open(path).read():
            return
        time.sleep(0.02)
    raise AssertionError(f"no {text!r} in {path}: {open(path).read() if os.path.exists(path) else 'absent'}")


def models_and_settings():
    env = environment()
    os.makedirs(env["HOME"] + "/many")
    os.symlink(DEMO, env["HOME"] + "/many/third.gguf")
    write(env, "server.yaml", "transport: {port: 0, unix_socket: off}\nmodels:\n  default: second\n  pinned: second\n"
          f"  directory: {env['HOME']}/many\n  list:\n"
          f"  - {{name: first, path: {DEMO}, context: 300, keep_alive: forever}}\n  - {{name: second, path: {DEMO}}}\n"
          "sampling: {temperature: 0, max_tokens: 3}\ntelemetry: {metrics: off, log_level: warn}\n")
    write(env, "models/second.yaml", "system: Speak like a pirate.\nsampling: {stop: [' is']}\n"
          "messages: [{role: user, content: Ahoy?}, {role: assistant, content: Ahoy!}]\n")
    question = {"messages": [{"role": "user", "content": "What is 12 plus 30?"}]}
    with Serving(env) as s:
        names = [m["id"] for m in s.ask("/v1/models")[1]["data"]]
        assert names == ["first", "second", "third"], names
        status, a = s.ask("/v1/chat/completions", dict(question, model="first"))
        assert status == 200 and a["usage"]["completion_tokens"] == 3, a
        assert s.ask("/props?model=first")[0] == 200
        text = s.ask("/apply-template", dict(question, model="second"))[1]["prompt"]
        assert "pirate" in text and text.index("pirate") < text.index("Ahoy!") < text.index("12 plus 30"), text
        text = s.ask("/apply-template", dict(question, model="first"))[1]["prompt"]
        assert "pirate" not in text and "Ahoy" not in text
        status, a = s.ask("/v1/chat/completions", dict(question, model="second", max_tokens=50))
        assert status == 200 and " is" not in a["choices"][0]["message"]["content"], a
        s.ask("/v1/chat/completions", dict(question, model="third"))
        loaded = {m["name"].split(":")[0]: m for m in s.ask("/api/ps")[1]["models"]}
        assert loaded["first"]["context_length"] == 300, loaded
        until = {name: int(m["expires_at"][:4]) for name, m in loaded.items()}  # the year
        assert until["first"] > until["third"] and until["second"] > until["third"], until  # for ever, pinned, five minutes
        text = s.ask("/apply-template", question)[1]["prompt"]  # the default model
        assert "pirate" in text, text
        assert s.ask("/metrics")[0] == 404
        assert s.ask("/health")[0] == 200
    assert " info " not in open(env["HOME"] + "/err").read()
    write(env, "server.yaml", f"models:\n  default: nobody\n  list: [{{name: first, path: {DEMO}}}]\n")
    assert "models.default: no model 'nobody' is offered" in run(env, "serve", status=1).stderr


def keys_logs_and_reload():
    env = environment()
    log, level, keys = (env["HOME"] + "/" + n for n in ("log", "level", "keys"))
    pathlib.Path(keys).write_text("bob:secret-bob\n")
    pathlib.Path(level).write_text("info\n")
    text = (f"transport: {{port: 0, unix_socket: off}}\ntelemetry: {{log_file: {log}, log_format: json, log_level_file: {level}}}\n"
            f"security:\n  api_key_file: {keys}\n  token_file: {env['HOME']}/token\n  rate_requests: RATE\n  api_keys: ['KEY']\n")
    write(env, "server.yaml", text.replace("KEY", "ann:secret-ann").replace("RATE", "0"))
    with Serving(env) as s:
        assert s.ask("/v1/models")[0] == 401
        for key in ("secret-ann", "secret-bob", open(env["HOME"] + "/token").read().strip()):
            assert s.ask("/v1/models", key=key)[0] == 200
        wait_for(log, '"path":"/v1/models"')
        lines = [json.loads(line) for line in open(log)]
        assert all(line["level"] in ("info", "warn") for line in lines)
        # A mistake changes nothing.
        write(env, "server.yaml", "securty: {}\n")
        s.process.send_signal(signal.SIGHUP)
        wait_for(log, "reload: the settings were not changed")
        assert s.ask("/v1/models", key="secret-ann")[0] == 200
        # Another key, a limit, a new log file's name for the old one, and fewer lines.
        write(env, "server.yaml", text.replace("KEY", "eve:secret-eve").replace("RATE", "2"))
        os.rename(log, log + ".1")
        s.process.send_signal(signal.SIGHUP)
        wait_for(log, "were read again")
        pathlib.Path(level).write_text("error\n")
        s.process.send_signal(signal.SIGHUP)
        assert s.ask("/v1/models", key="secret-ann")[0] == 401
        statuses = [s.ask("/v1/models", key="secret-eve")[0] for _ in range(4)]
        assert statuses[0] == 200 and statuses[-1] == 429, statuses
    env = environment()
    write(env, "server.yaml", "transport: {port: 0, unix_socket: off}\ntelemetry: {request_log: off}\n"
          "security: {api_keys: [long-enough], rate_tokens: 1, health_needs_key: yes}\n")
    with Serving(env) as s:
        assert s.ask("/health")[0] == 401 and s.ask("/health", key="long-enough")[0] == 200
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4}
        first, second = s.ask("/v1/chat/completions", body, key="long-enough")[0], s.ask("/v1/chat/completions", body, key="long-enough")[0]
        assert (first, second) == (200, 429), (first, second)
    assert "/v1/" not in open(env["HOME"] + "/err").read()
    assert run(dict(env, HEARTH_LOG="loud"), "serve", status=2).stderr


def tls():
    env = environment()
    cert, key = ROOT / "tests/fixtures/tls/cert.pem", ROOT / "tests/fixtures/tls/key.pem"
    write(env, "server.yaml", f"transport: {{port: 0, unix_socket: off, tls_cert: {cert}, tls_key: {key}}}\n")
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    with Serving(env) as s:
        assert s.ready["url"].startswith("https://") and s.ask("/health", context=context)[0] == 200


checks = Checks()
for f in (every_key_is_known, every_key_from_the_file, every_key_from_the_environment, every_flag, model_keys, precedence, which_file, names_of_files, check_of_variables, rope_refused,
          secrets, models_and_settings, keys_logs_and_reload, tls):
    checks.run(f)
HOME.cleanup()
checks.exit()
