"""Somebody else's decoding of the same folder, in a process of its own that computes only while it is asked.

`python -m bench.decode.peer KIND TARGET THREADS [DRAFTER]` is asked as `bench.decode.answering` says. bf16, greedy,
batch 1; an answer ends at the target's own stop tokens.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from bench.decode.answering import answer_all
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

LOOKED_UP = 10
"""`prompt_lookup_num_tokens`, as transformers' own documentation has it."""

Generate = Callable[[torch.Tensor, int], torch.Tensor]
"""Of ids [1, prompt] and the most new tokens: ids [1, prompt + answer]."""


def plain(target: nn.Module, stop: Sequence[int], drafter: Path | None, **more: int) -> Generate:
    # Nothing is penalised: only these settings count.
    target.generation_config = type(target.generation_config)(eos_token_id=stop, pad_token_id=0, do_sample=False)
    return lambda ids, tokens: target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **more)


def prompt_lookup(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Generate:
    return plain(target, stop, drafter, prompt_lookup_num_tokens=LOOKED_UP)


def dflash(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Generate:
    from dflash.model import DFlashDraftModel

    return _block_diffusion(DFlashDraftModel, target, stop, drafter)


def dflash2(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Generate:
    from dflash.model import DFlash2DraftModel

    return _block_diffusion(DFlash2DraftModel, target, stop, drafter)


def _block_diffusion(kind: type, target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Generate:
    model = kind.from_pretrained(drafter, dtype=torch.bfloat16, local_files_only=True)
    return lambda ids, tokens: model.spec_generate(target, ids, tokens, stop)


KINDS: Mapping[str, Callable[[nn.Module, Sequence[int], Path | None], Generate]] = {
    "plain": plain,
    "prompt-lookup": prompt_lookup,
    "dflash": dflash,
    "dflash2": dflash2,
}


def main(kind: str, folder: Path, threads: int, drafter: Path | None) -> None:
    disable_progress_bar()
    torch.set_num_threads(threads)
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    generate = KINDS[kind](target, sorted(Tokenizer(TokenizerFiles.read(folder)).stop_ids), drafter)
    forwards = 0

    def count(*_: object) -> None:
        nonlocal forwards
        forwards += 1

    target.register_forward_hook(count)

    def decode(ids: Sequence[int], tokens: int) -> tuple[list[int], int]:
        nonlocal forwards
        forwards = 0
        with torch.inference_mode():
            answer = generate(torch.tensor([ids]), tokens)[0, len(ids) :].tolist()
        return answer, forwards

    answer_all(decode)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
