#!/usr/bin/env bash
# Fails on code that nothing calls: a kernel slot that no file of src/ outside the kernels calls; a function that a header
# declares and no file defines; a function that no other file names (it should be static or gone), or none but tests and
# benchmarks (the public header counts as a caller); an inline function of a header that nothing names. What is excused
# stands in a list, with the reason.
#
# Works on the text: without comments and literals, what stands at the outermost level is declarations and definitions. A
# macro whose text has `static` in it makes a function static; an inline function whose name a macro may put together
# (##_ending, beginning_##) counts as named.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 - <<'PYTHON'
import re, subprocess, sys

# Names without a caller in src/, and why they are there.
ALLOWED = [
    (r'cache_(checkpoint|rollback)|sampler_rollback|grammar_matcher_clone', 'steps back: what drafts need, proved before they come'),
    (r'engine_input_size', 'the width of rows that images will come in'),
    (r'backend_bound', 'the bounds that tests/backend judges by, beside the comparison of src/'),
    (r'backend_cpu_(timed|kernel_seconds|kind_seconds)', 'bench_step looks inside a step'),
    (r'safetensors_writer_\w+|tensor_mat_quant_row', 'the writing twins of readers: tests make files and matrices with them'),
    (r'(pre_name|split_pattern)_at|tmpl_builtin_name', 'tests walk a table'),
    (r'tok_(eos|adds_eos)|chat_guide_in_reasoning|runtime_requests', 'tests look at what was read or is going on'),
    (r'host_add_model', 'a host without a registry: tests'),
    (r'cuda_twin_(power|product|row|weights)', 'the plain twins of the CUDA products: their checker compares with them'),
    (r'queue_push', 'the waiting twin of queue_try_push: tests fill a queue with it'),
]

def listed(*patterns):
    out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', *patterns], capture_output=True, text=True, check=True)
    return sorted(set(out.stdout.split()))

def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()

STRIP = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

def plain(text):
    """The text without comments and literals, every directive on one line."""
    return STRIP.sub(lambda m: ' ' if m.group()[0] == '/' else '0', text.replace('\\\n', ' '))

NAME = re.compile(r'[A-Za-z_]\w*')
HEAD = re.compile(r'([A-Za-z_]\w*)\s*\(')

def outermost(text):
    """Yields (text, place, 'body' or ';') of everything that stands at the outermost level; directives are left out."""
    text = re.sub(r'^[ \t]*#.*$', '', text, flags=re.M)
    depth, start = 0, 0
    for m in re.finditer(r'[{};]', text):
        c = m.group()
        if c == '{':
            if depth == 0:
                yield text[start:m.start()], 'body'
            depth += 1
        elif c == '}':
            depth -= 1
            if depth == 0:
                start = m.end()
        elif depth == 0:
            yield text[start:m.start()], ';'
            start = m.end()

def function_of(head):
    """(name, static) when a head is that of a function, else None."""
    head = re.sub(r'__attribute__\s*\(\(.*?\)\)\)?', ' ', head, flags=re.S).strip()
    head = re.sub(r'^extern\s+0\s*', '', head)
    m = HEAD.search(head)
    if not m or '=' in head or re.match(r'(typedef|struct|enum|union|static_assert|_Static_assert)\b', head) and not re.match(
            r'(struct|enum|union)\s+\w+[\s*]+\w+\s*\(', head):
        return None
    before = head[:m.start()].strip()
    if not before or not head.endswith(')'):
        return None
    return m.group(1), not statics.isdisjoint(NAME.findall(before))

def macros_with_static(text):
    return [m.group(1) for m in re.finditer(r'^[ \t]*#[ \t]*define[ \t]+(\w+)(.*)$', text, flags=re.M) if 'static' in m.group(2)]

texts = {p: plain(read(p)) for p in listed('src/*.c', 'src/*.h', 'src/*.cu', 'include/*.h', 'tests/*.c', 'tests/*.h', 'bench/*.c',
                                           'bench/*.h', 'tools/*.c', 'examples/*.c', 'tests/*.cu', 'bench/*.cu')}
statics = {'static', *(n for t in texts.values() for n in macros_with_static(t))}
pasted = {b for t in texts.values() for b in re.findall(r'##(_\w+)', t)} # endings that a macro makes
begun = {b for t in texts.values() for b in re.findall(r'(\w+_)##', t)}
uses = {}      # name -> {file: how often}
declared = {}  # name -> files that declare it
defined = {}   # name -> files that define it, not static
inline = {}    # name -> headers that define it, static
for path, text in texts.items():
    for name in NAME.findall(text):
        per = uses.setdefault(name, {})
        per[path] = per.get(path, 0) + 1
    if not path.startswith(('src/', 'include/')):
        continue
    for head, end in outermost(text):
        f = function_of(head)
        if not f:
            continue
        name, static = f
        if end == ';':
            if not static:
                declared.setdefault(name, []).append(path)
        elif not static:
            defined.setdefault(name, []).append(path)
        elif path.endswith('.h'):
            inline.setdefault(name, []).append(path)

findings = []
excused = set()
n_slots = 0

def report(name, path, text):
    reasons = [p for p, _ in ALLOWED if re.fullmatch(p, name)]
    excused.update(reasons)
    if not reasons:
        findings.append(f'{path}: {text}')

outside = ' '.join(t for p, t in texts.items() if p.startswith('src/') and not p.startswith('src/kernels/'))
for path in listed('src/kernels/*.h'):
    for m in re.finditer(r'#define KERNELS_(\w+)_SLOTS\(X\)(.*)', texts[path]):
        table = m.group(1).lower()
        for slot in re.findall(r'X\(\s*\w+\s*,\s*(\w+)\s*\)', m.group(2)):
            n_slots += 1
            if not re.search(r'\b%s(?:\.|->)%s\b' % (table, slot), outside):
                findings.append(f'{path}: slot {table}.{slot} has no caller outside src/kernels')

def made(name):
    return name.endswith(tuple(pasted)) or name.startswith(tuple(begun))

for name, files in sorted(declared.items()):
    if name not in defined:
        report(name, files[0], f'{name} is declared and not defined')
for name, files in sorted(defined.items()):
    n_decl = {}
    for p in declared.get(name, []):
        n_decl[p] = n_decl.get(p, 0) + 1
    others = [p for p, n in uses[name].items() if p not in files and n > n_decl.get(p, 0)]
    own = sum(uses[name][p] for p in files) - len(files) - sum(n_decl.get(p, 0) for p in files)
    if not others:
        what = 'is named in its own file only: make it static' if own else 'is never called'
        report(name, files[0], f'{name} {what}')
    elif not own and not any(p.startswith(('src/', 'include/')) for p in others):
        report(name, files[0], f'{name} is called by {" ".join(sorted(others)[:3])} only')
for name, files in sorted(inline.items()):
    if sum(uses[name].values()) == len(files) and not made(name):
        report(name, files[0], f'{name} is never called')
findings += [f'tests/check_unused.sh: {p} excuses nothing' for p, _ in ALLOWED if p not in excused]

for line in findings:
    print(line)
print(f'{n_slots} slots, {len(defined)} functions, {len(findings)} without use')
if n_slots < 10 or len(defined) < 1000:
    sys.exit('too few: is this the source tree?')
sys.exit(bool(findings))
PYTHON
