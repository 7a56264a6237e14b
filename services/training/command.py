"""`tandem train`: options in, a folder with a drafter out. Nothing heavy is imported before a command runs."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

train_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Target = Annotated[Path, typer.Option(help="Folder of the target: a drafter is made for one target.")]
Out = Annotated[Path, typer.Option(help="Folder for the drafter; it holds the unfinished run too.")]
Data = Annotated[Path | None, typer.Option(help="Folder for answers with the target's states. Default: OUT/data.")]
Prompts = Annotated[
    Path | None, typer.Option(help="Your own prompts: JSONL with `prompt` or `messages`, or a folder of it.")
]
Answers = Annotated[Path | None, typer.Option(help="JSONL of answers that the target wrote before.")]
Size = Annotated[int, typer.Option(min=1, help="Prompts to answer, when they are not your own.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same data and the same drafter.")]
MostAnswer = Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")]
MostPrompt = Annotated[int, typer.Option(min=1, help="Longest prompt, in tokens; longer ones are left out.")]
Lanes = Annotated[int, typer.Option(min=1, help="Answers that are written side by side.")]
ShardMb = Annotated[int, typer.Option(min=1, help="Size of a file of answers, in MiB.")]
DataGb = Annotated[int, typer.Option(min=1, help="No more answers are written once their files take so many GiB.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads that compute. Default: the CPU quota.")]


@train_app.command()
def ngram(
    target: Target,
    out: Out,
    data: Data = None,
    prompts: Prompts = None,
    answers: Answers = None,
    size: Size = 4096,
    seed: Seed = 0,
    most_prompt: MostPrompt = 512,
    most_answer: MostAnswer = 192,
    lanes: Lanes = 64,
    shard_mb: ShardMb = 256,
    data_gb: DataGb = 20,
    threads: Threads = None,
    order: Annotated[
        int | None, typer.Option(min=2, help="Longest n-grams. Default: 5, or what the vocabulary allows.")
    ] = None,
    most_entries: Annotated[int, typer.Option(min=1, help="Largest table; an entry takes 13 bytes.")] = 600_000,
) -> None:
    """A table of what usually follows the last few tokens."""
    from services.training.data import DataOptions
    from services.training.train_ngram import train_ngram

    options = DataOptions(
        folder=data or out / "data",
        prompts=prompts,
        answers=answers,
        size=size,
        seed=seed,
        most_prompt=most_prompt,
        most_answer=most_answer,
        lanes=lanes,
        shard_bytes=shard_mb * 2**20,
        most_bytes=data_gb * 2**30,
        threads=threads,
    )
    found = train_ngram(target, out, options, order=order, most_entries=most_entries, command=_command())
    for name, acceptance in found.items():
        print(f"{name}: {acceptance.tokens_per_round:.2f} tokens a round")


def _command() -> str:
    return shlex.join(["tandem", *sys.argv[1:]])
