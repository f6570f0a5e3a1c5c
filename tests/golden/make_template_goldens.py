#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/template/cases.json: small templates with the results of Jinja2 3.1.6.

Needs jinja2 (not needed by make test). The environment is the one of Hugging Face chat templates: immutable sandbox,
trim_blocks, lstrip_blocks, loop controls, a generation block, tojson as json.dumps, a fixed clock. Half of the cases are
written by hand, one per feature; the others are random but well-typed programs from template_programs.py.
"""
import datetime
import json
import os
import sys
import warnings

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

import template_programs

warnings.simplefilter("ignore")  # Python remarks on odd constants in compiled templates


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


NOW = datetime.datetime(2026, 1, 2, 15, 4, 5)
ENV = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
)
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)


def reference(template, context):
    try:
        compiled = ENV.from_string(template)
    except Exception as e:  # also what Python itself refuses to compile
        return {"error": str(e), "kind": "syntax"}
    try:
        return {"expected": compiled.render(**context)}
    except Raised as e:
        return {"error": str(e.args[0]), "kind": "raised"}
    except Exception as e:
        return {"error": type(e).__name__ + ": " + str(e), "kind": "runtime"}


CONTEXT = {
    "s": "Hello wörld", "e": "", "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": [1, {"x": None}]}, "t": True,
    "none_": None, "rows": [{"id": 1, "name": "bob", "v": 2.5}, {"id": 2, "name": "Al", "v": 1}, {"id": 3, "name": "Bob"}],
    "words": ["apple", "Banana", "cherry", "apple"],
}

with open(os.path.join(os.path.dirname(__file__), "template_snippets.txt"), encoding="utf-8") as fh:
    BY_HAND = [part.strip("\n") for part in fh.read().split("\n----\n")]

UNSTABLE = ("0x", "object at", "<generator", "<built-in", "<function", "<bound", "<class", "object>", "<method")


def main(out):
    cases = []
    for i, template in enumerate(BY_HAND):
        cases.append({"name": f"hand-{i + 1}", "template": template, "context": CONTEXT, **reference(template, CONTEXT)})
    made = 0
    source = template_programs.Programs(seed=20260102)
    while made < 500:
        template, context = source.program(), source.context()
        if len(template) > 600:
            continue
        result = reference(template, context)
        if any(mark in result.get("expected", "") for mark in UNSTABLE):
            continue
        used = {k: v for k, v in context.items() if k in template}
        made += 1
        cases.append({"name": f"random-{made}", "template": template, "context": used, **reference(template, used)})
    with open(out, "w", encoding="utf-8") as fh:
        fh.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fixtures", "template", "cases.json"))
