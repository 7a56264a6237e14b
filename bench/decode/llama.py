"""llama.cpp's decoding of a GGUF file, in a process of its own that computes only while it is asked.

`python -m bench.decode.llama KIND TARGET THREADS FILE CONTEXT` is asked as `bench.decode.answering` says. Greedy, batch
1; an answer ends at the stop tokens of the folder TARGET. CONTEXT is the most tokens of a prompt and its answer. What
is not said here is as llama-cpp-python has it by default.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.decode.answering import Decode, answer_all
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

LOOKED_UP = 2
"""`num_pred_tokens`, as llama-cpp-python's own documentation has it for processors; its default is for GPUs."""


def plain() -> dict[str, Any]:
    return {}


def prompt_lookup() -> dict[str, Any]:
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    # A draft model turns `logits_all` on, but room for all logits is made only for who asks for them.
    return {"draft_model": LlamaPromptLookupDecoding(num_pred_tokens=LOOKED_UP), "logits_all": True}


KINDS: Mapping[str, Callable[[], dict[str, Any]]] = {"plain": plain, "prompt-lookup": prompt_lookup}


def decoding(model: Any, stop: Collection[int]) -> Decode:
    """`model`: a `llama_cpp.Llama`."""
    evaluate, runs = model.eval, 0

    def counted(tokens: Sequence[int]) -> None:
        nonlocal runs
        runs += 1
        evaluate(tokens)

    # `generate` calls it for the prompt, however long, and then for each run of the target.
    model.eval = counted

    def decode(ids: Sequence[int], tokens: int) -> tuple[list[int], int]:
        nonlocal runs
        runs, answer = 0, []
        model.reset()  # it would not read again what the prompt before began with
        for id in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            answer.append(id)
            if len(answer) == tokens or id in stop:
                break
        return answer, runs

    return decode


def main(kind: str, target: Path, threads: int, file: str, context: int) -> None:
    from llama_cpp import Llama

    shared = {"n_ctx": context, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    model = Llama(file, **shared, **KINDS[kind]())
    answer_all(decoding(model, Tokenizer(TokenizerFiles.read(target)).stop_ids))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
