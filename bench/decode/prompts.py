"""Prompts of our own: sixteen for each workload that no other package has a set for. None is from what drafters were
trained on: neither the subjects nor the ways of asking."""

from bench.texts import COPYING, PEOPLE, STORY

MINUTES = (
    "Minutes of the allotment society, 14 February 2019. Present: Ruth Okafor (chair), Samir Haddad, Inge Larsen. "
    "1. The water tap by plot 7 leaks; Samir will call the plumber before 1 March. 2. The annual fee goes up from 35 "
    "to 38 pounds. 3. Inge reported 212 pounds in the bank. 4. The seed swap is on Saturday 23 March at 10:30 in the "
    "scout hut."
)
INVOICE = (
    "Invoice 2088 from Brightwater Plumbing to Mrs. L. Novak, 6 Hill Road. Replace kitchen tap: 1 x 84.50. Copper "
    "pipe, 15 mm: 3 x 6.20. Call-out fee: 1 x 40.00. Total: 143.10. Due on 30 June."
)
LISTING = (
    "For sale: blue touring bicycle, 21 gears, 54 cm frame, made in 2015, new tyres, one small scratch on the left "
    "crank. Price 180 euros, or 210 with lights and pannier bags. Call Tomas on 555-0142 after six, or write to "
    "tomas@example.org."
)
LOG = (
    "08:01:12 INFO backup started\n08:01:15 WARN disk /dev/sdb1 is 91% full\n08:02:40 INFO copied 1204 files\n"
    "08:02:41 ERROR cannot read /srv/photos/17.jpg\n08:03:05 INFO backup finished with 1 error"
)
TIMETABLE = (
    "The morning ferry leaves Port Ellis at 7:20 and reaches Stony Island at 8:05. The noon ferry leaves at 12:10 and "
    "takes fifty minutes. In the evening there are two: at 17:45 and, on Fridays only, at 21:00. A ticket is 9 "
    "dollars, bicycles travel free."
)
BIOGRAPHY = (
    "Mary Anning was born in Lyme Regis in 1799. She found her first complete ichthyosaur in 1811 with her brother "
    "Joseph, and a plesiosaur in 1823. She sold fossils from a small shop, and died on 9 March 1847."
)
FUNCTION = (
    "def area(width, height):\n    if width < 0 or height < 0:\n        raise ValueError('negative')\n"
    "    return width * height\n\n\nprint(area(3, 4))"
)
RECIPE = (
    "Pancakes. You need 200 g flour, 2 eggs, 300 ml milk and a pinch of salt. Beat the eggs with the milk. Stir in the "
    "flour and the salt. Let the batter rest for twenty minutes. Fry thin pancakes in a hot pan with a little butter."
)

CHAT = (
    "Explain how a rainbow forms.",
    "What is the difference between a virus and a bacterium?",
    "My neighbour plays loud music every night. How can I bring it up without a quarrel?",
    "Why does bread go stale faster in the fridge?",
    "I have two free days in Lisbon. Suggest a plan.",
    "Is it better to pay off a loan early or to save the money?",
    "How do noise-cancelling headphones work?",
    "My laptop gets hot and slow after an hour. What should I check first?",
    "Can you recommend a warm-up routine before lifting weights?",
    "What should I ask when I view a flat to rent?",
    "How do I get red wine out of a white shirt?",
    "Who decides the names of hurricanes, and how?",
    "I keep forgetting people's names at parties. Any tricks?",
    "What happens to the body during a long flight?",
    "Compare oil paint and watercolour for somebody who has never painted.",
    "Help me choose between a cat and a rabbit for a small flat.",
)
PROSE = (
    "Continue this story: The letter had been lying under the door for a week before anybody noticed it.",
    "Describe an abandoned railway station at dawn in one long paragraph.",
    "Tell a fable in which a proud heron learns something from a snail.",
    "Write a monologue of an old clock that is about to be sold.",
    "Write a letter from a soldier to his sister, in the style of the nineteenth century.",
    "Write a scene in which two strangers share a taxi in heavy snow.",
    "Write the speech of a mayor who opens a new bridge.",
    "Retell the tale of the tortoise and the hare as a news report.",
    "Describe the smell and the noise of a fish market to someone who has never been near the sea.",
    "Write the diary entry of a cook on the first day aboard an Arctic research ship.",
    "Compose a sonnet for a broken umbrella.",
    "Write the first page of a detective novel that is set in a bakery.",
    "Write a eulogy for a grandmother who repaired radios.",
    "Invent a legend that explains why the desert has no trees.",
    "Write a travel report on a valley where the sun never sets.",
    "Narrate a chess match from the point of view of a captured pawn.",
)
EXTRACTION = (
    *(prompt for name, prompt in COPYING.items() if name.startswith("extraction")),
    f"Return a JSON object with the keys chair, fee_old, fee_new, balance and next_event:\n\n{MINUTES}",
    f"Which tasks were given to whom, and until when? Answer as a Markdown table.\n\n{MINUTES}",
    f"Write the positions of this invoice as CSV with the columns item, count and price:\n\n{INVOICE}",
    f'Fill this JSON: {{"invoice": , "customer": , "total": , "due": }}\n\n{INVOICE}',
    f"Give make, colour, year, price and phone number of what is sold, one a line:\n\n{LISTING}",
    f"Is there an e-mail address in this text? Answer with the address only.\n\n{LISTING}",
    f"Turn this log into a JSON list of objects with time, level and message:\n\n{LOG}",
    f"Which lines of this log are no INFO lines? Repeat them.\n\n{LOG}",
    f"Make a table of all departures with departure time and days:\n\n{TIMETABLE}",
    f"Write YAML with a key for every ferry, and its departure and arrival below:\n\n{TIMETABLE}",
    f"List every year in this text together with what happened:\n\n{BIOGRAPHY}",
    f"Extract the ingredients with their amounts as a JSON object:\n\n{RECIPE}",
    f"Write the name, city and age of everyone here as an HTML table:\n\n{PEOPLE}",
)
REPETITION = (
    *(prompt for name, prompt in COPYING.items() if not name.startswith("extraction")),
    f"Print this code again, but rename the function to surface:\n\n{FUNCTION}",
    f"Add a docstring to the function and give the whole program:\n\n{FUNCTION}",
    f"Copy the log below, with ERROR in place of WARN:\n\n{LOG}",
    f"Write these minutes again with a fee of 40 pounds in place of 38:\n\n{MINUTES}",
    f"Change this recipe to twice the amounts and give all of it:\n\n{RECIPE}",
    f"Repeat the recipe below word for word, with numbered steps:\n\n{RECIPE}",
    f"Put this advertisement into the past tense, and change nothing else:\n\n{LISTING}",
    f"Quote this biography twice:\n\n{BIOGRAPHY}",
    f"Write out this timetable again, each sentence on a line of its own:\n\n{TIMETABLE}",
    f"Give this text again, and put the name Martha in capital letters:\n\n{STORY.split('One winter')[0]}",
)
OWN = {"extraction": EXTRACTION, "chat": CHAT, "prose": PROSE, "repetition": REPETITION}
