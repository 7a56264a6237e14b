"""Gradient descent that can be killed at any moment: what it needs to go on is in one file, which is replaced whole.

A step is a function of the weights, the optimiser's moments, the seed and the step's number, so a run that was killed
and goes on ends with the weights of one that was not.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from services.errors import BadConfig
from services.training.batch import Batches, generator
from services.training.files import write_tensors
from services.training.frozen import Frozen
from services.training.losses import Loss

STATE = "run.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq")
MEASURED_STEPS = 8  # that tell how long a step takes, when minutes are given
SMOOTHING = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`steps`, or as many as fit into `minutes`. The rate climbs for `warmup` steps, then falls as a cosine to a
    twentieth. `bf16`: the arithmetic; weights and moments are fp32 always."""

    steps: int | None
    minutes: float | None
    rate: float
    warmup: int
    clip: float = 1.0
    decay: float = 0.01
    bf16: bool = True
    device: str = "cpu"
    save_every_s: float = 120.0

    def rate_at(self, step: int, total: int) -> float:
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        share = (step - self.warmup) / max(total - self.warmup, 1)
        return self.rate * (0.05 + 0.95 * (1 + math.cos(math.pi * min(share, 1.0))) / 2)


@dataclass(slots=True)
class History:
    """By step: the loss, smoothed, the share of rows whose likeliest token was the target's, by position of a draft,
    and what evaluations found."""

    losses: list[tuple[int, float]] = field(default_factory=list)
    right: list[tuple[int, list[float]]] = field(default_factory=list)
    tokens_per_round: list[tuple[int, float]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"losses": self.losses, "right": self.right, "tokens_per_round": self.tokens_per_round}


class Run:
    """`identity` says what is trained, on what and how; a folder is gone on with only under the same."""

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        frozen: Frozen,
        batches: Batches,
        loss: Loss,
        schedule: Schedule,
        *,
        seed: int,
        identity: Mapping[str, object],
    ) -> None:
        self._path = folder / STATE
        self.model = model.to(schedule.device)
        self._frozen = frozen.to(schedule.device)
        self._batches, self._loss, self._schedule, self._seed = batches, loss, schedule, seed
        self._identity = json.dumps(identity, sort_keys=True, default=str)
        self.step = 0
        self.total = schedule.steps
        self.seconds = 0.0
        self.history = History()
        self._smooth = math.nan
        self._times: list[float] = []
        matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": schedule.decay}, {"params": vectors, "weight_decay": 0.0}]
        self._optimiser = torch.optim.AdamW(groups, lr=schedule.rate, betas=(0.9, 0.95))
        if self._path.exists():
            self._restore()

    @property
    def head_size(self) -> int:
        """Ids that losses are computed over."""
        return len(self._frozen.ids_D)

    @property
    def done(self) -> bool:
        return self.total is not None and self.step >= self.total

    def steps(self, count: int, progress: Callable[[int, str], None]) -> None:
        """At most `count` more steps. The state is stored now and then, and after the last."""
        saved = time.monotonic()
        for _ in range(count):
            if self.done:
                break
            note = self._one()
            progress(1, note)
            if time.monotonic() - saved >= self._schedule.save_every_s:
                self.save()
                saved = time.monotonic()
        self.save()

    def _one(self) -> str:
        began = time.monotonic()
        schedule = self._schedule
        rate = schedule.rate_at(self.step, self.total or 2**31)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        batch = self._batches[self.step].to(schedule.device, self._frozen.embedding_VH.dtype)
        with torch.autocast(schedule.device, dtype=torch.bfloat16, enabled=schedule.bf16):
            measured = self._loss(self.model, self._frozen, batch, generator(self._seed + 1, self.step))
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(measured.loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), schedule.clip)
        self._optimiser.step()
        self.step += 1
        took = time.monotonic() - began
        self.seconds += took
        self._record(float(measured.loss.detach()), measured.right, measured.rows)
        if self.total is None:
            self._count(took)
        return f"loss {self._smooth:.3f}, rate {rate:.1e}"

    def _count(self, took: float) -> None:
        """Make steps of the minutes. The first ones, which take far longer, say nothing of the others."""
        self._times.append(took)
        if len(self._times) >= MEASURED_STEPS:
            assert self._schedule.minutes is not None
            left = self._schedule.minutes * 60 - self.seconds
            self.total = self.step + max(round(left / median(self._times)), 0)

    def _record(self, loss: float, right: list[int], rows: list[int]) -> None:
        self._smooth = loss if math.isnan(self._smooth) else SMOOTHING * self._smooth + (1 - SMOOTHING) * loss
        if self.step % 10 == 0 or self.step == 1:
            self.history.losses.append((self.step, round(self._smooth, 4)))
            shares = [round(hits / count, 4) if count else 0.0 for hits, count in zip(right, rows, strict=True)]
            self.history.right.append((self.step, shares))

    def save(self) -> None:
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            tensors[f"weights.{name}"] = parameter.detach()
            for moment in MOMENTS:
                if parameter in self._optimiser.state:
                    tensors[f"{moment}.{name}"] = self._optimiser.state[parameter][moment]
        state = {
            "step": self.step,
            "total": self.total,
            "seconds": self.seconds,
            "smooth": self._smooth,
            "history": self.history.to_json(),
        }
        write_tensors(self._path, tensors, {"identity": self._identity, "state": json.dumps(state)})

    @torch.no_grad()
    def _restore(self) -> None:
        try:
            file: Any = safe_open(self._path, framework="pt")
            metadata = file.metadata()
            if metadata["identity"] != self._identity:
                raise BadConfig(
                    f"out: {self._path} is of a run with other options ({metadata['identity']}, not {self._identity}); "
                    "repeat those, or name another folder"
                )
            state = json.loads(metadata["state"])
            for name, parameter in self.model.named_parameters():
                parameter.copy_(file.get_tensor(f"weights.{name}"))
                moments = {moment: file.get_tensor(f"{moment}.{name}").to(parameter) for moment in MOMENTS}
                self._optimiser.state[parameter] = {"step": torch.tensor(float(state["step"])), **moments}
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise BadConfig(f"out: {self._path} is damaged: {error!r}") from error
        self.step, self.total, self.seconds = state["step"], state["total"], state["seconds"]
        self._smooth = state["smooth"]
        self.history = History(**state["history"])
