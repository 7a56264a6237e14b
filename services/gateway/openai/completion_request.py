"""From the bytes of a completion request to what is asked of the core: one request for each prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.gateway.openai.fields import CompletionBody, Wanted
from services.gateway.request import GenerationRequest, Text, TokenIds, drawn_seed
from services.gateway.rest.body import parse
from services.gateway.rest.reading import NOWHERE, Neutral, bad, common, refuse, refuse_all, validated

UNSUPPORTED: Neutral = {
    **NOWHERE,
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "prompt_embeds": (),
}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    requests: tuple[GenerationRequest, ...]
    stream: bool
    wanted: Wanted


def read(raw: bytes, *, id: str, max_choices: int) -> CompletionRequest:
    """Raises InvalidRequest or Unsupported, which name the field."""
    value = parse(raw)
    body = validated(CompletionBody, value)
    refuse_all(body, UNSUPPORTED)
    n = 1 if body.n is None else body.n
    refuse("best_of", (body.model_extra or {}).get("best_of"), (n,))
    if len(body.prompt) * max(n, 1) > max_choices and n <= max_choices:
        raise bad(
            "prompt", f"must have at most {max_choices} prompts, each counted n ({n}) times, not {len(body.prompt)}"
        )
    return CompletionRequest(_requests(body, value, id, n), bool(body.stream), body.wanted)


def _requests(body: CompletionBody, raw: Mapping[str, Any], id: str, n: int) -> tuple[GenerationRequest, ...]:
    names = {"stop[]": "stop"} if isinstance(raw.get("stop"), str) else {}
    several = isinstance(raw["prompt"], list) and not isinstance(raw["prompt"][0], int)

    def asked(index: int, prompt: str | list[int]) -> GenerationRequest:
        own = common(body, raw, names | {"input": f"prompt[{index}]" if several else "prompt"})
        return GenerationRequest(
            id=id,
            input=Text(prompt) if isinstance(prompt, str) else TokenIds(tuple(prompt)),
            n=n,
            max_tokens=body.max_tokens,
            logprobs=body.logprobs,
            stop=tuple(body.stop or ()),
            **own | {"seed": seed},
        )

    seed = drawn_seed() if body.seed is None else body.seed  # the report has room for one
    return tuple(asked(index, prompt) for index, prompt in enumerate(body.prompt))
