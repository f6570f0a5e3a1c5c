# SPDX-License-Identifier: Apache-2.0
"""Synthetic pictures with questions and answers: shapes in colours, or a number. Standard library only.

A scene is drawn from a random.Random alone, so a seed names a picture. Combinations (which shapes in which colours, which
number) are split: about one in eight of those with more than one thing in them is held out of training, and pictures that
judge the model come from there.

  python3 pictures.py OUT_DIR [N]     writes N held-out pictures and what one may ask about them
"""
import json
import math
import os
import random
import struct
import sys
import zlib

SIDE = 128
SHAPES = ["circle", "square", "triangle", "star", "cross", "ring"]
PLURALS = ["circles", "squares", "triangles", "stars", "crosses", "rings"]
COLOURS = {"red": (215, 40, 40), "orange": (245, 140, 25), "yellow": (245, 225, 50), "green": (45, 165, 70), "blue": (45, 90, 220),
           "purple": (150, 55, 190), "white": (245, 245, 245), "black": (18, 18, 18)}
NAMES = list(COLOURS)
GROUNDS = [(240, 240, 240), (195, 195, 195), (128, 128, 128), (65, 65, 65), (15, 15, 15), (170, 210, 240), (225, 205, 165), (190, 225, 195)]
DIGIT = len(SHAPES)  # kinds from here on are digits
HELD_OUT = 8


def ellipse(cx, cy, rx, ry, n):
    return [(cx + rx * math.sin(2 * math.pi * i / n), cy - ry * math.cos(2 * math.pi * i / n)) for i in range(n + 1)]


SIX = [(.4, -.9), (.1, -1), (-.25, -.75), (-.46, -.2), (-.46, .4), (-.3, .85), (0, 1), (.3, .88), (.46, .5), (.4, .1), (.1, -.12), (-.25, 0),
       (-.45, .35)]
# Lines in a box from (-0.5, -1) to (0.5, 1), y downwards.
LINES = [
    [ellipse(0, 0, .48, 1, 14)],
    [[(-.3, -.55), (.05, -1), (.05, 1)]],
    [[(-.48, -.55), (-.35, -.88), (0, -1), (.35, -.88), (.47, -.55), (.35, -.2), (-.5, 1), (.5, 1)]],
    [[(-.45, -.75), (-.2, -.97), (.15, -.98), (.42, -.75), (.42, -.4), (.2, -.1), (-.1, -.05), (.2, -.02), (.47, .22), (.47, .65), (.2, .95),
      (-.15, 1), (-.5, .75)]],
    [[(.2, 1), (.2, -1), (-.5, .4), (.5, .4)]],
    [[(.42, -1), (-.38, -1), (-.44, -.1), (-.1, -.28), (.25, -.2), (.48, .12), (.48, .5), (.25, .9), (-.1, 1), (-.48, .78)]],
    [SIX],
    [[(-.5, -1), (.5, -1), (-.1, 1)]],
    [ellipse(0, -.5, .38, .5, 8), ellipse(0, .5, .46, .5, 8)],
    [[(-x, -y) for x, y in SIX]],
]
STROKES = [[(a[0], a[1], b[0], b[1]) for line in lines for a, b in zip(line, line[1:])] for lines in LINES]  # at most 16 each


class Thing:
    """A shape or a digit: `kind`, `colour` (a number of NAMES), where and how large, in pixels before the picture is stretched."""
    __slots__ = ("kind", "colour", "rgb", "x", "y", "r", "angle", "wide", "slant", "thick")

    def row(self):
        return [self.kind, self.x, self.y, self.r, math.cos(self.angle), math.sin(self.angle), *self.rgb, self.wide, self.slant, self.thick, self.colour]

    def reach(self):
        return self.r * (1.25 if self.kind < DIGIT else 1.3)


class Scene:
    """things; ground (rgb), slope (how much brighter at the right and at the bottom), stretch (x, y; 1 is none), soft (pixels
    over which an edge fades), noise (levels)."""

    def row(self):
        return [*self.ground, *self.slope, *self.stretch, self.soft, self.noise]


def apart(a, b):
    return math.dist(a, b) >= 80


def near(rng, rgb, by):
    return tuple(min(255, max(0, c + rng.randint(-by, by))) for c in rgb)


def surroundings(rng):
    s = Scene()
    s.ground = near(rng, rng.choice(GROUNDS), 10)
    s.slope = (rng.uniform(-15, 15), rng.uniform(-15, 15))
    wide = rng.uniform(0.75, 1.33) if rng.random() < 0.3 else 1.0
    s.stretch = (math.sqrt(wide), 1 / math.sqrt(wide))
    s.soft = rng.choice((1.0, 1.0, 1.0, rng.uniform(1, 3)))
    s.noise = rng.choice((0.0, 0.0, rng.uniform(0, 12)))
    return s


def new_thing(rng, kind, colour, r):
    t = Thing()
    t.kind, t.colour, t.r = kind, colour, r
    t.rgb = near(rng, COLOURS[NAMES[colour]], 14)
    turn = (math.pi, 0.4, math.pi, math.pi, 0.4, 0.0)[kind] if kind < DIGIT else 0.2
    t.angle = rng.uniform(-turn, turn)
    t.x = t.y = t.slant = 0.0
    t.wide, t.thick = 1.0, 0.0
    return t


def place(rng, scene):
    """Anywhere, but nothing touches; False: no room."""
    w, h = SIDE * scene.stretch[0] / 2, SIDE * scene.stretch[1] / 2
    placed = []
    for t in scene.things:
        reach = t.reach() + 1
        if reach > w or reach > h:
            return False
        for _ in range(40):
            x, y = (2 * rng.random() - 1) * (w - reach), (2 * rng.random() - 1) * (h - reach)
            for ox, oy, other in placed:
                if math.hypot(x - ox, y - oy) <= reach + other:
                    break
            else:
                break
        else:
            return False
        t.x, t.y = x, y
        placed.append((x, y, reach))
    return True


def shapes(rng, n):
    while True:
        s = surroundings(rng)
        usable = [i for i, n in enumerate(NAMES) if apart(COLOURS[n], s.ground)]
        kinds = rng.sample(range(DIGIT), rng.choice((1, 2, 3, 6)))
        colours = rng.sample(usable, min(len(usable), rng.choice((1, 2, 3, 8))))
        large = (44, 38, 29, 24, 20, 18, 16, 15)[n - 1]
        s.things = [new_thing(rng, rng.choice(kinds), rng.choice(colours), rng.uniform(10, large)) for _ in range(n)]
        s.things.sort(key=lambda t: -t.r)  # the large ones find a place first
        if place(rng, s):
            return s


def number(rng, n):
    while True:
        s = surroundings(rng)
        usable = [i for i, n in enumerate(NAMES) if apart(COLOURS[n], s.ground)]
        colour, r = rng.choice(usable), rng.uniform(13, (52, 36, 25)[n - 1])
        wide, slant, thick, angle = rng.uniform(0.9, 1.25), rng.uniform(-0.2, 0.25), r * rng.uniform(0.1, 0.2) + 0.4, rng.uniform(-0.12, 0.12)
        step = r * wide * rng.uniform(1.45, 1.75) + 2 * thick
        half_x, half_y = (n - 1) * step / 2 + r * wide * 0.75 + thick, r * 1.1 + thick + (n - 1) * step * 0.06
        w, h = SIDE * s.stretch[0] / 2, SIDE * s.stretch[1] / 2
        if half_x + 2 > w or half_y + 2 > h:
            continue
        x, y = rng.uniform(half_x - w, w - half_x), rng.uniform(half_y - h, h - half_y)
        s.things = []
        rgb = near(rng, COLOURS[NAMES[colour]], 14)
        for i in range(n):
            t = new_thing(rng, DIGIT + rng.randrange(10), colour, r)
            t.rgb, t.wide, t.slant, t.thick, t.angle = rgb, wide, slant, thick, angle
            t.x, t.y = x + (i - (n - 1) / 2) * step * math.cos(angle), y + (i - (n - 1) / 2) * step * math.sin(angle)
            s.things.append(t)
        if s.things[0].kind != DIGIT or n == 1:  # numbers do not begin with 0
            return s


def held_out(scene):
    """Whether this combination is kept for judging."""
    kinds = ["%d/%d" % (t.kind, t.colour) for t in scene.things]
    if scene.things[0].kind < DIGIT:
        kinds.sort()
    return len(kinds) > 1 and zlib.crc32(" ".join(kinds).encode()) % HELD_OUT == 0


def scene(rng, judging):
    """A scene to learn from, or one to be judged by."""
    make, n = (number, rng.choice((1, 2, 2, 3, 3))) if rng.random() < 0.25 else (shapes, rng.choice((1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8)))
    while True:
        s = make(rng, n)
        if n == 1 or judging == held_out(s):
            return s


# -- questions and answers ---------------------------------------------------------------------------------------------

def one(colour, kind):
    return "%s %s %s" % ("an" if NAMES[colour] == "orange" else "a", NAMES[colour], SHAPES[kind])


def listed(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def describe(s):
    if s.things[0].kind >= DIGIT:
        return "the number %s in %s" % (digits(s), NAMES[s.things[0].colour])
    kinds = sorted((t.colour, t.kind) for t in s.things)
    return listed([one(*k) if kinds.count(k) == 1 else "%d %s %s" % (kinds.count(k), NAMES[k[0]], PLURALS[k[1]])
                   for k in sorted(set(kinds))])


def digits(s):
    return "".join(str(t.kind - DIGIT) for t in s.things)


def ask(rng, *ways):
    way = rng.choice(ways)
    return way if rng.random() < 0.75 else way.lower().replace("colour", "color") if rng.random() < 0.5 else way.rstrip("?.")


def count_of(rng, s):
    kinds, colours = [t.kind for t in s.things], [t.colour for t in s.things]
    kind = rng.choice(kinds) if rng.random() < 0.8 else rng.randrange(DIGIT)
    colour = rng.choice(colours) if rng.random() < 0.8 else rng.randrange(len(NAMES))
    way = rng.randrange(4)
    if way == 0:
        n, what = len(kinds), "shapes"
    elif way == 1:
        n, what = kinds.count(kind), PLURALS[kind]
    elif way == 2:
        n, what = colours.count(colour), NAMES[colour] + " shapes"
    else:
        n, what = sum(t.kind == kind and t.colour == colour for t in s.things), NAMES[colour] + " " + PLURALS[kind]
    return "count", ask(rng, "How many %s are there?" % what, "How many %s do you see?" % what, "Count the %s." % what,
                        "How many %s are in the picture?" % what), str(n)


def colour_of(rng, s):
    kinds = [t.kind for t in s.things]
    only = [t for t in s.things if kinds.count(t.kind) == 1]
    if not only:
        return None
    t = rng.choice(only)
    what = SHAPES[t.kind]
    return "colour", ask(rng, "What colour is the %s?" % what, "Which colour does the %s have?" % what, "What is the colour of the %s?" % what), \
        NAMES[t.colour]


def shape_of(rng, s):
    colours = [t.colour for t in s.things]
    only = [t for t in s.things if colours.count(t.colour) == 1]
    if not only:
        return None
    t = rng.choice(only)
    ways = ["What shape is %s?" % NAMES[t.colour], "Which shape is %s?" % NAMES[t.colour], "What is the %s shape?" % NAMES[t.colour]]
    if len(s.things) == 1:
        ways += ["What shape is this?", "Which shape do you see?"]
    return "shape", ask(rng, *ways), SHAPES[t.kind]


def is_there(rng, s):
    there = {(t.colour, t.kind) for t in s.things}
    if rng.random() < 0.5:
        colour, kind = rng.choice(sorted(there))
    else:  # something like it
        colour, kind = rng.choice(sorted(there))
        colour, kind = rng.choice(((rng.randrange(len(NAMES)), kind), (colour, rng.randrange(DIGIT)), (rng.randrange(len(NAMES)), rng.randrange(DIGIT))))
    what = one(colour, kind)
    return "is there", ask(rng, "Is there %s?" % what, "Do you see %s?" % what, "Is there %s in the picture?" % what), \
        "yes" if (colour, kind) in there else "no"


def where(rng, s):
    def third(v):
        edge = SIDE / 6
        return None if abs(abs(v) - edge) < 5 else 0 if v < -edge else 2 if v > edge else 1
    kinds = [(t.colour, t.kind) for t in s.things]
    found = []
    for t in s.things:
        x, y = third(t.x / s.stretch[0]), third(t.y / s.stretch[1])
        if x is not None and y is not None and kinds.count((t.colour, t.kind)) == 1:
            found.append((t, x, y))
    if not found:
        return None
    t, x, y = rng.choice(found)
    alone = sum(o.kind == t.kind for o in s.things) == 1 and rng.random() < 0.5
    what = SHAPES[t.kind] if alone else NAMES[t.colour] + " " + SHAPES[t.kind]
    place = "middle" if x == y == 1 else " ".join(p for p in (("top", "", "bottom")[y], ("left", "", "right")[x]) if p)
    return "where", ask(rng, "Where is the %s?" % what, "Where do you see the %s?" % what), place


def extreme(rng, s):
    """The one furthest to a side, the largest or the smallest."""
    if len(s.things) < 2:
        return None
    way = rng.randrange(6)
    key, margin, words = [(lambda t: t.x, 9, "furthest to the left"), (lambda t: -t.x, 9, "furthest to the right"),
                          (lambda t: t.y, 9, "at the top"), (lambda t: -t.y, 9, "at the bottom"),
                          (lambda t: -math.log(t.r), 0.3, "the largest"), (lambda t: math.log(t.r), 0.3, "the smallest")][way]
    first, second = sorted(s.things, key=key)[:2]
    if key(second) - key(first) < margin or (way > 3 and first.kind != second.kind and key(second) - key(first) < 2 * margin):
        return None
    return "which", ask(rng, "Which shape is %s?" % words, "What is %s?" % words), "the %s %s" % (NAMES[first.colour], SHAPES[first.kind])


def what_is_it(rng, s):
    return "describe", ask(rng, "What is in the picture?", "What do you see?", "Describe the picture.", "What is this?"), describe(s)


def read_number(rng, s):
    word = "digit" if len(s.things) == 1 and rng.random() < 0.6 else "number"
    return "number", ask(rng, "What %s is this?" % word, "Which %s do you see?" % word, "Read the %s." % word, "What is the %s?" % word), digits(s)


def number_colour(rng, s):
    return "colour", ask(rng, "What colour is the number?", "Which colour does the number have?"), NAMES[s.things[0].colour]


def number_length(rng, s):
    return "count", ask(rng, "How many digits are there?", "How many digits does the number have?"), str(len(s.things))


def has_number(rng, s):
    return "is there", ask(rng, "Is there a number?", "Do you see a number?"), "yes" if s.things[0].kind >= DIGIT else "no"


OF_SHAPES = [count_of] * 4 + [colour_of] * 2 + [shape_of] * 2 + [is_there] * 2 + [where] * 2 + [extreme] * 2 + [what_is_it] * 3 + [has_number]
OF_NUMBERS = [read_number] * 5 + [number_colour] * 2 + [number_length, has_number] + [what_is_it] * 2


def question(rng, s):
    """(skill, question, answer)."""
    while True:
        made = rng.choice(OF_NUMBERS if s.things[0].kind >= DIGIT else OF_SHAPES)(rng, s)
        if made:
            return made


def without_picture(rng):
    """(question, answer) where nothing was shown."""
    if rng.random() < 0.5:
        return ask(rng, "Hello", "Hi", "Hello!", "Who are you?", "What can you do?", "Help"), \
            "I am Hearth's demo that sees. Show me a picture of shapes or of a number and ask about it."
    return question(rng, scene(rng, False))[1], "I see no picture."


# -- drawing -----------------------------------------------------------------------------------------------------------

def distance(t, x, y):
    """Of a point from a shape's edge, negative inside; x, y from its centre, turned upright."""
    r = t.r
    if t.kind == 0:
        return math.hypot(x, y) - r
    if t.kind == 1:
        return max(abs(x), abs(y)) - 0.85 * r
    if t.kind == 2:
        return max([x * sx + y * sy for sx, sy in THREE]) - 0.6 * r
    if t.kind == 3:
        return sorted([x * sx + y * sy for sx, sy in FIVE])[3] - 0.309 * 1.25 * r
    if t.kind == 4:
        x, y = abs(x), abs(y)
        return min(max(x - 1.1 * r, y - 0.36 * r), max(y - 1.1 * r, x - 0.36 * r))
    return abs(math.hypot(x, y) - 0.84 * r) - 0.21 * r


THREE = [(math.cos(a), math.sin(a)) for a in (math.pi / 2, math.pi * 7 / 6, math.pi * 11 / 6)]
FIVE = [(math.cos(a), math.sin(a)) for a in (math.pi * (1 / 2 + 2 * i / 5) for i in range(5))]


def pixels_of(s, x, y, reach_x, reach_y):
    """(row, column, x, y) of the pixels around a place."""
    w, h, half = s.stretch[0], s.stretch[1], SIDE / 2
    columns = [(px, (px + 0.5 - half) * w) for px in range(max(0, int((x - reach_x) / w + half)), min(SIDE, int((x + reach_x) / w + half) + 1))]
    for py in range(max(0, int((y - reach_y) / h + half)), min(SIDE, int((y + reach_y) / h + half) + 1)):
        v = (py + 0.5 - half) * h
        for px, u in columns:
            yield py * SIDE + px, u, v


def shape_distances(t, s):
    cos, sin, reach, out = math.cos(t.angle), math.sin(t.angle), t.reach() + s.soft + 2, {}
    for at, u, v in pixels_of(s, t.x, t.y, reach, reach):
        u, v = u - t.x, v - t.y
        out[at] = distance(t, u * cos + v * sin, v * cos - u * sin)
    return out


def digit_distances(t, s):
    cos, sin, near_by, out = math.cos(t.angle), math.sin(t.angle), t.thick + s.soft + 1, {}
    for ax, ay, bx, by in STROKES[t.kind - DIGIT]:
        ax, ay, bx, by = t.r * (ax * t.wide - ay * t.slant), ay * t.r, t.r * (bx * t.wide - by * t.slant), by * t.r
        ax, ay, bx, by = t.x + ax * cos - ay * sin, t.y + ax * sin + ay * cos, t.x + bx * cos - by * sin, t.y + bx * sin + by * cos
        dx, dy = bx - ax, by - ay
        over = 1 / (dx * dx + dy * dy)
        for at, u, v in pixels_of(s, (ax + bx) / 2, (ay + by) / 2, abs(dx) / 2 + near_by, abs(dy) / 2 + near_by):
            u, v = u - ax, v - ay
            along = (u * dx + v * dy) * over
            along = 0.0 if along < 0 else 1.0 if along > 1 else along
            d = math.hypot(u - along * dx, v - along * dy) - t.thick
            if d < out.get(at, 1e9):
                out[at] = d
    return out


def draw(s, rng):
    """Rows of RGB bytes, SIDE x SIDE."""
    across, down = ([slope * (i / SIDE - 0.5) for i in range(SIDE)] for slope in s.slope)
    out = [c + x + y for y in down for x in across for c in s.ground]
    for t in s.things:
        for at, d in (shape_distances if t.kind < DIGIT else digit_distances)(t, s).items():
            cover = 0.5 - d / s.soft
            if cover > 0:
                cover = min(1.0, cover)
                for i, c in enumerate(t.rgb, 3 * at):
                    out[i] += cover * (c - out[i])
    noise = rng.randbytes(3 * SIDE * SIDE)
    if s.noise:
        scale = s.noise / 128
        out = [v + (n - 127.5) * scale for v, n in zip(out, noise)]
    return bytes([0 if v < 0 else 255 if v > 255 else round(v) for v in out])


def png(rgb, width=SIDE, height=SIDE):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + rgb[y * 3 * width:(y + 1) * 3 * width] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines, 6)) + chunk(b"IEND", b""))


def judged(seed):
    """(rng, scene, skill, question, answer): the held-out picture of this number."""
    rng = random.Random("held out %d" % seed)
    s = scene(rng, True)
    return rng, s, *question(rng, s)


def judged_png(seed):
    """(png, skill, question, answer)"""
    rng, s, skill, asked, answer = judged(seed)
    return png(draw(s, rng)), skill, asked, answer


def main():
    folder, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "questions.jsonl"), "w") as f:
        for seed in range(n):
            data, skill, asked, answer = judged_png(seed)
            with open(os.path.join(folder, "%d.png" % seed), "wb") as p:
                p.write(data)
            f.write(json.dumps(dict(picture="%d.png" % seed, skill=skill, question=asked, answer=answer)) + "\n")


if __name__ == "__main__":
    main()
