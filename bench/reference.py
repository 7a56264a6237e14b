"""transformers' `generate` on the same folder, in a process of its own that computes only while it is asked.

Reads a line of JSON for each request, {"ids": [...], "tokens": n}, and writes one for each answer, {"ids": [...],
"arrivals_s": [...]}: every token and when `generate` had it, after its call. bf16, greedy, batch 1.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.client import Answer
from bench.command import Options
from bench.machine import openmp


class Reference:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        self._process.stdin.write(json.dumps({"ids": list(prompt), "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with transformers ended with status {self._process.wait()}")
        answer = json.loads(line)
        return Answer(tuple(answer["ids"]), (1,) * len(answer["ids"]), tuple(answer["arrivals_s"]))


@contextmanager
def reference(options: Options) -> Iterator[Reference]:
    command = [sys.executable, "-m", "bench.reference", str(options.model), str(options.threads)]
    environment = {**os.environ, **openmp(options.threads)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # Leaving the block closes its input, which ends it.
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        yield Reference(process)


def main(folder: Path, threads: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    # Nothing ends early, nothing is penalised: only the settings below count.
    model.generation_config = type(model.generation_config)(eos_token_id=None, pad_token_id=0, do_sample=False)
    for line in sys.stdin:
        asked = json.loads(line)
        prompt = torch.tensor([asked["ids"]])
        stopwatch = Stopwatch()
        ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=asked["tokens"],
                             streamer=stopwatch)[0, prompt.shape[1]:].tolist()  # fmt: skip
        # The first call brings the prompt.
        print(json.dumps({"ids": ids, "arrivals_s": stopwatch.times_s[1:]}), flush=True)


class Stopwatch:
    """A streamer that keeps the times only."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self.times_s: list[float] = []

    def put(self, value: object) -> None:
        self.times_s.append(time.perf_counter() - self._begin)

    def end(self) -> None:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
