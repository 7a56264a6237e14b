"""The answers that a drafter is trained on: read from where they are, and written first where they are missing."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from services.engine.engine import Engine
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadConfig
from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.training.answer import read_answers
from services.training.files import sha256
from services.training.lanes import Captured
from services.training.make_data import Making, answers_per_shard
from services.training.progress import Bar
from services.training.prompts import Chats, read_prompts
from services.training.questions import Known, Questions, Source
from services.training.shards import Origin, ShardFolder, Shards


class Target:
    """A model folder, read without its weights."""

    def __init__(self, folder: Path) -> None:
        """Raises BadCheckpoint for a folder that no target would serve."""
        Engine.check(folder)
        files = TokenizerFiles.read(folder)
        self.folder = folder
        self.name = folder.resolve().name
        self.tokenizer = Tokenizer(files)
        self.tokenizer_hash = files.hash
        self.vocab_size = self.tokenizer.vocab_size
        self.chats = Chats(self.tokenizer, ChatTemplate.of(files))
        self.keys = Keys.read(folder / "config.json")
        self.weights_hash = Checkpoint.open(folder).hash()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """`folder` keeps the shards. `prompts` and `answers` are the user's own, if any; `size` counts built-in prompts."""

    folder: Path
    prompts: Path | None = None
    answers: Path | None = None
    size: int = 4096
    seed: int = 0
    most_prompt: int = 512
    most_answer: int = 192
    lanes: int = 64
    shard_bytes: int = 256 * 2**20
    most_bytes: int = 20 * 2**30
    dtype: torch.dtype = torch.bfloat16
    threads: int | None = None


def prepare(target: Target, options: DataOptions, captured: Captured) -> Shards:
    """All answers asked for, with what is to be captured. What is there already is not made again."""
    source, asked = _source(target, options)
    origin = Origin(
        weights_hash=target.weights_hash, tokenizer_hash=target.tokenizer_hash, captured=captured, asked=asked
    )
    hidden_size = target.keys.integer("hidden_size")
    per_shard = answers_per_shard(
        source.longest, hidden_size * captured.count * options.dtype.itemsize, options.shard_bytes
    )
    making = Making(ShardFolder(options.folder, origin, per_shard=per_shard), source, options.most_bytes)
    if making.missing:
        _make(target, options, source, making)
    return Shards.open(options.folder, origin)


def _source(target: Target, options: DataOptions) -> tuple[Source, str]:
    """And what it asks, in words that are equal for equal questions."""
    longest = options.most_prompt + options.most_answer
    if options.answers:
        longest = min(longest, target.keys.integer("max_position_embeddings"))
        answers = list(read_answers(options.answers, vocab_size=target.vocab_size))
        return Known(answers, longest=longest), f"answers of sha256 {sha256(options.answers)}, at most {longest} ids"
    own = read_prompts(options.prompts) if options.prompts else None
    source = Questions(
        chats=target.chats,
        own=own,
        size=options.size if own is None else len(own),
        seed=options.seed,
        most_prompt=options.most_prompt,
        most_answer=options.most_answer,
    )
    kind = "built-in prompts" if options.prompts is None else f"prompts of {options.prompts.resolve()}"
    return source, f"{kind}, seed {options.seed}, at most {options.most_prompt} + {options.most_answer} ids"


def _make(target: Target, options: DataOptions, source: Source, making: Making) -> None:
    engine = Engine.load(
        target.folder,
        dtype=options.dtype,
        threads=options.threads,
        cache_rows=options.lanes * source.longest,
        max_sequences=options.lanes,
        vocab_size=target.vocab_size,
        context=_context(target, source.longest),
    )
    if not engine.numerics.exact:
        print("data: this machine's numerics are not exact: a resumed run may write other texts", file=sys.stderr)
    written = 0
    with Bar("data", making.missing) as bar:

        def progress(texts: int, ids: int) -> None:
            nonlocal written
            written += ids
            bar(texts, f"{written / bar.elapsed_s:.0f} tokens/s")

        making.run(engine, lanes=options.lanes, progress=progress)
    if making.left_out:
        print(
            f"data: {making.left_out} prompts are empty or longer than most-prompt, and are left out", file=sys.stderr
        )
    if making.full:
        print(f"data: {options.folder} has {options.most_bytes} bytes, and no more are written", file=sys.stderr)


def _context(target: Target, longest: int) -> int:
    """Cut to what is needed: every lane takes address space for the whole of it."""
    most = target.keys.integer("max_position_embeddings")
    if longest > most:
        raise BadConfig(f"most-prompt and most-answer are {longest} together; the target's context is {most}")
    return longest
