"""The real scheduler, round loop, rules, link and wire around a scripted model and a scripted drafter."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.v1.drafter_pb2 import Hello
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer

from services.engine.sampling import Ask, Rules, SamplingParams, sample_and_match
from services.target.background import background
from services.target.link.link import DrafterLink, Patience
from services.target.link.tapped import NAMES
from services.target.policy.rules import PolicyRules
from services.target.request import Request, Speculation
from services.target.rounds import Rounds
from services.target.scheduler import Bounds
from services.target.sink import Update
from services.target.steering import Policy, Steering
from services.target.taps.sharing import Sharing
from services.target.taps.taps import Taps
from services.target.worker import Worker
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer
from services.wire.codec import DATA_TYPES
from services.wire.serving import drafter_service, serving
from tests.target.always import Always
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import ScriptedModel, logits

BOUNDS = Bounds(max_sequences=16, max_waiting=64, prefill_chunk=8, round_tokens=64)
PATIENT = Patience(first_s=30, most_s=30, misses=3, rest_s=0.01, hang_s=60, welcome_s=60, reconnect_s=0.005)
HASTY = Patience(first_s=0.02, most_s=0.02, misses=3, rest_s=0.01, hang_s=0.1, welcome_s=60, reconnect_s=0.005)
"""For drafters that are scripted to miss the deadline; all others have as long as the machine needs."""


def files(**config: str) -> TokenizerFiles:
    """A tokenizer of one letter or digit a token, no special tokens."""
    letters = "abcdefghijklmnopqrstuvwxyz012345"
    model = {"type": "WordLevel", "vocab": {letter: id for id, letter in enumerate(letters)}, "unk_token": "a"}
    table = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "post_processor": None, "decoder": {"type": "Fuse"}, "model": model,
    }  # fmt: skip
    given = {"tokenizer.json": table} | ({"tokenizer_config.json": config} if config else {})
    return TokenizerFiles({name: json.dumps(value).encode() for name, value in given.items()})


def tokenizer() -> Tokenizer:
    return Tokenizer(files())


def request(
    prompt: Sequence[int],
    max_new: int = 24,
    *,
    mode: str = "ngram",
    max_draft_tokens: int | None = None,
    strict: bool = False,
    stop_strings: Iterable[str] = (),
    stop_ids: Iterable[int] = (),
    open_ended: bool = False,
    **sampling: object,
) -> Request:
    params = {"temperature": 0.0, "seed": 7, "logit_bias": {}, "banned": frozenset()} | sampling
    return Request(
        id="test",
        prompt=tuple(prompt),
        max_new=max_new,
        open_ended=open_ended,
        sampling=SamplingParams(**params),
        stop_strings=tuple(stop_strings),
        stop_ids=frozenset(stop_ids),
        speculation=Speculation(mode=mode, max_draft_tokens=max_draft_tokens, strict=strict, stats=True),
    )


def plain_answer(asked: Request) -> list[int]:
    """The tokens of a request decoded one by one, with nothing of the round loop."""
    rules = Rules(asked.sampling, asked.prompt, asked.stop_ids)
    ids = list(asked.prompt)
    letters = "abcdefghijklmnopqrstuvwxyz012345"
    for _ in range(asked.max_new):
        [verdict] = sample_and_match(logits(ids)[None], [Ask(rules, len(ids), ())])
        ids.append(verdict.tokens[0])
        rules.advance(ids[-1])
        text = "".join(letters[id] for id in ids[len(asked.prompt) + max(asked.sampling.min_tokens - 1, 0) :])
        if ids[-1] in asked.stop_ids or any(stop in text for stop in asked.stop_strings):
            break
    return ids[len(asked.prompt) :]


def truth_of(requests: Iterable[Request]):
    """A function from a history to what follows it in the plain answer of one of `requests`."""
    full = [[*each.prompt, *plain_answer(each)] for each in requests]

    def truth(history: Sequence[int]) -> list[int]:
        return next((ids[len(history) :] for ids in full if ids[: len(history)] == list(history)), [])

    return truth


@dataclass
class System:
    model: ScriptedModel
    link: DrafterLink
    rounds: Rounds

    async def answer(self, asked: Request, *, leave_after: int | None = None) -> list[Update]:
        """All updates of one request, or those before the reader leaves."""
        updates = []
        stream = self.rounds.generate(asked)
        async for update in stream:
            updates.append(update)
            if leave_after is not None and len(updates) > leave_after:
                break
        await stream.aclose()
        return updates

    async def settled(self) -> None:
        """Wait until every row is free again, which the loop does at its next boundary."""
        while self.model.free_rows < self.model.cache_rows or not self.rounds.scheduler.idle:  # noqa: ASYNC110
            await asyncio.sleep(0)


@contextmanager
def ring_folder() -> Iterator[Path]:
    """A folder in a tmpfs."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@asynccontextmanager
async def system(
    drafter: DrafterServiceServicer | None,
    *,
    model: ScriptedModel | None = None,
    bounds: Bounds = BOUNDS,
    patience: Patience = PATIENT,
    clock: Callable[[], float] = time.perf_counter,
    tap_pages: int = 200,
    page_bytes: int = 1024,
    tap_folder: Path | None = None,
    policy: Policy | None = None,
    rules: PolicyRules | None = None,
) -> AsyncIterator[System]:
    """Everything running, the drafter connected; rounds wait for a drafter that is on its way back."""
    model, worker = model or ScriptedModel(), Worker()
    services = [drafter_service(drafter)] if drafter else []
    async with background() as start, serving("127.0.0.1:0", services, grace_s=0) as server:
        await server.ready()
        hello = Hello(
            protocol_version=1,
            target_instance="test",
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            layers=model.layers,
            dtype=DATA_TYPES.value(NAMES[model.dtype]),
        )
        size, hidden_size = tap_pages * page_bytes, model.hidden_size
        taps = Taps(size=size, hidden_size=hidden_size, dtype=model.dtype, page_bytes=page_bytes)
        sharing = Sharing(taps, worker, tap_folder)
        link = DrafterLink(server.address if drafter else None, hello, patience, taps, sharing)
        start(link.run())
        if isinstance(drafter, ScriptedDrafter):
            _release_late_answers(model, drafter)
        steering = Steering(policy or Always(), rules or PolicyRules(), link)
        rounds = Rounds(model, tokenizer(), link, worker, bounds, steering, clock=clock)
        if drafter:
            _wait_for_reconnection(rounds, link)
        start(rounds.run())
        if drafter:
            await link.up.wait()
        yield System(model, link, rounds)
    worker.close()


async def drive(asked: list, script, *, count: int = 1, patience: Patience = PATIENT):
    """Run the requests together; returns the updates, the link and the drafter."""
    drafter = ScriptedDrafter(truth_of(asked), iter(script))
    async with system(drafter, patience=patience) as running:
        answers = [await asyncio.gather(*map(running.answer, asked)) for _ in range(count)]
        await running.settled()
        if count > 1:
            await drafter.all_closed()
        return answers[-1], running.link, drafter


def _wait_for_reconnection(rounds: Rounds, link: DrafterLink) -> None:
    plan = rounds._plan

    async def patient():
        async with asyncio.timeout(10):
            await link.up.wait()
        return await plan()

    rounds._plan = patient


def _release_late_answers(model: ScriptedModel, drafter: ScriptedDrafter) -> None:
    """A late answer leaves when the round it was meant for is being verified without it."""
    loop = asyncio.get_running_loop()
    model.on_forward = lambda: loop.call_soon_threadsafe(drafter.late.set)


def tokens(updates: Iterable[Update]) -> list[int]:
    return [kept.id for update in updates for kept in update.kept]
