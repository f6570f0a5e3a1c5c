# SPDX-License-Identifier: Apache-2.0
"""`hearth run` on a real terminal (tmux): pasted lines are one message, words wrap, a resized window is drawn again, a full
context offers to leave out the oldest turns.

    check_terminal.py HEARTH
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
if not shutil.which("tmux"):
    print("skipped: tmux is not installed (scripts/setup test)")
    sys.exit(0)


class Terminal:
    def __init__(self, columns, rows, *options):
        self.dir = tempfile.mkdtemp()
        self.tmux = ["tmux", "-f", "/dev/null", "-S", os.path.join(self.dir, "s")]
        env = dict(os.environ, XDG_STATE_HOME=self.dir, XDG_DATA_HOME=self.dir, LC_ALL="C.UTF-8", TERM="xterm-256color")
        self.run("new-session", "-d", "-x", str(columns), "-y", str(rows), PROGRAM, "run", "demo", "--temp", "0", *options, env=env)
        self.until(lambda screen: ">>>" in screen)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        subprocess.run(self.tmux + ["kill-server"], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def run(self, *words, env=None, stdin=None):
        return subprocess.run(self.tmux + list(words), check=True, capture_output=True, text=True, env=env, input=stdin).stdout

    def screen(self):
        return self.run("capture-pane", "-p", "-S", "-200")

    def until(self, holds, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if holds(screen):
                return screen
            time.sleep(0.03)
        raise AssertionError("never on the screen; it shows:\n" + screen)

    def paste(self, text):
        self.run("load-buffer", "-", stdin=text)
        self.run("paste-buffer", "-p")

    def type(self, text):
        self.run("send-keys", "-l", text)
        self.run("send-keys", "Enter")



def pasted_lines():
    with Terminal(100, 20) as t:
        t.paste("What is\n12 plus 30?\n")
        screen = t.until(lambda s: "What is⏎12 plus 30?" in s)
        assert screen.count(">>>") == 1, screen  # nothing was sent yet
        t.run("send-keys", "Enter")
        t.until(lambda s: s.count(">>>") == 2)
        t.type("/save " + os.path.join(t.dir, "saved"))
        t.until(lambda s: "2 messages saved" in s)
        with open(os.path.join(t.dir, "saved")) as f:
            assert '"What is\\n12 plus 30?"' in f.read()


def wrapped_words():
    with Terminal(40, 30) as t:
        t.type("Tell me a story with the words boat and river.")
        screen = t.until(lambda s: s.count(">>>") == 2)
        story = screen[screen.index("river.") + 6:screen.rindex(">>>")].strip("\n").split("\n")
        assert len(story) > 2 and all(len(line) <= 40 for line in story), screen
        whole = subprocess.run([PROGRAM, "run", "demo", "--temp", "0", "Tell me a story with the words boat and river."], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        assert " ".join(" ".join(story).split()) == " ".join(whole.split()), (story, whole)  # no word is divided


def resized_window():
    with Terminal(80, 20) as t:
        t.run("send-keys", "-l", "What is 12 plus 30 and so on and so forth")
        t.until(lambda s: "so forth" in s)
        t.run("resize-window", "-x", "30", "-y", "20")
        t.until(lambda s: "so forth" in s.replace("\n", "") and all(len(line) <= 30 for line in s.split("\n")))
        t.run("send-keys", "C-a")
        t.run("send-keys", "-l", "Z")
        screen = t.until(lambda s: ">>> ZWhat" in s)
        assert screen.count(">>>") <= 2, screen
        t.run("resize-window", "-x", "90", "-y", "20")
        t.until(lambda s: ">>> ZWhat is 12 plus 30 and so on and so forth" in s)


def full_context():
    with Terminal(80, 40, "--ctx", "256") as t:
        for n in range(1, 12):
            t.type("Tell me a story with the words boat and river.")
            screen = t.until(lambda s: s.count(">>>") == n + 1 or "Leave out the oldest turns?" in s)
            if "Leave out" in screen:
                break
        else:
            raise AssertionError("the context never filled:\n" + screen)
        t.type("y")
        t.until(lambda s: "are left out from here on" in s and s.rstrip().endswith(">>>"))
        t.type("/save " + os.path.join(t.dir, "saved"))
        screen = t.until(lambda s: "messages saved" in s)
        with open(os.path.join(t.dir, "saved")) as f:
            assert f.read().count('"user"') == n, screen  # what was left out is kept


for check in (pasted_lines, wrapped_words, resized_window, full_context):
    begin = time.monotonic()
    check()
    print("check ok %s (%.1f s)" % (check.__name__, time.monotonic() - begin))
