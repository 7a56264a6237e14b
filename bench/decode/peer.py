"""Somebody else's decoding of the same folder, in a process of its own that computes only while it is asked.

`python -m bench.decode.peer KIND TARGET THREADS [DRAFTER]` reads a line of JSON for each request, {"ids": [...],
"tokens": n}, and writes one for each answer, {"ids": [...], "seconds": s, "forwards": n}: what it took, and how often
the target ran. bf16, greedy, batch 1; an answer ends at the target's own stop tokens.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

LOOKED_UP = 10
"""`prompt_lookup_num_tokens`, as transformers' own documentation has it."""

Decode = Callable[[torch.Tensor, int], torch.Tensor]
"""Of ids [1, prompt] and the most new tokens: ids [1, prompt + answer]."""


def plain(target: nn.Module, stop: Sequence[int], drafter: Path | None, **more: int) -> Decode:
    # Nothing is penalised: only these settings count.
    target.generation_config = type(target.generation_config)(eos_token_id=stop, pad_token_id=0, do_sample=False)
    return lambda ids, tokens: target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **more)


def prompt_lookup(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Decode:
    return plain(target, stop, drafter, prompt_lookup_num_tokens=LOOKED_UP)


def dflash(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Decode:
    from dflash.model import DFlashDraftModel

    return _block_diffusion(DFlashDraftModel, target, stop, drafter)


def dflash2(target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Decode:
    from dflash.model import DFlash2DraftModel

    return _block_diffusion(DFlash2DraftModel, target, stop, drafter)


def _block_diffusion(kind: type, target: nn.Module, stop: Sequence[int], drafter: Path | None) -> Decode:
    model = kind.from_pretrained(drafter, dtype=torch.bfloat16, local_files_only=True)
    return lambda ids, tokens: model.spec_generate(target, ids, tokens, stop)


KINDS: Mapping[str, Callable[[nn.Module, Sequence[int], Path | None], Decode]] = {
    "plain": plain,
    "prompt-lookup": prompt_lookup,
    "dflash": dflash,
    "dflash2": dflash2,
}


def main(kind: str, folder: Path, threads: int, drafter: Path | None) -> None:
    disable_progress_bar()
    torch.set_num_threads(threads)
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    decode = KINDS[kind](target, sorted(Tokenizer(TokenizerFiles.read(folder)).stop_ids), drafter)
    forwards = 0

    def count(*_: object) -> None:
        nonlocal forwards
        forwards += 1

    target.register_forward_hook(count)
    for line in sys.stdin:
        asked = json.loads(line)
        prompt, forwards, begin = torch.tensor([asked["ids"]]), 0, time.perf_counter()
        with torch.inference_mode():
            ids = decode(prompt, asked["tokens"])[0, prompt.shape[1] :].tolist()
        told = {"ids": ids, "seconds": time.perf_counter() - begin, "forwards": forwards}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
