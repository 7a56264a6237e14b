"""How the process of a peer is asked, and how it answers.

It reads a line of JSON for each request, {"ids": [...], "tokens": n}, and writes one for each answer, {"ids": [...],
"seconds": s, "forwards": n}: what it took, and how often the target ran. It ends with its input.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int], int], tuple[Sequence[int], int]]
"""Of a prompt and the most new tokens: the answer, with the stop token that ended it, and how often the target ran."""


def answer_all(decode: Decode) -> None:
    for line in sys.stdin:
        asked, begin = json.loads(line), time.perf_counter()
        ids, forwards = decode(asked["ids"], asked["tokens"])
        told = {"ids": list(ids), "seconds": time.perf_counter() - begin, "forwards": forwards}
        print(json.dumps(told), flush=True)
