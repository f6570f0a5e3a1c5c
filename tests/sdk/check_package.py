# SPDX-License-Identifier: Apache-2.0
"""usage: check_package.py HEARTH

The Python package as users get it: the version is the repository's, README's examples run, pip installs it without a network, and the
types are strict."""
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile

from sdk_support import PACKAGE, ROOT, blocks

import hearth
from hearth_server import Checks, Server


def one_version():
    with open(os.path.join(ROOT, "VERSION")) as f:
        version = f.read().strip()
    assert hearth.__version__ == version, (hearth.__version__, version)
    for name, at in (("package.json", lambda d: d), ("package-lock.json", lambda d: d), ("package-lock.json", lambda d: d["packages"][""])):
        with open(os.path.join(ROOT, "sdk/typescript", name)) as f:
            assert at(json.load(f))["version"] == version, name


def standard_library_only():
    """What is imported at run time is ours or Python's own."""
    for name in os.listdir(os.path.join(PACKAGE, "hearth")):
        if not name.endswith(".py"):
            continue
        with open(os.path.join(PACKAGE, "hearth", name), encoding="utf-8") as f:
            text = f.read()
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), name
        tree = ast.parse(text, feature_version=(3, 9))
        checked = [n for top in tree.body if isinstance(top, ast.If) for n in ast.walk(top)]  # if TYPE_CHECKING
        for node in ast.walk(tree):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            foreign = [m for m in modules if m.split(".")[0] not in sys.stdlib_module_names and node not in checked] if hasattr(sys, "stdlib_module_names") else []
            assert not foreign, (name, foreign)


def run(command, **kw):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def readme(server):
    found = [(code, prints) for code, prints in blocks(os.path.join(PACKAGE, "README.md"), "python") if "hearth.local" not in code]
    assert len(found) >= 6
    for code, prints in found:
        out = run([sys.executable, "-W", "error", "-c", code], env=dict(os.environ, PYTHONPATH=PACKAGE, HEARTH_HOST=server.ready["url"]))
        assert prints and prints in out, (code, out)


def installed(server):
    """pip install without a network, into a folder of its own, from a copy: building leaves files behind."""
    have = "import setuptools, pip, wheel, sys; sys.exit(int(setuptools.__version__.split('.')[0]) < 61)"
    python = next((p for p in (sys.executable, "/usr/bin/python3") if os.path.exists(p) and subprocess.run([p, "-c", have], capture_output=True).returncode == 0), None)
    if not python:
        print("skipped: python3-pip, python3-setuptools and python3-wheel are not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        copy, target = os.path.join(folder, "copy"), os.path.join(folder, "target")
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--target", target, copy],
            env=dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1"))
        assert os.path.exists(os.path.join(target, "hearth", "py.typed"))
        assert os.path.isdir(os.path.join(target, f"hearth-{hearth.__version__}.dist-info")), os.listdir(target)
        code = "import hearth, sys; print(hearth.__file__); print(hearth.Client(sys.argv[1], model='demo').chat('What is 12 plus 30?', temperature=0).text)"
        out = run([sys.executable, "-c", code, server.ready["url"]], cwd=folder, env=dict(os.environ, PYTHONPATH=target))
        assert out == f"{target}/hearth/__init__.py\n12 plus 30 is 42.\n", out


def types():
    mypy = shutil.which("mypy")
    if not mypy:
        print("skipped: mypy is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        use = os.path.join(folder, "use.py")
        with open(use, "w") as f:  # what a user writes, with one mistake; the package's own files are checked with it
            f.write("from hearth import AsyncClient, Client\nfrom hearth.local import Model\nc = Client()\ntext: str = c.chat('x', temperature=0, top_k=3).text\n"
                    "with c.chat_stream('x', n=2) as s:\n    for e in s:\n        kind: str = e.kind\n"
                    "n: int = Model('demo').count('x', enable_thinking=True)\nc.chat('x', temperature='hot')\n")
        done = subprocess.run([mypy, "--config-file", os.path.join(PACKAGE, "pyproject.toml"), "--cache-dir", os.path.join(folder, "cache"), use],
                              env=dict(os.environ, MYPYPATH=PACKAGE), capture_output=True, text=True)
        wrong = [line for line in done.stdout.splitlines() if ": error:" in line]
        assert len(wrong) == 1 and "use.py:9:" in wrong[0] and "float" in wrong[0], done.stdout[-3000:] + done.stderr


def main():
    checks = Checks()
    for check in (one_version, standard_library_only, types):
        checks.run(check)
    with Server(sys.argv[1]) as server:
        for check in (readme, installed):
            checks.run(check, server)
    checks.exit()


main()
