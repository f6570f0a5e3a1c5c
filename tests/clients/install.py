# SPDX-License-Identifier: Apache-2.0
"""Installs the programs of make test-clients from npm, each into a folder of its own at the version that is pinned there.

    programs/NAME/package.json    what is installed, into node_modules beside it

One folder each, because one tree for all takes npm much longer to plan and a failed download loses it whole; here what is
installed stays, and the next call goes on with the rest. npm's cache is asked before the registry. A folder whose .npmrc
omits optional packages does without them; where they carry the program's own binary they are needed.
"""
import os
import subprocess
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
NPM = ["npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--fetch-retries=5"]
TRIES, SECONDS = 3, 900
# A package that compiles itself takes Debian's headers of Node; node-gyp would fetch others from a place that may not answer.
HEADERS = {"npm_config_nodedir": "/usr"} if Path("/usr/include/node/node.h").exists() else {}


def installed(name):
    mark = PROGRAMS / name / "node_modules/.hearth-installed"
    return mark.exists() and mark.read_text() == (PROGRAMS / name / "package.json").read_text()


def npm(folder):
    try:
        r = subprocess.run(NPM, cwd=folder, env=dict(os.environ, **HEADERS), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
        return None if r.returncode == 0 else r.stdout[-2000:]
    except subprocess.TimeoutExpired:
        return f"npm took more than {SECONDS} seconds"


def install(name):
    """None, or what npm said when it failed."""
    if installed(name):
        return None
    folder, begin = PROGRAMS / name, time.monotonic()
    for _ in range(TRIES):
        why = npm(folder)
        if why is None:
            (folder / "node_modules/.hearth-installed").write_text((folder / "package.json").read_text())
            print(f"installed {name} ({time.monotonic() - begin:.0f} s)", flush=True)
            return None
    return why
