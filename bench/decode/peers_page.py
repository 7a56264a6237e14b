"""The page on Tandem beside others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.decode.markdown import conditions, grouped, interval, table

PEERS = """\
# Tandem beside others

Written by `python -m bench.decode --peers --write docs`; `bench/README.md` says how to read it.

Greedy, one stream, the same folder in bf16, the same prompts as ids. Speed is in tokens a second, and as a multiple of
Tandem's without drafts. *Tokens a round*: tokens after the first, over the target's runs after the one that read the
prompt. *Equal*: answers with the tokens of Tandem; others may differ, for bf16 kernels differ in the last bit.
"""
LLAMA = """\
llama.cpp, of llama-cpp-python {version}, reads the same weights from GGUF files and is named with their type. A type of
fewer bits rounds them, so it answers differently for that reason as well.
"""
NO_LLAMA = """\
llama.cpp is not among them: it reads GGUF files, which `--gguf` names.
"""


def write_peers(folder: Path, document: Mapping[str, Any]) -> None:
    """`decode-peers.md`."""
    version = document["settings"].get("llama-cpp-python")
    llama = LLAMA.format(version=version) if version else NO_LLAMA
    parts = [PEERS, llama, conditions(document), *(f"**{warning}**\n" for warning in document["warnings"])]
    for (workload,), rows in grouped(document["rows"], "workload").items():
        lines = [
            [
                row["who"],
                f"{row['tokens/s']:.1f}",
                interval(row["/ tandem, none"], row["from"], row["to"]),
                f"{row['tokens a round']:.2f}",
                f"{row['equal']} of {row['answers']}",
            ]
            for row in rows
        ]
        parts += [f"## {workload}\n", table(["", "tokens/s", "/ tandem, none", "tokens a round", "equal"], lines)]
    (folder / "decode-peers.md").write_text("\n".join(parts))
