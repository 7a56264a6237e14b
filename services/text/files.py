"""The files that say how text becomes ids and back, as bytes: they travel from target to gateway unchanged."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from services.errors import BadCheckpoint

REQUIRED = "tokenizer.json"
OPTIONAL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
    "chat_template.jinja",
    "chat_template.json",
)
NAMED_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True)
class TokenizerFiles:
    """Name -> contents; what is absent in the folder is absent here."""

    files: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """BadCheckpoint when the tokenizer is missing or a JSON file is broken."""
        if not (folder / REQUIRED).is_file():
            raise BadCheckpoint(f"{folder} lacks {REQUIRED}")
        paths = [folder / name for name in (REQUIRED, *OPTIONAL)]
        paths += sorted((folder / NAMED_TEMPLATES).glob("*.jinja"))
        result = cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()})
        for name in OPTIONAL:
            if name.endswith(".json"):
                result.json(name)
        return result

    @cached_property
    def hash(self) -> str:
        """Two sets of files with one hash give the same ids for the same text."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def json(self, name: str) -> dict[str, Any]:
        """An absent file reads as an empty object."""
        try:
            value = json.loads(self.files.get(name, b"{}"))
        except ValueError as error:
            raise BadCheckpoint(f"{name} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadCheckpoint(f"{name} is not a JSON object")
        return value

    @cached_property
    def templates(self) -> dict[str, str]:
        """Sources of the chat templates by name. Files of their own win over the tokenizer's settings, and those over
        the processor's, as in transformers."""
        named = {Path(name).stem: self._text(name) for name in self.files if name.startswith(f"{NAMED_TEMPLATES}/")}
        if "chat_template.jinja" in self.files:
            named["default"] = self._text("chat_template.jinja")
        return named or self._templates_in("tokenizer_config.json") or self._templates_in("chat_template.json")

    def _templates_in(self, name: str) -> dict[str, str]:
        value = self.json(name).get("chat_template")
        if isinstance(value, list):
            value = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        elif value is not None and not isinstance(value, dict):
            value = {"default": value}
        if not all(isinstance(text, str) for pair in (value or {}).items() for text in pair):
            raise BadCheckpoint(f"{name}: chat_template is neither a text nor a list of named texts")
        return value or {}

    def _text(self, name: str) -> str:
        try:
            return self.files[name].decode()
        except UnicodeDecodeError as error:
            raise BadCheckpoint(f"{name} is not UTF-8: {error}") from error
