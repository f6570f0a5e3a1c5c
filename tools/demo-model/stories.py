# SPDX-License-Identifier: Apache-2.0
"""Short stories in simple English, put together from scenes so that given words take part in the plot."""
from facts import ADJECTIVES, ANIMALS, COLOURS, FIRST_NAMES, FOODS, PLACES, THINGS

SHE = {"Anna", "Clara", "Emma", "Grace", "Ida", "Kate", "Mia", "Olga", "Rosa", "Tina", "Wendy", "Zoe", "Lily", "Nina", "Ruth",
       "Vera", "Alice", "Dora", "Eva", "Gina", "Iris"}
PETS = ["dog", "cat", "horse", "sheep", "goat", "pig", "fox", "rabbit", "duck", "goose", "owl", "frog", "turtle", "hen"]


MASS = {"bread", "soup", "cheese", "honey", "cake", "pie"}


def a(word):
    if word in MASS:
        return "some " + word
    return ("an " if word[0] in "aeiou" else "a ") + word


class Story:
    """The cast of one story; scenes read it."""

    def __init__(self, rng, thing=None, place=None, animal=None, also=()):
        self.rng = rng
        self.also = list(also)
        self.name, self.friend = rng.sample(FIRST_NAMES, 2)
        self.he, self.his, self.him = ("she", "her", "her") if self.name in SHE else ("he", "his", "him")
        self.fhe = "she" if self.friend in SHE else "he"
        self.thing = thing or rng.choice(THINGS)
        self.place = place or rng.choice(PLACES)
        self.animal = animal or rng.choice(PETS)
        self.food = rng.choice(FOODS)
        self.colour = rng.choice(COLOURS)
        self.adj = rng.choice(ADJECTIVES)
        self.weather = rng.choice(["sunny", "rainy", "windy", "cold", "warm", "foggy"])
        self.time = rng.choice(["morning", "afternoon", "evening"])

    def say(self, *options):
        return self.rng.choice(options).format(s=self, w="{w}", He=self.he.capitalize(), Fhe=self.fhe.capitalize(),
                                               an_animal=a(self.animal), a_food=a(self.food), a_colour=a(self.colour),
                                               an_adj=a(self.adj))


def opening(s):
    return s.say("One {s.weather} {s.time}, {s.name} went to the {s.place}.",
                 "Once there was a child named {s.name} who lived near the {s.place}.",
                 "It was a {s.weather} {s.time}, and {s.name} walked to the {s.place}.",
                 "{s.name} loved the {s.place} and went there every {s.time}.")


def find(s):
    return s.say("There {s.he} found {a_colour} {s.thing} under a tree. {He} picked it up and smiled.",
                 "{He} saw {an_adj} {s.thing} on the ground. It was {s.colour} and had no owner.",
                 "Next to the path lay {a_colour} {s.thing}. {s.name} had never seen such a {s.thing} before.")


def lose(s):
    return s.say("{He} carried {s.his} {s.colour} {s.thing} in a bag. But on the way the {s.thing} fell out, and {s.name} did not notice.",
                 "{He} played with {s.his} {s.thing} all day. Then the {s.thing} was gone, and {s.name} was very sad.",
                 "{s.name} put {s.his} {s.thing} on a wall. When {s.he} came back, it was not there any more.")


def meet_animal(s):
    return s.say("Then {an_animal} came out of the bushes. The {s.animal} looked hungry, so {s.name} gave it {a_food}.",
                 "Suddenly {s.name} heard a sound. It was {an_animal}, and it was looking for something to eat.",
                 "A small {s.animal} sat by the water. \"Hello,\" said {s.name}. \"Are you alone?\"")


def animal_helps(s):
    return s.say("The {s.animal} ran away and came back with the {s.thing}. {s.name} laughed and hugged the {s.animal}.",
                 "The {s.animal} knew the way. It led {s.name} to the {s.thing}, and {s.he} thanked it.",
                 "\"Follow me,\" the {s.animal} seemed to say, and soon {s.name} held the {s.thing} in {s.his} hands.")


def meet_friend(s):
    return s.say("On the way home {s.he} met {s.friend}. \"What a nice {s.thing}!\" said {s.friend}.",
                 "{s.friend} was there too. \"Is this your {s.thing}?\" asked {s.friend}.",
                 "Soon {s.friend} came along. {Fhe} looked at the {s.thing} and wanted to play.")


def share(s):
    return s.say("They played with the {s.thing} together until it was dark.",
                 "{s.name} shared the {s.thing} with {s.friend}, and both were happy.",
                 "They took turns with the {s.thing}, and nobody had to wait long.")


def give_back(s):
    return s.say("\"That is my {s.thing}!\" said {s.friend}. {s.name} gave it back, and {s.friend} gave {s.him} {a_food} to say thank you.",
                 "The {s.thing} belonged to {s.friend}. {s.name} gave it back at once, and they became friends.")


def rain(s):
    return s.say("Then it began to rain. {s.name} ran under a big tree and waited.",
                 "Dark clouds came, and soon everything was wet. {s.name} hid in an old hut.",
                 "A strong wind began to blow, and the leaves flew everywhere.")


def repair(s):
    return s.say("But the {s.thing} was broken. {s.name} and {s.friend} worked all {s.time}, and then it was as good as new.",
                 "Oh no, the {s.thing} had a crack! {s.friend} brought some glue, and together they fixed it.")


def notice(s):
    """The words that were asked for and have no part in the plot."""
    words = " and ".join(a(w) for w in s.also)
    return s.say("Not far away there was {w}.", "{s.name} also saw {w} that day.", "On the way {s.he} passed {w}.",
                 "\"Look, {w}!\" said {s.name}.").replace("{w}", words)


def ending(s):
    return s.say("That night {s.name} was tired and happy.", "{s.name} told {s.his} mother everything and then fell asleep.",
                 "From that day on they met at the {s.place} every week.", "It was the best day of the week.",
                 "{He} never forgot that day at the {s.place}.", "And so the day ended well for everyone.")


PLOTS = [
    [opening, find, meet_friend, share, ending],
    [opening, find, meet_friend, give_back, ending],
    [opening, lose, meet_animal, animal_helps, ending],
    [opening, find, rain, meet_friend, share, ending],
    [opening, find, repair, share, ending],
    [opening, lose, rain, meet_animal, animal_helps, ending],
    [opening, meet_animal, find, meet_friend, share, ending],
]


def story(rng, thing=None, place=None, animal=None, also=()):
    s = Story(rng, thing, place, animal, also)
    plot = list(rng.choice([p for p in PLOTS if meet_animal in p] if animal else PLOTS))
    if s.also:
        plot.insert(rng.choice([1, 2, len(plot) - 1]), notice)
    return " ".join(scene(s) for scene in plot)


def story_with(rng, words):
    """A story in which every one of the words appears, whatever its kind."""
    parts = {}
    for word in words:
        kind = "place" if word in PLACES else "animal" if word in PETS else "thing"
        if kind in parts or (kind == "thing" and word not in THINGS and rng.random() < 0.5):
            parts.setdefault("also", []).append(word)
        else:
            parts[kind] = word
    return story(rng, **parts)
