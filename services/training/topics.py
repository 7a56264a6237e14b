"""What the built-in prompts are about, and how they ask. Our own words; no test set has a part in them."""

TOPICS = (
    "solar power", "the history of bread", "honey bees", "learning the guitar", "a rainy day in a small town",
    "the water cycle", "electric bicycles", "time management", "the moon", "growing tomatoes", "public libraries",
    "old maps", "coral reefs", "job interviews", "medieval castles", "the human heart", "train journeys", "chess",
    "volcanoes", "cooking rice", "online privacy", "the printing press", "whales", "running a marathon", "recycling",
    "black holes", "street music", "vaccines", "a lost dog", "budgeting for students", "the Roman roads", "tea",
    "penguins", "remote work", "the invention of the telephone", "good sleep", "desert plants", "board games",
    "the French revolution", "machine learning", "wooden furniture", "a lighthouse keeper", "inflation", "yoga",
    "migrating birds", "the Olympic games", "spreadsheets", "glaciers", "making cheese", "the violin", "robots",
    "public speaking", "the silk road", "cats", "earthquakes", "a family picnic", "photosynthesis", "poker", "ants",
    "wind turbines", "writing letters", "the periodic table", "planning a wedding", "rivers", "sign language",
    "a haunted house", "container ships", "first aid", "jazz", "the stock market", "mushrooms", "stage fright",
    "the great wall", "databases", "dinosaurs", "keeping a diary", "airports", "fractions", "rubber trees", "magnets",
    "moving to a new city", "pottery", "mobile phones", "the northern lights", "gardening in winter", "rockets",
    "a talking parrot", "customer service", "the immune system", "knitting", "democracy", "tides", "origami",
)  # fmt: skip

ASKING = {
    "chat": (
        "Tell me about {topic}.",
        "What should a beginner know about {topic}?",
        "Give me three tips about {topic}.",
        "Explain {topic} to a ten-year-old.",
        "Why do people care about {topic}?",
        "What are common mistakes people make with {topic}?",
        "How would you describe {topic} in two sentences?",
        "What are the advantages and disadvantages of {topic}?",
        "I am new to {topic}. Where do I start?",
    ),
    "prose": (
        "Write a short story about {topic}.",
        "Write a poem about {topic}.",
        "Write the opening paragraph of an essay on {topic}.",
        "Write a friendly email inviting a colleague to a talk about {topic}.",
        "Write a product description for something that has to do with {topic}.",
        "Write a dialogue between two friends who disagree about {topic}.",
    ),
    "extraction": (
        "List five facts about {topic} as JSON with the keys \"fact\" and \"year\".",
        "Make a Markdown table about {topic} with three columns and four rows.",
        "Summarise in three bullet points: {topic} has been on my mind, because it affects my work, my family and the "
        "place I live in, and nobody seems to agree on what to do next.",
        "Extract all names and dates from this sentence: On {day} May {year}, {name} and {other} talked about {topic}.",
        "Give ten keywords about {topic}, separated by commas.",
    ),
    "code": (
        "Write a Python function that {task}.",
        "Write a Python function that {task}, with a docstring and two examples.",
        "Write a JavaScript function that {task}.",
        "How do I write a function in Python that {task}? Explain each step.",
        "Write unit tests for a Python function that {task}.",
        "Write a Python class for {topic} with three methods.",
    ),
    "arithmetic": (
        "{name} has {a} apples and buys {b} more. Then {name} gives {c} to {other}. How many are left?",
        "A train travels {a} kilometres an hour for {c} hours. How far does it go?",
        "{name} earns {a} dollars a day and spends {c}. How much is saved in {b} days? Show your steps.",
        "What is {a} plus {b} times {c}?",
        "A box holds {c} rows of {b} pencils. {other} takes {a} of them. How many pencils remain?",
    ),
    "editing": (
        "Correct the grammar: {name} and me was talking about {topic}, but it don't matters no more.",
        "Rewrite this in a formal tone: hey, {topic} is super cool, you gotta check it out!",
        "Translate into French: I read a book about {topic} yesterday.",
        "Repeat this sentence three times, each time a little shorter: I would like to hear more about {topic}.",
    ),
}  # fmt: skip

TASKS = (
    "counts the vowels in a text", "reverses the words of a sentence", "merges two sorted lists",
    "converts Celsius to Fahrenheit", "finds the longest line of a file", "removes duplicates and keeps the order",
    "checks whether brackets are balanced", "computes compound interest", "groups words by their first letter",
    "parses a date such as 2024-05-17", "draws a triangle of stars", "shuffles a deck of cards",
    "finds the second smallest number", "turns a list of pairs into a dictionary", "validates an email address",
    "computes the running average of a list", "rotates a matrix by ninety degrees", "counts words in a text file",
    "encodes a message with a shifted alphabet", "finds all prime factors of a number", "flattens a nested list",
    "formats a number of seconds as hours and minutes", "simulates the throw of two dice", "reads a CSV file",
)  # fmt: skip

NAMES = ("Ada", "Boris", "Chen", "Dilara", "Emeka", "Fatima", "Goran", "Hana", "Ivan", "Jun", "Katya", "Liam", "Maya")
