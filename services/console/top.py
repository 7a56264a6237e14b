"""`tandem top`: what a running system does, again and again."""

import asyncio
import json
import sys
from typing import Any, TextIO

from tandem.v1.generation_pb2 import DescribeRequest
from tandem.v1.target_pb2 import DrafterState, TargetServiceDescribeResponse

from services.console.dial import gateway
from services.errors import TandemError
from services.wire.codec import MODES

CLEAR = "\x1b[H\x1b[2J"
TIMEOUT_S = 10


async def once(*, address: str, as_json: bool, out: TextIO = sys.stdout) -> None:
    view = await _look(address)
    print(json.dumps(view) if as_json else screen(view), file=out)


async def live(*, address: str, every_s: float, out: TextIO = sys.stdout) -> None:
    """Until cancelled; a system that is away may come back."""
    generated: int | None = None
    while True:
        try:
            view = await _look(address)
            speed = None if generated is None else max(view["generated"] - generated, 0) / every_s
            generated, text = view["generated"], screen(view, tokens_per_s=speed)
        except TandemError as error:
            generated, text = None, str(error)
        print((CLEAR if out.isatty() else "") + text, file=out, flush=True)
        await asyncio.sleep(every_s)


async def _look(address: str) -> dict[str, Any]:
    async with gateway(address) as stub:
        return as_dict((await stub.Describe(DescribeRequest(), timeout=TIMEOUT_S)).target)


def as_dict(target: TargetServiceDescribeResponse) -> dict[str, Any]:
    load = target.load
    return {
        "model": target.model,
        "exact": target.exact,
        "inexact_reason": target.inexact_reason or None,
        "running": load.running,
        "waiting": load.waiting,
        "free_rows": load.free_rows,
        "cache_rows": load.cache_rows,
        "generated": load.generated,
        "drafters": [_drafter(each, target) for each in target.drafters],
    }


def _drafter(state: DrafterState, target: TargetServiceDescribeResponse) -> dict[str, Any]:
    done = next((each for each in target.load.drafters if each.mode == state.mode), None)
    rounds, drafted, accepted = (done.rounds, done.drafted, done.accepted) if done else (0, 0, 0)
    return {
        "mode": MODES.name(state.mode),
        "name": state.name,
        "up": state.up,
        "refusal": state.refusal or None,
        "rounds": rounds,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": accepted / drafted if drafted else None,
        "mean_accepted_length": 1 + accepted / rounds if rounds else None,
    }


def screen(view: dict[str, Any], *, tokens_per_s: float | None = None) -> str:
    used = view["cache_rows"] - view["free_rows"]
    speed = "" if tokens_per_s is None else f", {tokens_per_s:.0f} tokens/s"
    lines = [
        f"{view['model']}  {'exact' if view['exact'] else 'not exact: ' + str(view['inexact_reason'])}",
        f"{view['running']} running, {view['waiting']} waiting{speed}, {view['generated']} tokens since the start",
        f"{used} of {view['cache_rows']} cache rows reserved",
        "",
        f"{'drafter':<10}{'state':<10}{'rounds':>10}{'drafted':>10}{'accepted':>10}{'rate':>8}{'tokens/round':>14}",
    ]
    for each in view["drafters"]:
        state = "up" if each["up"] else "refused" if each["refusal"] else "away"
        rate = "-" if each["acceptance"] is None else f"{each['acceptance']:.0%}"
        length = "-" if each["mean_accepted_length"] is None else f"{each['mean_accepted_length']:.2f}"
        counts = f"{each['rounds']:>10}{each['drafted']:>10}{each['accepted']:>10}"
        lines.append(f"{each['mode']:<10}{state:<10}{counts}{rate:>8}{length:>14}")
    if not view["drafters"]:
        lines.append("none: the target has no drafter, or it is away")
    return "\n".join(lines)
