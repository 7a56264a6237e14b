"""Files for llama.cpp: what they say they are, and whether they hold the target."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf

from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

SHAPE = {"embedding_length": "hidden_size", "block_count": "num_hidden_layers"}
"""What must be as in `config.json`: models of one family may share a vocabulary."""


def by_type(files: Sequence[Path], target: Path) -> dict[str, Path]:
    """BF16, Q4_K_M, ... -> the file that says it is that. SystemExit for one that cannot be read, that holds another
    model than the folder `target`, or that is of the same type as another."""
    found: dict[str, Path] = {}
    for file in files:
        try:
            fields = {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}
            _refuse_another_model(fields, target)
            kind = gguf.LlamaFileType(fields["general.file_type"]).name.removeprefix("MOSTLY_").removeprefix("ALL_")
        except _Other as error:
            raise SystemExit(f"--gguf: {file} is not {target.name}: {error}") from error
        except KeyError as error:
            raise SystemExit(f"--gguf: {file} lacks the key {error}") from error
        except (OSError, ValueError, IndexError) as error:
            raise SystemExit(f"--gguf: {file} cannot be read as GGUF: {error}") from error
        if kind in found:
            raise SystemExit(f"--gguf: {found[kind]} and {file} are both {kind}")
        found[kind] = file
    return found


class _Other(Exception):
    """It holds another model."""


def _refuse_another_model(fields: Mapping[str, Any], target: Path) -> None:
    files = TokenizerFiles.read(target)
    config = files.json("config.json")
    config = config.get("text_config", config)
    tokens = fields["tokenizer.ggml.tokens"]
    sizes = {"vocab_size": len(tokens)}
    sizes |= {ours: fields[f"{fields['general.architecture']}.{theirs}"] for theirs, ours in SHAPE.items()}
    for name, size in sizes.items():
        if size != config.get(name):
            raise _Other(f"{name} is {size}, not {config.get(name)}")
    tokenizer = Tokenizer(files)
    for id, token in enumerate(tokens):
        # Ids above the tokenizer's own only fill the vocabulary up, under any name.
        if (ours := tokenizer.token(id)) not in (None, token):
            raise _Other(f"token {id} is {token!r}, not {ours!r}")
