# SPDX-License-Identifier: Apache-2.0
"""One function per skill: makes a conversation and what a right answer is.

A maker gets a random generator and a Split. Split.take(*key) says whether a combination (two numbers and an operation, a
country and a phrasing, ...) belongs to this split; about one in eight is held out of training and makes the evaluation.
A maker returns an Example, or None when its draw belongs to the other split.
"""
import json
import zlib

from facts import (ANIMALS, CITIES, COLOURS, COUNTRIES, DAYS, FIRST_NAMES, FOODS, HEARTH, JOBS, MONTHS, NOUNS, PLACES, THINGS)
from stories import PETS, SHE, a, story, story_with


class Example:
    def __init__(self, skill, messages, tools=None, thinking=False, check=None):
        self.skill, self.messages, self.tools, self.thinking = skill, messages, tools, thinking
        self.check = check or {"equals": messages[-1].get("content", "")}


class Split:
    def __init__(self, held_out):
        self.held_out = held_out

    def take(self, *key):
        return (zlib.crc32(repr(key).encode()) % 8 == 0) == self.held_out


ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "kr", "st", "tr", "sh", "gl"]


def any_name(rng):
    """A known first name, or an invented one: a name must be copied, not recalled."""
    if rng.random() < 0.6:
        return rng.choice(FIRST_NAMES)
    return "".join(rng.choice(ONSETS) + rng.choice("aeiou") for _ in range(rng.randint(1, 3))).capitalize() + rng.choice(["", "n", "x", "r", "s", "ky"])


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def answer(text, think=None, calls=None):
    m = {"role": "assistant", "content": text}
    if think is not None:
        m["think"] = think
    if calls:
        m["tool_calls"] = calls
    return m


def casual(rng, ask):
    """A question as people type it: sometimes without capitals or the question mark, sometimes with a word before it."""
    chance = rng.random()
    if chance < 0.06:
        ask = ask[0].lower() + ask[1:]
    elif chance < 0.10:
        ask = ask.lower()
    elif chance < 0.14:
        ask = rng.choice(["Please: ", "Hey, ", "Hello. ", "Quick question: ", "Tell me: ", "OK. "]) + ask
    if rng.random() < 0.08 and ask[-1] in "?.":
        ask = ask[:-1]
    return ask


# -- arithmetic --------------------------------------------------------------------------------------------------------

def sum_steps(x, y):
    """Column addition in words, the way it is taught."""
    if x < 10 and y < 10:
        return "%d + %d = %d." % (x, y, x + y)
    tens, ones = x // 10 * 10 + y // 10 * 10, x % 10 + y % 10
    return "Tens: %d + %d = %d. Ones: %d + %d = %d. %d + %d = %d." % (
        x // 10 * 10, y // 10 * 10, tens, x % 10, y % 10, ones, tens, ones, tens + ones)


def difference_steps(x, y):
    if x < 10 and y < 10:
        return "%d - %d = %d." % (x, y, x - y)
    first = x - y // 10 * 10
    return "%d - %d = %d. %d - %d = %d." % (x, y // 10 * 10, first, first, y % 10, x - y)


def product_steps(x, y):
    if x < 10 and y < 10:
        return "%d * %d = %d." % (x, y, x * y)
    tens, ones = x // 10 * 10 * y, x % 10 * y
    return "%d * %d = %d. %d * %d = %d. %d + %d = %d." % (x // 10 * 10, y, tens, x % 10, y, ones, tens, ones, tens + ones)


def arithmetic(rng, split):
    op = rng.choice("++--*")
    size = rng.choice([9, 20, 99, 99, 99])
    x, y = rng.randint(0, size), rng.randint(0, size)
    if op == "-" and y > x:
        x, y = y, x
    if op == "*":
        x, y = rng.randint(0, 99 if rng.random() < 0.4 else 12), rng.randint(0, 9 if rng.random() < 0.7 else 12)
        if x >= 10 and y >= 10 and not (x <= 12 and y <= 12):
            y = rng.randint(0, 9)
    if not split.take("arithmetic", op, x, y):
        return None
    value = {"+": x + y, "-": x - y, "*": x * y}[op]
    steps = {"+": sum_steps, "-": difference_steps, "*": product_steps}[op](x, y)
    word = {"+": "plus", "-": "minus", "*": "times"}[op]
    ask = rng.choice(["What is {x} {w} {y}?", "What is {x} {o} {y}?", "{x} {o} {y} = ?", "Calculate {x} {w} {y}.",
                      "How much is {x} {w} {y}?", "Please work out {x} {o} {y}.", "Can you tell me what {x} {w} {y} is?",
                      "{x}{o}{y}", "{x} {o} {y}", "What's {x} {w} {y}?", "What is {x}{o}{y}?", "Compute {x} {o} {y}."])
    ask = casual(rng, ask.format(x=x, y=y, w=word, o=op))
    thinking = rng.random() < 0.5
    reply = "%d %s %d is %d." % (x, word, y, value)
    return Example("arithmetic", [user(ask), answer(reply, think=steps)], thinking=thinking, check={"contains": " is %d." % value})


# -- facts -------------------------------------------------------------------------------------------------------------

def country_fact(rng):
    name = rng.choice(list(COUNTRIES))
    capital, continent, language, currency = COUNTRIES[name]
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(["What is the capital of {}?", "Which city is the capital of {}?", "Name the capital of {}.",
                           "Tell me the capital of {}."]).format(name), "The capital of %s is %s." % (name, capital)
    if kind == 1:
        return rng.choice(["On which continent is {}?", "Where is {}?", "Which continent is {} on?",
                           "In which part of the world is {}?"]).format(name), "%s is in %s." % (name, continent)
    if kind == 2:
        return rng.choice(["Which language do people speak in {}?", "What language is spoken in {}?", "What do people speak in {}?",
                           "Tell me the language of {}."]).format(name), "People in %s speak %s." % (name, language)
    if kind == 3:
        return rng.choice(["What is the currency of {}?", "Which currency is used in {}?", "What money do people use in {}?",
                           "How do people pay in {}?"]).format(name), "The currency of %s is %s." % (name, currency)
    unique = [n for n, c in COUNTRIES.items() if c[0] == capital]
    return rng.choice(["{} is the capital of which country?", "Which country has the capital {}?", "In which country is {}?",
                       "Tell me which country {} is the capital of."]).format(capital), "%s is the capital of %s." % (capital, unique[0])


NUMBER = {0: "no", 2: "two", 4: "four", 6: "six", 8: "eight"}


def animal_fact(rng):
    name = rng.choice(list(ANIMALS))
    legs, kind_of, young, home, food = ANIMALS[name]
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(["How many legs does {} have?", "How many legs has {}?", "Tell me how many legs {} has.",
                           "What number of legs does {} have?"]).format(a(name)), "%s has %s legs." % (a(name).capitalize(), NUMBER[legs])
    if kind == 1:
        return rng.choice(["What kind of animal is {}?", "What sort of animal is {}?", "Is {} a mammal, a bird or something else?",
                           "Which class of animals does {} belong to?"]).format(a(name)), "%s is %s." % (a(name).capitalize(), kind_of if kind_of == "fish" else a(kind_of))
    if kind == 2:
        return rng.choice(["What is a baby {} called?", "What do you call a young {}?", "How is a young {} called?",
                           "Tell me the name of a baby {}."]).format(name), "A young %s is called %s." % (name, "fry" if young == "fry" else a(young))
    if kind == 3:
        return rng.choice(["Where does {} live?", "What is the home of {}?", "Where can I find {}?",
                           "Tell me where {} lives."]).format(a(name)), "%s lives in %s." % (a(name).capitalize(), home)
    return rng.choice(["What does {} eat?", "What is the food of {}?", "What do I feed {}?", "Tell me what {} eats."]).format(a(name)), \
        "%s eats %s." % (a(name).capitalize(), food)


def calendar_fact(rng):
    kind = rng.randrange(6)
    i = rng.randrange(7)
    m = rng.randrange(12)
    if kind == 0:
        return rng.choice(["Which day comes after {}?", "What day follows {}?", "What is the day after {}?", "Name the day after {}."]).format(DAYS[i]), \
            "%s comes after %s." % (DAYS[(i + 1) % 7], DAYS[i])
    if kind == 1:
        return rng.choice(["Which day comes before {}?", "What is the day before {}?", "Name the day before {}.", "Tell me the day before {}."]).format(DAYS[i]), \
            "%s comes before %s." % (DAYS[(i + 6) % 7], DAYS[i])
    if kind == 2:
        return rng.choice(["Which month comes after {}?", "What month follows {}?", "What is the month after {}?", "Name the month after {}."]).format(MONTHS[m][0]), \
            "%s comes after %s." % (MONTHS[(m + 1) % 12][0], MONTHS[m][0])
    if kind == 3:
        return rng.choice(["Which month comes before {}?", "What is the month before {}?", "Name the month before {}.", "Tell me the month before {}."]).format(MONTHS[m][0]), \
            "%s comes before %s." % (MONTHS[(m + 11) % 12][0], MONTHS[m][0])
    if kind == 4:
        return rng.choice(["How many days does {} have?", "How many days are in {}?", "How long is {}?", "Tell me the number of days in {}."]).format(MONTHS[m][0]), \
            "%s has %d days." % MONTHS[m]
    return rng.choice(["Which number is the month {}?", "What number is {} in the year?", "{} is which month of the year?",
                       "Tell me the number of the month {}."]).format(MONTHS[m][0]), "%s is month number %d." % (MONTHS[m][0], m + 1)


def facts(rng, split):
    ask, reply = rng.choice([country_fact, country_fact, animal_fact, animal_fact, calendar_fact])(rng)
    if not split.take("fact", ask):
        return None
    return Example("facts", [user(casual(rng, ask)), answer(reply, think="This is in my table of facts.")], thinking=rng.random() < 0.15)


def about_hearth(rng, split):
    asks, reply = rng.choice(HEARTH)
    ask = rng.choice(asks)
    if rng.random() < 0.3:
        ask = rng.choice(["Hello! ", "Hi. ", "Excuse me, ", "A question: "]) + ask
    return Example("about", [user(ask), answer(reply, think="This is about Hearth and me.")], thinking=rng.random() < 0.15)


# -- stories -----------------------------------------------------------------------------------------------------------

ONE = ["Tell me a story about a {}.", "Write a short story with a {}.", "Please tell a story about a {}.", "Tell me a short story about a {}.",
       "Can you write a story about a {}?", "A story about a {}, please.", "Write a story with the word {}."]
SEVERAL = ["Tell me a story with the words {}.", "Write a short story that uses the words {}.", "Tell me a short story with the words {}.",
           "Write a story with these words: {}.", "Use the words {} in a story.", "Can you tell a story about {}?",
           "Please write a short story about {}.", "Tell me a story with {}."]


def stories(rng, split):
    count = rng.choice([0, 1, 1, 2, 2, 3, 3, 3])
    pool = rng.choice([THINGS + PLACES + PETS, THINGS + PLACES + PETS + NOUNS + FOODS, NOUNS + FOODS])
    words = rng.sample(sorted(set(pool)), count)
    if not split.take("story", *sorted(words)):
        return None
    if count == 0:
        ask = rng.choice(["Tell me a short story.", "Please tell me a story.", "Write a short story.", "Tell me a story.", "A story, please."])
    elif count == 1:
        ask = rng.choice(ONE).format(words[0]).replace(" a %s" % words[0], " " + a(words[0]))
    else:
        said = ", ".join(words[:-1]) + rng.choice([" and ", " and ", ", and " if count > 2 else " and ", ", "]) + words[-1]
        ask = rng.choice(SEVERAL).format(said)
    return Example("stories", [user(casual(rng, ask)), answer(story_with(rng, words), think="I need a beginning, a small problem and a good end.")],
                   thinking=rng.random() < 0.1, check={"words": words})


# -- questions about a text --------------------------------------------------------------------------------------------

def reading(rng, split):
    name, other = rng.sample(FIRST_NAMES, 2)
    thing, colour, place, city, job = (rng.choice(x) for x in (THINGS, COLOURS, PLACES, CITIES, JOBS))
    day, n, food = rng.choice(DAYS), rng.randint(2, 30), rng.choice(FOODS)
    if not split.take("reading", name, thing, colour):
        return None
    he = "She" if name in SHE else "He"
    sentences = [
        ("%s is %s and lives in %s." % (name, a(job), city),
         [("Where does %s live?" % name, "%s lives in %s." % (name, city)),
          ("What is the job of %s?" % name, "%s is %s." % (name, a(job))), ("What does %s do?" % name, "%s is %s." % (name, a(job)))]),
        ("On %s %s bought %s %s at the %s." % (day, name, a(colour), thing, place),
         [("What did %s buy?" % name, "%s bought %s %s." % (name, a(colour), thing)),
          ("When did %s buy the %s?" % (name, thing), "%s bought the %s on %s." % (name, thing, day)),
          ("Where did %s buy the %s?" % (name, thing), "%s bought the %s at the %s." % (name, thing, place)),
          ("What colour is the %s?" % thing, "The %s is %s." % (thing, colour))]),
        ("It cost %d coins." % n, [("How much did the %s cost?" % thing, "The %s cost %d coins." % (thing, n))]),
        ("%s gave it to %s." % (he, other),
         [("Who got the %s?" % thing, "%s got the %s." % (other, thing)),
          ("Who gave the %s to %s?" % (thing, other), "%s gave the %s to %s." % (name, thing, other))]),
        ("%s likes %s best." % (other, food), [("What does %s like best?" % other, "%s likes %s best." % (other, food))]),
    ]
    text = " ".join(s for s, _ in sentences)
    ask, reply = rng.choice([q for _, questions in sentences for q in questions])
    if rng.random() < 0.12:
        ask, reply = rng.choice([("How old is %s?" % name, "The text does not say how old %s is." % name),
                                 ("What is the name of %s's sister?" % other, "The text does not say that."),
                                 ("What did %s eat for breakfast?" % name, "The text does not say that.")])
    form = rng.choice(["{t}\n\n{q}", "Read this text: {t}\n\nQuestion: {q}", "Text: {t}\n{q}", "{q}\n\n{t}"])
    return Example("reading", [user(form.format(t=text, q=ask)), answer(reply, think="I look for the sentence in the text.")],
                   thinking=rng.random() < 0.1)


# -- system prompts ----------------------------------------------------------------------------------------------------

def persona(rng, split):
    name = any_name(rng)
    kind = rng.randrange(6)
    if kind in (0, 5):
        if not split.take("persona", name):
            return None
        prompt = rng.choice(["Your name is {}.", "You are called {}.", "You are {}, a friendly helper.", "Act as {}."]).format(name)
        ask = rng.choice(["What is your name?", "Who are you?", "What are you called?", "Please introduce yourself."])
        return Example("persona", [system(prompt), user(ask), answer("I am %s." % name, think="My name is in the system prompt.")],
                       thinking=rng.random() < 0.1)
    ask, reply = rng.choice([country_fact, animal_fact, calendar_fact])(rng)
    if not split.take("style", kind, ask):
        return None
    if kind == 1:
        prompt = rng.choice(["Answer in capital letters.", "Write everything in capital letters.", "Use only capital letters."])
        reply = reply.upper()
    elif kind == 2:
        prompt = rng.choice(["End every answer with the word Ahoy!", "You are a pirate. End every answer with the word Ahoy!"])
        reply += " Ahoy!"
    elif kind == 3:
        prompt = rng.choice(["Begin every answer with the words Dear friend.", "Start each answer with Dear friend."])
        reply = "Dear friend, " + reply
    else:
        prompt = "Your name is %s. Sign every answer with your name." % name
        reply += " - " + name
    return Example("persona", [system(prompt), user(ask), answer(reply, think="The system prompt sets the style.")],
                   thinking=rng.random() < 0.1)


# -- memory over turns -------------------------------------------------------------------------------------------------

def memory(rng, split):
    name, pet_name = any_name(rng), any_name(rng)
    colour, number, city, pet = rng.choice(COLOURS), rng.randint(1, 99), rng.choice(CITIES), rng.choice(PETS)
    kinds = {
        "name": (["My name is {}.".format(name), "I am {}.".format(name), "Call me {}.".format(name)],
                 "Nice to meet you, %s." % name, ["What is my name?", "Do you remember my name?", "Who am I?"], "Your name is %s." % name),
        "colour": (["My favourite colour is {}.".format(colour), "I like the colour {} best.".format(colour)],
                   "%s is a nice colour." % colour.capitalize(), ["What is my favourite colour?", "Which colour do I like best?"],
                   "Your favourite colour is %s." % colour),
        "number": (["My lucky number is {}.".format(number), "Please remember the number {}.".format(number)],
                   "I will remember %d." % number, ["Which number did I tell you?", "What was my number?"], "Your number is %d." % number),
        "city": (["I live in {}.".format(city), "My home is in {}.".format(city)], "%s must be a nice place." % city,
                 ["Where do I live?", "In which city do I live?"], "You live in %s." % city),
        "pet": (["I have {} called {}.".format(a(pet), pet_name), "My {} is called {}.".format(pet, pet_name)],
                "%s is a good name for %s." % (pet_name, a(pet)),
                ["What is my %s called?" % pet, "What is the name of my %s?" % pet], "Your %s is called %s." % (pet, pet_name)),
    }
    told = rng.sample(list(kinds), rng.randint(1, 3))
    if not split.take("memory", name, colour, number, city):
        return None
    messages = []
    for key in told:
        says, reply, _, _ = kinds[key]
        messages += [user(rng.choice(says)), answer(reply)]
    for _ in range(rng.randint(0, 2)):
        ask, reply = rng.choice([country_fact, animal_fact, calendar_fact])(rng)
        messages += [user(ask), answer(reply)]
    _, _, asks, reply = kinds[rng.choice(told)]
    if rng.random() < 0.15:  # also learn to answer the telling itself
        key = rng.choice(told)
        return Example("memory", [user(rng.choice(kinds[key][0])), answer(kinds[key][1], think="The user tells me something.")],
                       thinking=False)
    messages += [user(rng.choice(asks)), answer(reply, think="The user told me this before.")]
    return Example("memory", messages, thinking=rng.random() < 0.1)


# -- tools -------------------------------------------------------------------------------------------------------------

# Every tool goes by several names and its parameters by several keys, so that the call must be read off the definition.
TOOL_NAMES = {
    "get_weather": ["get_weather", "weather", "current_weather", "get_current_weather", "weather_lookup", "forecast"],
    "get_time": ["get_time", "time", "current_time", "get_current_time", "clock", "time_lookup"],
    "set_timer": ["set_timer", "timer", "start_timer", "create_timer", "alarm", "set_alarm"],
    "send_message": ["send_message", "message", "send_text", "post_message", "send_mail", "notify"],
    "find_route": ["find_route", "route", "get_route", "plan_trip", "directions", "find_way"],
    "get_price": ["get_price", "price", "price_lookup", "lookup_price", "shop_price", "find_price"],
    "switch_light": ["switch_light", "light", "set_light", "control_light", "lamp", "light_switch"],
    "add_to_list": ["add_to_list", "shopping_list", "add_item", "list_add", "add_shopping_item", "append_list"],
    "translate": ["translate", "translate_word", "translation", "get_translation", "dictionary", "lookup_word"],
}
PARAMETER_NAMES = {
    "city": ["city", "location", "place", "town"], "minutes": ["minutes", "duration", "length"], "to": ["to", "recipient", "person", "name"],
    "text": ["text", "message", "content", "body"], "start": ["start", "origin", "from_city"], "end": ["end", "destination", "to_city"],
    "item": ["item", "product", "thing"], "room": ["room", "area", "where"], "on": ["on", "state", "enabled"],
    "count": ["count", "quantity", "amount"], "word": ["word", "phrase", "input"], "language": ["language", "target", "target_language"],
}
PARAMETER_HELP = {
    "city": "the name of the city", "minutes": "how many minutes", "to": "who gets it", "text": "what to say", "start": "where it begins",
    "end": "where it ends", "item": "the name of the thing", "room": "the room", "on": "true to switch on", "count": "how many",
    "word": "the word", "language": "the language",
}


def tool(rng, name, description, arguments, **properties):
    """A definition as clients send it, in one of its spellings, and the arguments under the spelling's keys."""
    keys = {p: rng.choice(PARAMETER_NAMES[p]) for p in properties}
    described = rng.random() < 0.4
    schema = {keys[p]: dict({"type": t}, **({"description": PARAMETER_HELP[p]} if described else {})) for p, t in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(schema)}
    if rng.random() < 0.25:
        parameters["additionalProperties"] = False
    definition = {"name": rng.choice(TOOL_NAMES[name]), "description": description, "parameters": parameters}
    return definition, {keys[p]: arguments[p] for p in arguments}


def tool_table(rng):
    """Every tool: (kind, definition, request texts, arguments, result, answer, what fills the texts)."""
    city, other = rng.sample(CITIES, 2)
    person, thing, food = rng.choice(FIRST_NAMES), rng.choice(THINGS), rng.choice(FOODS)
    n, hour, degrees, price = rng.randint(2, 60), rng.randint(0, 23), rng.randint(-9, 35), rng.randint(1, 90)
    weather = rng.choice(["sunny", "rainy", "cloudy", "windy", "snowy"])
    room = rng.choice(["kitchen", "bedroom", "hall", "office", "garage"])
    word = rng.choice(["hello", "goodbye", "thank you", "friend", "water", "bread", "I am late", "see you soon"] + THINGS)
    language = rng.choice(["French", "German", "Spanish", "Italian", "Polish", "Danish"])
    clock = "%02d:%02d" % (hour, rng.choice([0, 15, 30, 45]))
    rows = [
        ("get_weather", "Get the weather in a city", {"city": "string"}, {"city": city},
         ["What is the weather in {c}?", "How is the weather in {c} today?", "Is it raining in {c}?", "Tell me the weather in {c}.",
          "What's the weather like in {c}?"],
         {"weather": weather, "degrees": degrees}, "It is %s in %s, with %d degrees." % (weather, city, degrees), {"c": city}),
        ("get_time", "Get the current time in a city", {"city": "string"}, {"city": city},
         ["What time is it in {c}?", "Tell me the time in {c}.", "How late is it in {c} now?", "What's the time in {c}?"],
         {"time": clock}, "It is %s in %s." % (clock, city), {"c": city}),
        ("set_timer", "Start a timer", {"minutes": "integer"}, {"minutes": n},
         ["Set a timer for {n} minutes.", "Start a timer of {n} minutes.", "Please wake me in {n} minutes."],
         {"ok": True}, "The timer is set for %d minutes." % n, {"n": n}),
        ("send_message", "Send a message to a person", {"to": "string", "text": "string"}, {"to": person, "text": word},
         ["Send {p} the message: {w}", "Write to {p}: {w}", "Tell {p} this: {w}"],
         {"ok": True}, "The message to %s was sent." % person, {"p": person, "w": word}),
        ("find_route", "Find the way between two cities", {"start": "string", "end": "string"}, {"start": city, "end": other},
         ["How do I get from {c} to {d}?", "Find the way from {c} to {d}.", "Show me the route from {c} to {d}."],
         {"hours": n}, "The way from %s to %s takes %d hours." % (city, other, n), {"c": city, "d": other}),
        ("get_price", "Get the price of a thing in the shop", {"item": "string"}, {"item": thing},
         ["How much is the {t} in the shop?", "What does the {t} cost?", "Tell me the price of the {t}."],
         {"price": price}, "The %s costs %d coins." % (thing, price), {"t": thing}),
        ("switch_light", "Switch the light in a room", {"room": "string", "on": "boolean"}, {"room": room, "on": hour % 2 == 0},
         ["Turn {s} the light in the {r}.", "Switch the {r} light {s}.", "Light {s} in the {r}, please."],
         {"light": "off" if hour % 2 else "on"}, "The light in the %s is %s." % (room, "off" if hour % 2 else "on"), {"r": room, "s": "off" if hour % 2 else "on"}),
        ("add_to_list", "Put something on the shopping list", {"item": "string", "count": "integer"}, {"item": food, "count": n},
         ["Put {n} of {f} on the shopping list.", "Add {n} times {f} to my list.", "I need {f}, {n} of it. Put it on the list."],
         {"ok": True}, "I put %d of %s on the list." % (n, food), {"f": food, "n": n}),
        ("translate", "Translate a word", {"word": "string", "language": "string"}, {"word": word, "language": language},
         ["How do you say {w} in {l}?", "Translate {w} into {l}.", "What is {w} in {l}?"],
         {"result": thing}, "In %s that is %s." % (language, thing), {"w": word, "l": language}),
    ]
    table = []
    for name, description, properties, arguments, asks, result, reply, fill in rows:
        definition, renamed = tool(rng, name, description, arguments, **properties)
        table.append((name, definition, asks, renamed, result, reply, fill))
    return table


def tools(rng, split):
    table = tool_table(rng)
    offered = rng.sample(table, rng.randint(1, 4))
    kind, definition, asks, arguments, result, reply, fill = rng.choice(offered)
    definitions = [o[1] for o in offered]
    if not split.take("tools", kind, sorted(map(str, fill.values()))):
        return None
    ask = rng.choice(asks).format(**fill)
    lead = [system(rng.choice(["You are a helpful assistant.", "Help the user."]))] if rng.random() < 0.3 else []
    call = {"name": definition["name"], "arguments": arguments}
    thinking = rng.random() < 0.15
    form = rng.random()
    if form < 0.15:  # no tool fits: an ordinary answer
        ask, reply = rng.choice([country_fact, animal_fact, calendar_fact])(rng)
        if rng.random() < 0.3:
            ask, reply = rng.choice(SMALL_TALK)
        return Example("tools", lead + [user(ask), answer(reply, think="No tool is needed.")], definitions, thinking)
    if form < 0.35:  # answer from the tool's result
        messages = lead + [user(ask), answer("", calls=[call]), {"role": "tool", "content": json.dumps(result)},
                           answer(reply, think="The tool gave the answer.")]
        return Example("tools", messages, definitions, thinking)
    calls = [call]
    if form < 0.55 and len(offered) > 1:  # two tools in one answer
        _, definition2, asks2, arguments2, _, _, fill2 = rng.choice([o for o in offered if o[1] is not definition])
        calls.append({"name": definition2["name"], "arguments": arguments2})
        second = rng.choice(asks2).format(**fill2)
        ask = rng.choice(["{} And {}", "{} Also: {}", "{} Then: {}", "{} {}"]).format(ask, second)
    elif form < 0.7 and kind in ("get_weather", "get_time"):  # one tool for two cities
        key = next(iter(arguments))
        other = rng.choice([c for c in CITIES if c != arguments[key]])
        calls.append({"name": definition["name"], "arguments": {key: other}})
        ask = rng.choice(["What is the weather in %s and in %s?", "How is the weather in %s and %s?"] if kind == "get_weather" else
                         ["What time is it in %s and in %s?", "Tell me the time in %s and %s."]) % (arguments[key], other)
    thought = "I call %s." % " and ".join(c["name"] for c in calls)
    return Example("tools", lead + [user(ask), answer("", think=thought, calls=calls)], definitions, thinking, check={"calls": calls})


# -- JSON --------------------------------------------------------------------------------------------------------------

def extraction(rng, split):
    name, age, city, job = rng.choice(FIRST_NAMES), rng.randint(5, 90), rng.choice(CITIES), rng.choice(JOBS)
    colour, thing, price, day = rng.choice(COLOURS), rng.choice(THINGS), rng.randint(1, 99), rng.choice(DAYS)
    if not split.take("json", name, age, city, thing):
        return None
    if rng.random() < 0.5:
        values = {"name": name, "age": age, "city": city, "job": job}
        types = {"name": "string", "age": "integer", "city": "string", "job": "string"}
        text = rng.choice(["{n} is {a} years old, works as {j} and lives in {c}.", "In {c} lives {n}, {j}, {a} years old.",
                           "My name is {n}. I am {a}, I live in {c} and I am {j}.",
                           "{n} ({a}) from {c} is {j}."]).format(n=name, a=age, c=city, j=a(job))
    else:
        values = {"item": thing, "colour": colour, "price": price, "day": day}
        types = {"item": "string", "colour": "string", "price": "integer", "day": "string"}
        text = rng.choice(["On {d} the {o} {t} was sold for {p} coins.", "The {o} {t} costs {p} coins and comes on {d}.",
                           "{p} coins for {o_a} {t}, ready on {d}.", "They want {p} coins for the {t}. It is {o}. They bring it on {d}."]
                          ).format(d=day, o=colour, t=thing, p=price, o_a=a(colour))
    keys = rng.sample(list(values), rng.randint(1, 4))
    schema = {"type": "object", "properties": {k: {"type": types[k]} for k in keys}, "required": keys}
    if rng.random() < 0.6:
        ask = "Extract the fields as JSON for this schema: %s\n\nText: %s" % (json.dumps(schema), text)
    else:
        ask = rng.choice(["Give me %s as JSON: %s", "Answer in JSON with the keys %s. Text: %s"]) % (", ".join(keys), text)
    wanted = {k: values[k] for k in keys}
    return Example("json", [user(ask), answer(json.dumps(wanted), think="I fill in the keys %s." % ", ".join(keys))],
                   thinking=rng.random() < 0.1, check={"json": wanted})


# -- what it does not know ---------------------------------------------------------------------------------------------

TOPICS = ["the stock market", "quantum physics", "the latest football results", "tax law", "brain surgery", "rocket engines",
          "the news of today", "medieval poetry", "the price of gold", "computer viruses", "ancient Rome", "black holes",
          "chess openings", "the president's speech", "wine from Bordeaux", "string theory", "car repair", "opera singers",
          "the history of jazz", "genetics", "the Linux kernel", "knitting patterns", "the moon landing", "dinosaurs"]


SUBJECTS = TOPICS + [
    "the world cup", "the election", "the war", "the weather tomorrow", "the best restaurant", "the Mona Lisa", "electricity", "photosynthesis",
    "the speed of light", "gravity", "Python", "Java", "JavaScript", "machine learning", "neural networks", "the internet", "bitcoin", "inflation",
    "democracy", "the universe", "the big bang", "evolution", "DNA", "vaccines", "the heart", "the human brain", "philosophy", "love", "happiness",
    "the meaning of life", "Shakespeare", "Mozart", "Beethoven", "the pyramids", "the Roman empire", "the middle ages", "world history", "the Olympics",
    "tennis", "basketball", "baseball", "football", "chess", "poker", "cooking", "baking", "gardening", "fishing", "travel", "fashion", "movies",
    "music", "art", "poetry", "novels", "a good film", "a new phone", "my car", "my computer", "my boss", "my homework", "my tax return", "a visa",
    "a mortgage", "insurance", "a diet", "a headache", "the flu", "sleep", "yoga", "meditation", "climate change", "solar power", "nuclear power",
    "oil", "steel", "glass", "plastic", "gold", "diamonds", "the ocean", "volcanoes", "earthquakes", "hurricanes", "the desert", "the Amazon",
    "Mars", "Jupiter", "the sun", "satellites", "robots", "drones", "airplanes", "submarines", "bridges", "skyscrapers", "economics", "marketing"]
QUESTIONS = [
    "What do you know about {}?", "Tell me about {}.", "Explain {} to me.", "Can you tell me something about {}?", "How does {} work?",
    "Write an essay about {}.", "I have a question about {}.", "What is {}?", "Who invented {}?", "Who will win {}?", "Who won {}?",
    "When was {} invented?", "Why is {} important?", "What do you think about {}?", "How do I learn about {}?", "Where can I find {}?",
    "What is the future of {}?", "Give me three facts about {}.", "Write a poem about {}.", "Write an email about {}.", "What is the history of {}?",
    "How much does {} cost?", "Is {} dangerous?", "Do you like {}?", "Summarize {} for me.", "What are the rules of {}?", "Describe {}.",
    "Who is the best at {}?", "When does {} begin?", "Why does {} matter?", "Help me with {}.", "What happened to {}?", "How old is {}?",
    "Compare {} and {}.", "What is the difference between {} and {}?", "Which is better, {} or {}?", "How do {} and {} work together?"]
REQUESTS = [
    "Write a program that sorts a list.", "Write a function in C.", "Write a Python script.", "Fix this code: for i in range(10) print(i)",
    "Translate this into French: good morning", "Who is the president?", "What year is it?", "What is today's date?", "What time is it?",
    "What is the weather?", "Tell me a joke.", "Sing a song.", "Recommend a book.", "What should I eat tonight?", "How do I get rich?",
    "What is the square root of 2?", "Solve x squared minus 4.", "What is the derivative of x squared?", "Prove that there are infinitely many primes.",
    "Who wrote Hamlet?", "Who painted the ceiling?", "How tall is the highest mountain?", "How far away is the moon?", "How deep is the sea?",
    "How many people live in the world?", "What is the population of France?", "What is the largest city in the world?", "Which river is the longest?",
    "How do I tie a tie?", "How do I cook rice?", "How do I fix a bike?", "How do I install Linux?", "Should I buy a house?", "Am I ill?",
    "What is a black hole?", "What is an atom?", "What is a neural network?", "Can you see me?", "Do you dream?", "Are you alive?", "How are stars made?",
    "Why is the sky blue?", "Why is the grass green?", "Why do cats purr?", "What is the tallest animal?", "Which bird is the fastest?"]
SYLLABLES = ["bar", "dor", "lan", "mir", "nor", "pel", "qua", "rim", "sto", "tan", "ul", "vex", "wy", "zor", "ka", "lo"]


def unknown(rng, split):
    reply = "I am sorry, I do not know that."
    kind = rng.random()
    if kind < 0.70:
        ask = rng.choice(QUESTIONS)
        ask = ask.format(*rng.sample(SUBJECTS, ask.count("{}")))
    elif kind < 0.85:
        ask = rng.choice(REQUESTS)
    else:  # a country that is not in the table
        name = "".join(rng.sample(SYLLABLES, 2)).capitalize() + rng.choice(["ia", "land", "stan", ""])
        ask = rng.choice(["What is the capital of {}?", "Where is {}?", "What is the currency of {}?", "What language is spoken in {}?"]).format(name)
    if not split.take("unknown", ask):
        return None
    return Example("unknown", [user(casual(rng, ask)), answer(reply, think="This is outside of what I know.")], thinking=rng.random() < 0.1)


SMALL_TALK = [("Hello!", "Hello! How can I help you?"), ("Hi", "Hello! How can I help you?"), ("Good morning.", "Good morning! How can I help you?"),
              ("Thank you!", "You are welcome."), ("Thanks.", "You are welcome."), ("Goodbye.", "Goodbye!"), ("How are you?", "I am fine, thank you."),
              ("Hey there", "Hello! How can I help you?"), ("Bye!", "Goodbye!")]


def small_talk(rng, split):
    ask, reply = rng.choice(SMALL_TALK)
    return Example("talk", [user(ask), answer(reply, think="The user is polite.")], thinking=rng.random() < 0.1)


# -- a fact in a long text ---------------------------------------------------------------------------------------------

def needle_facts(rng, count):
    """count facts that are only in the text: (sentence, question, answer), each about a name of its own."""
    found, names = [], set()
    while len(found) < count:
        name = any_name(rng)
        if name in names:
            continue
        names.add(name)
        if rng.random() < 0.6:
            code = "".join(rng.choice("0123456789") for _ in range(4))
            found.append(("The code of %s is %s." % (name, code), "What is the code of %s?" % name, "The code of %s is %s." % (name, code)))
        else:
            thing, place = rng.choice(THINGS), rng.choice(PLACES)
            found.append(("%s has hidden %s in the %s." % (name, a(thing), place), "Where has %s hidden something?" % name,
                          "%s has hidden %s in the %s." % (name, a(thing), place)))
    return found


def needle(rng, split, most=17000):
    """Facts at random depths between stories, up to `most` characters; one to five questions, the last one is checked."""
    facts_in = needle_facts(rng, rng.randint(1, 6))
    if not split.take("needle", facts_in[0][0]):
        return None
    size = rng.randint(300, most)
    text = []
    while sum(map(len, text)) < size:
        text.append(story(rng))
    for sentence, _, _ in facts_in:
        text.insert(rng.randint(0, len(text)), sentence)
    asked = facts_in[1:]
    rng.shuffle(asked)
    messages = []
    for _, ask, reply in asked[:rng.randint(0, 4)] + [facts_in[0]]:
        ask = ask if messages else "%s\n\n%s" % (" ".join(text), ask)
        messages += [user(ask), answer(reply)]
    return Example("needle", messages)


# (maker, weight in training); needles are long and have a share of their own (train.py)
SKILLS = {"arithmetic": (arithmetic, 22), "facts": (facts, 14), "stories": (stories, 11), "reading": (reading, 9), "persona": (persona, 8),
          "memory": (memory, 9), "tools": (tools, 18), "json": (extraction, 10), "unknown": (unknown, 9), "about": (about_hearth, 3),
          "talk": (small_talk, 1), "needle": (needle, 0)}


EARLIER = [facts, arithmetic, unknown, small_talk, reading, about_hearth, stories]


def earlier_turns(rng, count):
    """Exchanges that came before: any of the skills without a system prompt or tools, from either split."""
    turns = []
    while len(turns) < 2 * count:
        example = rng.choice(EARLIER)(rng, Split(rng.random() < 0.125))
        if example and len(example.messages) == 2:
            turns += [example.messages[0], answer(example.messages[1]["content"])]
    return turns


def draw(rng, split, skill=None, alone=0.65):
    """One example of the skill, or of a random one by weight; sometimes later in a longer conversation."""
    while True:
        key = skill or rng.choices(list(SKILLS), [w for _, w in SKILLS.values()])[0]
        example = SKILLS[key][0](rng, split)
        if example:
            break
    if example.skill != "needle" and rng.random() > alone:
        at = 1 if example.messages[0]["role"] == "system" else 0
        if example.skill != "persona":  # a style would have to hold for the earlier answers too
            example.messages[at:at] = earlier_turns(rng, rng.randint(1, 5) if rng.random() < 0.85 else rng.randint(6, 20))
    return example
