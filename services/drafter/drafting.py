"""What the process offers to every target: its drafters, the streams that are open, and the thread they share."""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self
from weakref import WeakSet

from services.drafter.contexts import Capacity
from services.drafter.interface import AnyDrafter, Description
from services.drafter.messages import Hello, Refusal, Welcome
from services.drafter.session import Session
from services.errors import Unavailable


class Drafting:
    def __init__(self, drafters: Sequence[AnyDrafter], capacity: Capacity, thread: ThreadPoolExecutor) -> None:
        self.instance = uuid.uuid4().hex
        self.descriptions = [drafter.description for drafter in drafters]
        self._drafters = {drafter.description.mode: drafter for drafter in drafters}
        self.capacity = capacity
        self._thread = thread
        self._sessions: WeakSet[Session] = WeakSet()
        self._draining = False

    @classmethod
    @contextmanager
    def of(cls, drafters: Sequence[AnyDrafter], *, max_contexts: int) -> Iterator[Self]:
        """With a compute thread of its own, which ends when the body does."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute") as thread:
            yield cls(drafters, Capacity(max_contexts), thread)

    def greet(self, hello: Hello) -> tuple[Welcome, Session]:
        """A session with this target, for the drafters that fit it."""
        if self._draining:
            raise Unavailable("the drafter is shutting down")
        reasons = {mode: misfit(drafter.description, hello) for mode, drafter in self._drafters.items()}
        welcomed = {mode: drafter for mode, drafter in self._drafters.items() if reasons[mode] is None}
        refusals = [
            Refusal(mode=mode, name=self._drafters[mode].description.name, reason=reason)
            for mode, reason in reasons.items()
            if reason is not None
        ]
        session = Session(welcomed, self.capacity, self._thread)
        self._sessions.add(session)
        descriptions = [drafter.description for drafter in welcomed.values()]
        return Welcome(self.instance, descriptions, refusals, self.capacity.limit), session

    def drain(self) -> None:
        """End every stream once the turns it received are answered. A stream would outlive any grace otherwise."""
        self._draining = True
        for session in self._sessions:
            session.drain()


def misfit(description: Description, hello: Hello) -> str | None:
    """Why a drafter cannot draft for a target; None when it can."""
    wanted = {
        "hidden size": (description.target_hidden_size, hello.hidden_size),
        "vocabulary": (description.target_vocab_size, hello.vocab_size),
        "weights fingerprint": (description.target_fingerprint, hello.weights_fingerprint),
        "tokenizer": (description.target_tokenizer_hash, hello.tokenizer_hash),
    }
    for what, (made_for, is_now) in wanted.items():
        if made_for is not None and made_for != is_now:
            return f"made for a target of {what} {made_for}, not {is_now}"
    if description.tap_layers and max(description.tap_layers) >= hello.layers:
        return f"needs what layer {max(description.tap_layers)} computes, of a target with {hello.layers} layers"
    if (description.tap_layers or description.needs_final_hidden) and not (hello.hidden_size and hello.dtype):
        return "needs what the target's layers compute, and the target does not say its hidden size and dtype"
    return None
