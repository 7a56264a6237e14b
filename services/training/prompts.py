"""What the target is asked: the user's own prompts, built-in ones, and user turns that the target writes itself.

A target that is given a chat up to where the user speaks, and nothing else, writes what a user might say (Xu et al.:
Magpie, 2024).
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.errors import BadConfig, InvalidRequest
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.training.topics import ASKING, NAMES, TASKS, TOPICS

Messages = Sequence[Mapping[str, Any]]

SHORTEST, LONGEST = 8, 600  # characters of a user turn that the target wrote
EXAMPLES = ("a", "Q")  # any two texts that begin differently


def built_in(dice: random.Random) -> Messages:
    """One of the built-in prompts."""
    kind = dice.choice(tuple(ASKING))
    name, other = dice.sample(NAMES, 2)
    text = dice.choice(ASKING[kind]).format(
        topic=dice.choice(TOPICS),
        task=dice.choice(TASKS),
        name=name,
        other=other,
        a=dice.randint(12, 99),
        b=dice.randint(2, 40),
        c=dice.randint(2, 9),
        day=dice.randint(1, 28),
        year=dice.randint(1850, 2024),
    )
    return [{"role": "user", "content": text}]


def read_prompts(path: Path) -> list[Messages]:
    """Of a JSONL file, each line with `prompt` (a text) or `messages` (a chat); or of all such files of a folder, where
    a .txt file is one prompt. Raises BadConfig naming file, line and key."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if odd := [file.name for file in files if file.suffix not in (".jsonl", ".txt")]:
        raise BadConfig(f"prompts: {odd[0]} is neither .jsonl nor .txt")
    found = [messages for file in files for messages in _read(file)]
    if not found:
        raise BadConfig(f"prompts: {path} has none")
    return found


def _read(file: Path) -> list[Messages]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"prompts: {file} cannot be read: {error}") from error
    if file.suffix == ".txt":
        return [[{"role": "user", "content": text}]]
    lines = enumerate(text.splitlines(), 1)
    return [_messages(line, f"{file}, line {number}") for number, line in lines if line.strip()]


def _messages(line: str, place: str) -> Messages:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadConfig(f"prompts: {place}: not JSON: {error}") from error
    prompt, messages = (row.get("prompt"), row.get("messages")) if isinstance(row, dict) else (None, None)
    if isinstance(prompt, str) and messages is None:
        return [{"role": "user", "content": prompt}]
    if isinstance(messages, list) and messages and all(isinstance(each, dict) for each in messages) and prompt is None:
        return messages
    raise BadConfig(f"prompts: {place}: has to have either prompt, a text, or messages, a list of objects")


class Chats:
    """From chats to ids and from a user turn's ids to a chat, by the target's own template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._before: list[int] = []
        self.stop_ids = self.turn_end = frozenset(tokenizer.stop_ids)
        if template is not None:
            self._before, after = self._around()
            self.turn_end |= {*after[:1]}

    @property
    def user_header(self) -> list[int]:
        """A chat up to where the user speaks; empty when there is no template, or none that shows such a place."""
        return self._before

    def prompt_ids(self, messages: Messages) -> list[int]:
        """Raises BadConfig for a chat that the template refuses. Without a template, the last message as it is."""
        try:
            if self._template is None:
                return self._tokenizer.encode(str(messages[-1].get("content", "")))
            return self._template.encode(self._tokenizer, messages)
        except InvalidRequest as error:
            raise BadConfig(f"prompts: {str(messages)[:80]}: {error}") from error

    def user_turn(self, ids: Sequence[int]) -> Messages | None:
        """The chat that a turn which the target wrote begins; None when it is of no use."""
        text = self._tokenizer.decode(ids).strip()
        ended = bool(ids) and ids[-1] in self.turn_end
        usable = ended and SHORTEST <= len(text) <= LONGEST and "\ufffd" not in text
        return [{"role": "user", "content": text}] if usable else None

    def _around(self) -> tuple[list[int], list[int]]:
        """The ids before and after what the user says."""
        assert self._template is not None
        chats = [[{"role": "user", "content": text}] for text in EXAMPLES]
        one, two = (self._template.encode(self._tokenizer, chat, add_generation_prompt=False) for chat in chats)
        before = _common(one, two)
        after = _common(one[::-1], two[::-1])[::-1]
        return before, after


def _common(one: Sequence[int], two: Sequence[int]) -> list[int]:
    """The ids with which both begin."""
    end = next((i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
    return list(one[:end])
