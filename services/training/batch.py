"""Which answers a step of training sees. It follows from the seed and the step's number alone.

Shape key: S sequences, P positions of the longest, K taps, H hidden size, A anchors of a sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from services.training.evaluate import Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded with id 0 and zeros. Sequence s has `length_S[s]` ids, of which `prompt_S[s]` are its prompt's; taps are
    there for all but the last."""

    ids_SP: Tensor
    taps_SPKH: Tensor
    prompt_S: Tensor
    length_S: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Batch":
        lengths = [len(sample.answer.prompt_ids) + len(sample.answer.ids) for sample in samples]
        prompts = [len(sample.answer.prompt_ids) for sample in samples]
        first_PKH = _taps(samples[0])
        ids_SP = torch.zeros(len(samples), max(lengths), dtype=torch.int64)
        taps_SPKH = first_PKH.new_zeros(len(samples), max(lengths), *first_PKH.shape[1:])
        for index, sample in enumerate(samples):
            ids_SP[index, : lengths[index]] = torch.tensor([*sample.answer.prompt_ids, *sample.answer.ids])
            taps_SPKH[index, : lengths[index] - 1] = _taps(sample)
        return cls(ids_SP, taps_SPKH, torch.tensor(prompts), torch.tensor(lengths))

    def to(self, device: str, dtype: torch.dtype) -> "Batch":
        """`dtype` of the taps."""
        return replace(
            self,
            ids_SP=self.ids_SP.to(device),
            taps_SPKH=self.taps_SPKH.to(device, dtype),
            prompt_S=self.prompt_S.to(device),
            length_S=self.length_S.to(device),
        )


def _taps(sample: Sample) -> Tensor:
    assert sample.taps_PKH is not None, "models are trained on taps"
    return sample.taps_PKH


def generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)


class Batches:
    """Passes over the answers in ever new orders, `size` at a time. Answers of one token teach nothing."""

    def __init__(self, samples: Sequence[Sample], usable: Sequence[int], *, size: int, seed: int) -> None:
        self._samples, self._usable = samples, usable
        self._size = min(size, len(usable))
        self._seed = seed

    @property
    def steps_of_a_pass(self) -> int:
        return len(self._usable) // self._size

    def __getitem__(self, step: int) -> Batch:
        turn, place = divmod(step, self.steps_of_a_pass)
        order = torch.randperm(len(self._usable), generator=generator(self._seed, ~turn & 0xFFFFFFFF))
        chosen = order[place * self._size : (place + 1) * self._size].tolist()
        return Batch.of([self._samples[self._usable[index]] for index in chosen])


def anchors(batch: Batch, count: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each sequence `count` places of anchors inside its answer, each once, and which of them are real [S, A]; a
    short answer has fewer. They are drawn on the CPU, and so are the same on every device."""
    prompt_S, length_S = batch.prompt_S.cpu(), batch.length_S.cpu()
    position_P = torch.arange(batch.ids_SP.shape[1])
    usable_SP = (position_P >= prompt_S[:, None]) & (position_P < length_S[:, None] - 1)
    draw_SP = torch.rand(usable_SP.shape, generator=dice).masked_fill(~usable_SP, -1.0)
    values_SA, anchors_SA = draw_SP.topk(min(count, draw_SP.shape[1]), 1)
    real_SA = values_SA >= 0
    return torch.where(real_SA, anchors_SA, prompt_S[:, None]), real_SA
