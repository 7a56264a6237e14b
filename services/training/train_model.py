"""`tandem train mtp | dflash | dflash2`: data, descent with evaluations in between, checkpoint, card and plots."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from services.drafter.borrowed import Borrowed
from services.drafter.dflash import DFlashDrafter
from services.drafter.interface import AnyDrafter
from services.drafter.loading import DRAFT_VOCAB
from services.drafter.mtp import MtpDrafter
from services.engine.weights.checkpoint import Checkpoint
from services.errors import BadConfig
from services.training import beginnings, plots, recipes
from services.training.batch import Batches
from services.training.card import write_card
from services.training.data import DataOptions, Target, prepare
from services.training.evaluate import Acceptance, Sample, acceptance
from services.training.files import sha256, write_json, write_tensors
from services.training.frozen import Frozen, most_frequent
from services.training.lanes import Captured
from services.training.losses import DFlashLoss, Loss, MtpLoss
from services.training.optimise import MEASURED_STEPS, Run, Schedule
from services.training.progress import Bar
from services.training.recipes import DFlashForm, ModelKind
from services.training.shards import Shards

FILE, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """`head_ids`: losses are computed over so many of the most frequent ids; 0: over all. `passes` and `decay` are
    MTP's, `blocks`, `gamma` and the form DFlash's. `begin_with`: a drafter to go on from. `samples` held-out answers
    are measured `evaluations` times on the way, and at most `final_samples` of each kind at the end."""

    kind: ModelKind
    sequences: int
    distil: float
    head_ids: int
    passes: int = 3
    decay: float = 0.8
    blocks: int = 16
    gamma: float | None = None
    layers: int = 2
    block_size: int = 8
    taps: tuple[int, ...] | None = None
    mask_id: int | None = None
    rank: int = 64
    candidates: int = 16
    conv_group: int = 16
    begin_with: Path | None = None
    evaluations: int = 10
    samples: int = 16
    final_samples: int = 100
    plots: bool = True


def train_model(
    target_folder: Path, out: Path, data: DataOptions, options: ModelOptions, schedule: Schedule, *, command: str
) -> dict[str, Acceptance]:
    """What the finished drafter was measured to do. A run that `out` holds unfinished is gone on with."""
    if options.plots:
        plots.check()  # before hours of work, not after
    if data.threads is not None:
        torch.set_num_threads(data.threads)
    target = Target(target_folder)
    model, config, loss, captured = _drafter(target, options)
    shards = prepare(target, data, captured)
    usable, held_out = _split(shards)
    checkpoint = Checkpoint.open(target_folder)
    layers = target.keys.integer("num_hidden_layers")
    beginnings.from_target(model, checkpoint, layers, data.seed)
    if options.begin_with:
        beginnings.from_drafter(model, config, options.begin_with)
    ids = most_frequent((shards.answers[index] for index in usable), options.head_ids) if options.head_ids else None
    frozen = Frozen.read(
        checkpoint,
        tied=target.keys.flag("tie_word_embeddings", False),
        vocab_size=target.vocab_size,
        ids=ids,
        dtype=torch.bfloat16 if schedule.bf16 else torch.float32,
    )
    batches = Batches(shards, usable, size=options.sequences, seed=data.seed)
    identity = {
        "options": asdict(options)
        | {"evaluations": 0, "samples": 0, "final_samples": 0, "plots": 0, "begin_with": _weights(options.begin_with)},
        "schedule": asdict(schedule) | {"save_every_s": 0},
        "seed": data.seed,
        "answers": len(usable),
        "target": target.weights_hash,
    }
    run = Run(out, model, frozen, batches, loss, schedule, seed=data.seed, identity=identity)
    vocabulary = None if ids is None else out / DRAFT_VOCAB
    if vocabulary:
        write_json(vocabulary, ids)
    borrowed = Borrowed.read(target_folder, dtype=torch.bfloat16, vocab_size=target.vocab_size, draft_vocab=vocabulary)
    _descend(run, out / "latest", config, options, borrowed, [shards[index] for index in held_out[: options.samples]])
    _export(out, model, config)
    measured = _measure(load(options.kind, out, borrowed), shards, held_out, options)
    pictures = plots.plot(out, run.history, measured) if options.plots else []
    facts = _facts(target, shards, usable, run, options, schedule, command)
    write_card(out, title=f"{options.kind} for {target.name}", facts=facts, measured=measured, plots=pictures)
    return measured


def _weights(folder: Path | None) -> str | None:
    return sha256(folder / FILE) if folder else None


def load(kind: ModelKind, folder: Path, borrowed: Borrowed) -> AnyDrafter:
    """As the drafter program loads it; drafts are the likeliest tokens."""
    if kind == "mtp":
        return MtpDrafter.load(folder, borrowed, draws="argmax")
    return DFlashDrafter.load(kind, folder, borrowed, draws="argmax")


def _drafter(target: Target, options: ModelOptions) -> tuple[nn.Module, dict[str, Any], Loss, Captured]:
    if options.kind == "mtp":
        module, config = recipes.mtp(target.keys)
        loss: Loss = MtpLoss(passes=options.passes, decay=options.decay, distil=options.distil)
        return module, config, loss, Captured((), True)
    form = DFlashForm(
        layers=options.layers,
        block_size=options.block_size,
        taps=options.taps,
        mask_id=_mask_id(target, options.mask_id),
        rank=options.rank,
        candidates=options.candidates,
        conv_group=options.conv_group,
    )
    model, config = recipes.dflash(target.keys, options.kind, form)
    special = config["dflash_config"]
    loss = DFlashLoss(
        blocks=options.blocks,
        block_size=form.block_size,
        mask_id=special["mask_token_id"],
        gamma=options.gamma or form.block_size / 2,
        distil=options.distil,
    )
    return model, config, loss, Captured(tuple(special["target_layer_ids"]), True)


def _mask_id(target: Target, asked: int | None) -> int:
    """A token that stands for nothing: one asked for, or the last special token that no chat is made of."""
    rows = target.keys.integer("vocab_size")
    if asked is not None:
        if not 0 <= asked < rows:
            raise BadConfig(f"mask-id is {asked}; legal are 0 to {rows - 1}")
        return asked
    spoken = {*target.chats.prompt_ids([{"role": "user", "content": "a"}]), *target.tokenizer.stop_ids}
    if free := [id for id in target.tokenizer.special_ids if id not in spoken]:
        return max(free)
    if rows > target.vocab_size:
        return target.vocab_size  # a padded row, which no tokenizer knows
    raise BadConfig("mask-id: the target has no special token to spare; name an id that it never writes")


def _split(shards: Shards) -> tuple[list[int], list[int]]:
    """Answers to train on, and greedy ones to measure on."""
    answers = shards.answers
    usable = [index for index, answer in enumerate(answers) if not answer.held_out and len(answer.ids) > 2]
    held_out = [index for index, answer in enumerate(answers) if answer.held_out]
    if not usable or not held_out:
        raise BadConfig(f"data: {len(usable)} answers to train on and {len(held_out)} to measure on; more are needed")
    return usable, sorted(held_out, key=lambda index: (answers[index].temperature > 0, index))


def _descend(
    run: Run, folder: Path, config: dict[str, Any], options: ModelOptions, borrowed: Borrowed, samples: Sequence[Sample]
) -> None:
    """Until the end, with an evaluation now and then."""
    while run.total is None:  # until it is known how long a step takes
        run.steps(MEASURED_STEPS, lambda steps, note: None)
    every = max(run.total // max(options.evaluations, 1), 1)
    with Bar(options.kind, run.total) as bar:
        bar(run.step)
        while not run.done:
            run.steps(every - run.step % every, lambda steps, note: bar(steps, f"{note}{_latest(run)}"))
            if options.evaluations:
                _export(folder, run.model, config)
                found = acceptance(load(options.kind, folder, borrowed), samples, count=_count(options))
                run.history.tokens_per_round.append((run.step, round(found.tokens_per_round, 3)))
                run.save()


def _latest(run: Run) -> str:
    found = run.history.tokens_per_round
    return f", {found[-1][1]:.2f} tokens a round" if found else ""


def _export(folder: Path, model: nn.Module, config: dict[str, Any]) -> None:
    write_tensors(
        folder / FILE, {name: each.to("cpu", torch.bfloat16) for name, each in recipes.tensors(model).items()}
    )
    write_json(folder / CONFIG, config)


def _count(options: ModelOptions) -> int:
    return 3 if options.kind == "mtp" else options.block_size - 1


def _measure(
    drafter: AnyDrafter, shards: Shards, held_out: Sequence[int], options: ModelOptions
) -> dict[str, Acceptance]:
    def some(greedy: bool) -> Iterable[Sample]:
        chosen = (index for index in held_out if (shards.answers[index].temperature == 0) == greedy)
        return (shards[index] for index in islice(chosen, options.final_samples))

    counts = (3, 7) if options.kind == "mtp" else (_count(options),)
    return {
        f"{text}, drafts of {count}": acceptance(drafter, some(greedy), count=count)
        for text, greedy in (("temperature 0", True), ("above", False))
        for count in counts
    }


def _facts(
    target: Target,
    shards: Shards,
    usable: Sequence[int],
    run: Run,
    options: ModelOptions,
    schedule: Schedule,
    command: str,
) -> dict[str, object]:
    answers = shards.answers
    return {
        "what": f"a drafter for `{options.kind}`, {sum(each.numel() for each in run.model.parameters()):,} parameters",
        "target": f"{target.name}, weights `{target.weights_hash}`",
        "data": f"{len(usable):,} answers that the target wrote, "
        f"{sum(len(answers[index].ids) for index in usable):,} tokens",
        "held out": f"{len(answers) - len(usable):,} answers, by prompt",
        "steps": f"{run.step:,} of {options.sequences} answers each, {run.seconds / 60:.1f} minutes",
        "arithmetic": "bf16 with fp32 weights" if schedule.bf16 else "fp32",
        "losses over": f"{run.head_size:,} ids, to which drafts are restricted ({DRAFT_VOCAB})"
        if options.head_ids
        else "the whole vocabulary",
        "distillation": f"{options.distil:.0%} of the loss",
        "begun with": f"a drafter, weights of sha256 `{_weights(options.begin_with)}`"
        if options.begin_with
        else "the target's last layers",
        "command": f"`{command}`",
    }
