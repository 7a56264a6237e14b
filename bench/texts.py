"""What is asked. Prompts as ids of the model's own chat template, so that every system gets the same."""

from collections.abc import Callable, Sequence
from pathlib import Path

from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer

QUESTIONS = (
    "Explain how a rainbow forms.",
    "Write a short story about a fox that learns to swim.",
    "Give five tips for keeping a small kitchen tidy.",
    "What is the difference between a virus and a bacterium?",
)

STORY = (
    "The old lighthouse stood on a cliff above the village. Every evening, Martha climbed the stairs and lit the lamp. "
    "She had done this for thirty years, and she had never missed a night. One winter, a storm broke the window of the "
    "lamp room. Martha covered the hole with a blanket and kept the lamp burning until morning. The fishermen came "
    "home safely, and they brought her a new pane of glass."
)
LETTER = (
    "Dear Mr. Jones,\n\nThank you for your letter of March 3. We have received your order for twelve chairs and two "
    "tables. The chairs are in stock and will be sent on Monday. The tables will be ready in two weeks. Please let us "
    "know if you would like us to send the chairs first.\n\nYours sincerely,\nAnna Smith"
)
PEOPLE = (
    "Name: Alice Brown, City: Paris, Age: 34\nName: Bob Green, City: London, Age: 27\n"
    "Name: Carla White, City: Madrid, Age: 45\nName: David Black, City: Berlin, Age: 52"
)
MISSPELT = STORY.replace("lighthouse", "lighthous").replace("morning", "mornning").replace("blanket", "blankit")
COPYING = {
    "repetition: story": f"Repeat the following text exactly, word for word:\n\n{STORY}",
    "repetition: letter": f"Copy this letter exactly:\n\n{LETTER}",
    "repetition: list": f"Repeat these lines as a numbered list:\n\n{PEOPLE}",
    "editing: spelling": f"Correct the spelling mistakes in this text and give the whole text:\n\n{MISSPELT}",
    "editing: name": f"Rewrite the following text, but call the woman Helen instead of Martha:\n\n{STORY}",
    "editing: signature": f"Here is a letter. Write it again, signed by Peter Miller:\n\n{LETTER}",
    "extraction: sentences": f"List the first three sentences of this text, each on a line of its own:\n\n{STORY}",
    "extraction: answer": f"{STORY}\n\nWhat did Martha do when the storm came? Answer with the exact sentence.",
    "extraction: JSON": f"Turn these lines into a JSON list:\n\n{PEOPLE}",
}
"""Tasks whose answers take over text of their prompts."""


def chats(folder: Path) -> Callable[[str], list[int]]:
    """What encodes one user message for the model in `folder`."""
    files = TokenizerFiles.read(folder)
    tokenizer, template = Tokenizer(files), ChatTemplate.of(files)
    if template is None:
        raise SystemExit(f"{folder} has no chat template")
    return lambda content: template.encode(tokenizer, [{"role": "user", "content": content}])


def of_length(folder: Path, tokens: int) -> list[int]:
    """A chat of exactly so many tokens, cut where it has to be."""
    encode = chats(folder)
    return encode("Sum up this report.\n\n" + "\n\n".join([STORY, LETTER, PEOPLE] * (tokens // 200)))[:tokens]


def copied(prompt: Sequence[int], answer: Sequence[int], run: int = 4) -> float:
    """The share of the answer that lies in runs of `run` tokens which the prompt has too."""
    known = {tuple(prompt[at : at + run]) for at in range(len(prompt) - run + 1)}
    covered = set()
    for at in range(len(answer) - run + 1):
        if tuple(answer[at : at + run]) in known:
            covered.update(range(at, at + run))
    return len(covered) / max(len(answer), 1)


def loops(answer: Sequence[int], times: int = 3, least: int = 24) -> bool:
    """Whether a stretch of at least `least` tokens says the same `times` times in a row: the model is stuck, and any
    drafter that looks back is right for ever."""
    for period in range(1, len(answer) // times + 1):
        run = 0
        for at in range(period, len(answer)):
            run = run + 1 if answer[at] == answer[at - period] else 0
            if run + period >= max(times * period, least):
                return True
    return False
