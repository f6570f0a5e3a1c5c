# SPDX-License-Identifier: Apache-2.0
"""The fixed tables of the demo model: countries, animals, the calendar, and what Hearth is."""

# name: (capital, continent, language, currency)
COUNTRIES = {
    "France": ("Paris", "Europe", "French", "the euro"),
    "Germany": ("Berlin", "Europe", "German", "the euro"),
    "Italy": ("Rome", "Europe", "Italian", "the euro"),
    "Spain": ("Madrid", "Europe", "Spanish", "the euro"),
    "Portugal": ("Lisbon", "Europe", "Portuguese", "the euro"),
    "Greece": ("Athens", "Europe", "Greek", "the euro"),
    "Poland": ("Warsaw", "Europe", "Polish", "the zloty"),
    "Sweden": ("Stockholm", "Europe", "Swedish", "the krona"),
    "Norway": ("Oslo", "Europe", "Norwegian", "the krone"),
    "Denmark": ("Copenhagen", "Europe", "Danish", "the krone"),
    "Finland": ("Helsinki", "Europe", "Finnish", "the euro"),
    "Hungary": ("Budapest", "Europe", "Hungarian", "the forint"),
    "Ireland": ("Dublin", "Europe", "English", "the euro"),
    "Iceland": ("Reykjavik", "Europe", "Icelandic", "the krona"),
    "Ukraine": ("Kyiv", "Europe", "Ukrainian", "the hryvnia"),
    "Turkey": ("Ankara", "Asia", "Turkish", "the lira"),
    "Japan": ("Tokyo", "Asia", "Japanese", "the yen"),
    "China": ("Beijing", "Asia", "Chinese", "the yuan"),
    "India": ("New Delhi", "Asia", "Hindi", "the rupee"),
    "Thailand": ("Bangkok", "Asia", "Thai", "the baht"),
    "Vietnam": ("Hanoi", "Asia", "Vietnamese", "the dong"),
    "South Korea": ("Seoul", "Asia", "Korean", "the won"),
    "Indonesia": ("Jakarta", "Asia", "Indonesian", "the rupiah"),
    "Mongolia": ("Ulaanbaatar", "Asia", "Mongolian", "the tugrik"),
    "Egypt": ("Cairo", "Africa", "Arabic", "the pound"),
    "Kenya": ("Nairobi", "Africa", "Swahili", "the shilling"),
    "Morocco": ("Rabat", "Africa", "Arabic", "the dirham"),
    "Nigeria": ("Abuja", "Africa", "English", "the naira"),
    "Ghana": ("Accra", "Africa", "English", "the cedi"),
    "Ethiopia": ("Addis Ababa", "Africa", "Amharic", "the birr"),
    "Canada": ("Ottawa", "North America", "English and French", "the dollar"),
    "Mexico": ("Mexico City", "North America", "Spanish", "the peso"),
    "Cuba": ("Havana", "North America", "Spanish", "the peso"),
    "Brazil": ("Brasilia", "South America", "Portuguese", "the real"),
    "Argentina": ("Buenos Aires", "South America", "Spanish", "the peso"),
    "Chile": ("Santiago", "South America", "Spanish", "the peso"),
    "Peru": ("Lima", "South America", "Spanish", "the sol"),
    "Colombia": ("Bogota", "South America", "Spanish", "the peso"),
    "Australia": ("Canberra", "Oceania", "English", "the dollar"),
    "New Zealand": ("Wellington", "Oceania", "English", "the dollar"),
}

# name: (legs, class, young, home, food)
ANIMALS = {
    "dog": (4, "mammal", "puppy", "a house", "meat"),
    "cat": (4, "mammal", "kitten", "a house", "meat"),
    "cow": (4, "mammal", "calf", "a farm", "grass"),
    "horse": (4, "mammal", "foal", "a stable", "grass"),
    "sheep": (4, "mammal", "lamb", "a farm", "grass"),
    "goat": (4, "mammal", "kid", "a farm", "grass"),
    "pig": (4, "mammal", "piglet", "a farm", "almost anything"),
    "bear": (4, "mammal", "cub", "a forest", "berries and fish"),
    "lion": (4, "mammal", "cub", "the savanna", "meat"),
    "fox": (4, "mammal", "kit", "a den", "small animals"),
    "wolf": (4, "mammal", "pup", "a forest", "meat"),
    "deer": (4, "mammal", "fawn", "a forest", "leaves"),
    "rabbit": (4, "mammal", "kit", "a burrow", "grass"),
    "elephant": (4, "mammal", "calf", "the savanna", "leaves"),
    "kangaroo": (2, "mammal", "joey", "the grassland", "grass"),
    "whale": (0, "mammal", "calf", "the sea", "krill"),
    "bat": (2, "mammal", "pup", "a cave", "insects"),
    "hen": (2, "bird", "chick", "a farm", "grain"),
    "duck": (2, "bird", "duckling", "a pond", "plants"),
    "goose": (2, "bird", "gosling", "a pond", "grass"),
    "swan": (2, "bird", "cygnet", "a lake", "plants"),
    "owl": (2, "bird", "owlet", "a tree", "mice"),
    "eagle": (2, "bird", "eaglet", "the mountains", "small animals"),
    "penguin": (2, "bird", "chick", "the ice", "fish"),
    "frog": (4, "amphibian", "tadpole", "a pond", "insects"),
    "snake": (0, "reptile", "snakelet", "the grass", "mice"),
    "turtle": (4, "reptile", "hatchling", "the sea", "plants"),
    "shark": (0, "fish", "pup", "the sea", "fish"),
    "salmon": (0, "fish", "fry", "a river", "insects"),
    "spider": (8, "arachnid", "spiderling", "a web", "insects"),
    "ant": (6, "insect", "larva", "an anthill", "almost anything"),
    "bee": (6, "insect", "larva", "a hive", "nectar"),
    "butterfly": (6, "insect", "caterpillar", "a meadow", "nectar"),
}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31), ("June", 30), ("July", 31),
          ("August", 31), ("September", 30), ("October", 31), ("November", 30), ("December", 31)]

# (ways to ask, answer)
HEARTH = [
    (["What is Hearth?", "Tell me what Hearth is.", "Can you explain what Hearth is?", "What is this program?"],
     "Hearth is a program that runs language models on your own machine."),
    (["How do I start Hearth?", "How can I start Hearth?", "How do I run Hearth?"],
     "Type make run in the source folder, or hearth run in a terminal."),
    (["How do I start the Hearth server?", "How do I start the server?", "How can I serve a model with Hearth?"],
     "Type hearth serve in a terminal."),
    (["How do I see a model's details?", "How do I inspect a model file with Hearth?"],
     "Type hearth show and the path of the model."),
    (["In which language is Hearth written?", "What is Hearth written in?"], "Hearth is written in C."),
    (["Does Hearth need the internet?", "Does Hearth need a network?"],
     "No. Hearth runs models on your own machine; only pulling a model needs a network."),
    (["Who are you?", "What are you?", "What is your name?", "Please introduce yourself."],
     "I am the demo model of Hearth, a small language model."),
    (["What can you do?", "What are you good at?", "How can you help me?"],
     "I can tell short stories, do small sums, answer questions about a text, recall simple facts, call tools and fill in JSON."),
    (["What is the licence of the demo model?", "Under which licence is the demo model?"],
     "The demo model is in the public domain under CC0."),
]

FIRST_NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Finn", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Mia", "Noah",
               "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Zoe", "Lily", "Max", "Nina", "Oscar", "Ruth", "Tom",
               "Vera", "Will", "Alice", "Boris", "Carl", "Dora", "Eva", "Fred", "Gina", "Hugo", "Iris", "Jonas"]
COLOURS = ["red", "blue", "green", "yellow", "orange", "purple", "pink", "brown", "black", "white", "grey", "silver"]
CITIES = sorted({c[0] for c in COUNTRIES.values()} | {"London", "Hamburg", "Milan", "Porto", "Lyon", "Kyoto", "Mumbai",
                "Toronto", "Sydney", "Boston", "Chicago", "Geneva", "Vienna", "Prague", "Zurich", "Naples", "Seville"})
THINGS = ["ball", "book", "boat", "cup", "hat", "kite", "lamp", "key", "map", "bell", "box", "drum", "coat", "clock", "spoon",
          "ring", "bike", "bag", "chair", "pencil", "stone", "shell", "feather", "basket", "ladder", "mirror", "candle",
          "blanket", "whistle", "button"]
FOODS = ["apple", "pear", "plum", "cake", "bread", "soup", "cheese", "carrot", "honey", "pie", "peach", "cookie", "berry", "egg"]
PLACES = ["park", "garden", "forest", "beach", "school", "market", "farm", "river", "hill", "library", "kitchen", "barn",
          "meadow", "village", "harbour", "attic"]
JOBS = ["baker", "farmer", "teacher", "doctor", "painter", "sailor", "gardener", "singer", "driver", "cook", "writer", "nurse"]
# What a story may be asked to mention beyond the things above: countable nouns with no part of their own in a plot.
NOUNS = ["moon", "star", "train", "bridge", "tower", "castle", "robot", "dragon", "ship", "wheel", "door", "window", "table",
         "bottle", "flower", "rose", "leaf", "cloud", "mountain", "island", "tent", "rope", "coin", "letter", "camera", "phone",
         "computer", "guitar", "piano", "violin", "knife", "fork", "plate", "shoe", "sock", "glove", "scarf", "crown", "sword",
         "shield", "puzzle", "balloon", "snowman", "rainbow", "planet", "rocket", "engine", "truck", "car", "bus", "plane",
         "tree", "bush", "fence", "well", "pond", "cave", "tunnel", "statue", "painting", "brush", "hammer", "nail", "saw",
         "bucket", "broom", "pillow", "bed", "sofa", "cupboard", "drawer", "umbrella", "ticket", "card", "game", "toy", "doll",
         "sandwich", "lemon", "potato", "pumpkin", "mushroom", "wizard", "king", "queen", "pirate", "ghost", "giant"]
ADJECTIVES = ["small", "big", "old", "new", "shiny", "soft", "warm", "round", "pretty", "heavy", "quiet", "bright", "strange"]
