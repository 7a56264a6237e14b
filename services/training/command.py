"""`tandem train`: options in, a folder with a drafter out. Nothing heavy is imported before a command runs."""

import shlex
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from services.errors import BadConfig

train_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Options = dict[str, Any]
MIB, GIB = 2**20, 2**30
KINDS = {
    "mtp": "A multi-token-prediction module of one layer.",
    "dflash": "A block-diffusion drafter.",
    "dflash2": "A block-diffusion drafter with convolutions and a candidate selector.",
}


def option(name: str, kind: Any, default: object, help: str, **limits: Any) -> Parameter:  # noqa: ANN401
    annotation = Annotated.__class_getitem__((kind, typer.Option(help=help, **limits)))  # type: ignore[attr-defined]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


COMMON = [
    option("target", Path, Parameter.empty, "Folder of the target: a drafter is made for one target."),
    option("out", Path, Parameter.empty, "Folder for the drafter; it holds the unfinished run too."),
    option("data", Path | None, None, "Folder for answers with the target's states. Default: OUT/data."),
    option("prompts", Path | None, None, "Your own prompts: JSONL with `prompt` or `messages`, or a folder of it."),
    option("answers", Path | None, None, "JSONL of answers that the target wrote before."),
    option("size", int, 4096, "Prompts to answer, when they are not your own.", min=1),
    option("seed", int, 0, "The same seed gives the same data and the same drafter."),
    option("most_prompt", int, 512, "Longest prompt, in tokens; longer ones are left out.", min=1),
    option("most_answer", int, 192, "Longest answer, in tokens.", min=1),
    option("lanes", int, 64, "Answers that are written side by side.", min=1),
    option("shard_mb", int, 256, "Largest file of answers, in MiB.", min=1),
    option("data_gb", int, 20, "No more answers are written once their files take so many GiB.", min=1),
    option("threads", int | None, None, "Threads that compute. Default: as many as there are cores.", min=1),
]
NGRAM = [
    option("order", int | None, None, "Longest n-grams. Default: 5, or what the vocabulary allows.", min=2),
    option("most_entries", int, 600_000, "Largest table; an entry takes 13 bytes.", min=1),
]
MODEL = [
    option("steps", int | None, None, "How long to train; or give minutes.", min=1),
    option("minutes", float | None, None, "As many steps as fit; counted once, at the beginning.", min=0.01),
    option("sequences", int, 8, "Answers in a step.", min=1),
    option("rate", float, 1e-3, "Largest learning rate.", min=0.0),
    option("warmup", int, 100, "Steps until it is reached.", min=1),
    option("distil", float, 0.0, "Share of the target's own distribution in the loss.", min=0.0, max=1.0),
    option("head_ids", int, 0, "Losses over so many of the most frequent ids, for speed; 0: over all.", min=0),
    option("fp32", bool, False, "Compute in fp32. Default: bf16, with weights in fp32."),
    option("device", str, "cpu", "Where to train: cpu or cuda."),
    option("begin_with", Path | None, None, "A drafter to go on from; dflash2 may begin with a dflash one."),
    option("evaluations", int, 10, "Measurements on the way.", min=0),
    option("samples", int, 16, "Held-out answers that each of them goes through.", min=1),
    option("final_samples", int, 100, "Of each kind, at the end.", min=1),
    option("plots", bool, True, "Draw the course of the run; needs the extra `train`."),
]
MTP = [
    option("passes", int, 3, "Tokens that are drafted in training.", min=1),
    option("decay", float, 0.8, "Weight of a pass against the one before.", min=0.0, max=1.0),
]
DFLASH = [
    option("blocks", int, 16, "Blocks of each answer in a step.", min=1),
    option("block_size", int, 8, "The anchor and the drafts behind it.", min=2),
    option("gamma", float | None, None, "Draft j weighs exp(-(j - 1) / gamma). Default: half the block.", min=0.01),
    option("layers", int, 2, "Layers of the drafter.", min=1),
    option("taps", str | None, None, "0-based layers of the target, with commas. Default: five, evenly."),
    option("mask_id", int | None, None, "Id of a token that is never written. Default: a spare special token.", min=0),
]
SECOND = [
    option("rank", int, 64, "Of the selector.", min=1),
    option("candidates", int, 16, "That the selector chooses from.", min=1),
    option("conv_group", int, 16, "Channels that share a dynamic kernel.", min=1),
]
OF_KIND: Mapping[str, list[Parameter]] = {
    "mtp": [*COMMON, *MODEL, *MTP],
    "dflash": [*COMMON, *MODEL, *DFLASH],
    "dflash2": [*COMMON, *MODEL, *DFLASH, *SECOND],
}


def _register(name: str, help: str, parameters: list[Parameter], run: Callable[[Options], None]) -> None:
    def parsed(**options: object) -> None:
        run(options)

    parsed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    train_app.command(name, help=help)(parsed)


def _ngram(options: Options) -> None:
    from services.training.train_ngram import train_ngram

    data = _data(options)
    order, most_entries = options["order"], options["most_entries"]
    target, out = options["target"], options["out"]
    _show(train_ngram(target, out, data, order=order, most_entries=most_entries, command=_command()))


def _model(kind: str, options: Options) -> None:
    if (options["steps"] is None) == (options["minutes"] is None):
        raise BadConfig("either steps or minutes has to be given")
    taps = _taps(options.pop("taps", None))
    from services.training.optimise import Schedule
    from services.training.train_model import ModelOptions, train_model

    data = _data(options)
    schedule = Schedule(
        steps=options["steps"],
        minutes=options["minutes"],
        rate=options["rate"],
        warmup=options["warmup"],
        bf16=not options["fp32"],
        device=_device(options["device"]),
    )
    own = {name: options[name] for name in ModelOptions.__slots__ if name in options}
    model = ModelOptions(kind=kind, taps=taps, **own)  # type: ignore[arg-type]
    _show(train_model(options["target"], options["out"], data, model, schedule, command=_command()))


def _data(options: Options) -> Any:  # noqa: ANN401  (its class would import torch)
    if options["prompts"] and options["answers"]:
        raise BadConfig("prompts and answers exclude each other: answers have theirs")
    from services.training.data import DataOptions

    return DataOptions(
        folder=options["data"] or options["out"] / "data",
        shard_bytes=options["shard_mb"] * MIB,
        most_bytes=options["data_gb"] * GIB,
        **{
            name: options[name]
            for name in ("prompts", "answers", "size", "seed", "most_prompt", "most_answer", "lanes", "threads")
        },
    )


def _taps(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadConfig(f"taps has to be layers such as 1,8,15, not {text!r}")
    layers = tuple(int(part) for part in parts)
    if list(layers) != sorted(set(layers)):
        raise BadConfig(f"taps has to be ascending layers, each once, not {text}")
    return layers


def _device(name: str) -> str:
    import torch

    if name not in ("cpu", "cuda"):
        raise BadConfig(f"device has to be cpu or cuda, not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadConfig("device is cuda, and torch finds none here")
    return name


def _show(measured: Mapping[str, Any]) -> None:
    for name, found in measured.items():
        print(f"{name}: {found.tokens_per_round:.2f} tokens a round")


def _command() -> str:
    """As it was given, but for the folders around what absolute paths name: a card may be published."""
    return shlex.join(["tandem", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


_register("ngram", "A table of what usually follows the last few tokens.", [*COMMON, *NGRAM], _ngram)
for _kind, _help in KINDS.items():
    _register(_kind, _help, OF_KIND[_kind], lambda options, kind=_kind: _model(kind, options))  # type: ignore[misc]
