"""`tandem top`: numbers as the target has them."""

import asyncio
import io
import json

import pytest

from services.console.generate import generate_json, request
from services.console.top import live, once
from tests.console.running import PROMPT, tandem, whole

pytestmark = pytest.mark.anyio


async def test_once_as_json_tells_what_was_drafted_and_accepted():
    async with whole() as running:
        address, answer, text = running.addresses.grpc, io.StringIO(), io.StringIO()
        asked = request(PROMPT, mode="ngram", seed=7, temperature=0, max_tokens=20)
        await generate_json(asked, address=address, out=answer)
        await running.behind.settled()
        done = await tandem("top", "--once", "--json", "--address", address)
        await once(address=address, as_json=False, out=text)
    seen, report = json.loads(done.out), json.loads(answer.getvalue())["speculation"]
    assert (done.status, done.err) == (0, "")
    assert (seen["model"], seen["exact"], seen["running"], seen["waiting"]) == ("tiny", True, 0, 0)
    assert (seen["free_rows"], seen["cache_rows"], seen["generated"]) == (4096, 4096, 20)
    [drafter] = seen["drafters"]
    assert (drafter["mode"], drafter["up"], drafter["refusal"]) == ("ngram", True, None)
    assert [drafter[name] for name in ("rounds", "drafted", "accepted")] == [
        report[name] for name in ("rounds", "drafted", "accepted")
    ]
    assert drafter["mean_accepted_length"] == report["mean_accepted_length"]
    assert "0 running, 0 waiting, 20 tokens since the start" in text.getvalue()


class Screen(io.StringIO):
    """Tells when it has shown a text so many times."""

    async def shows(self, text: str, times: int) -> None:
        self._wanted, self._shown = (text, times), asyncio.Event()
        async with asyncio.timeout(20):
            await self._shown.wait()

    def flush(self) -> None:
        text, times = self._wanted
        if self.getvalue().count(text) >= times:
            self._shown.set()


async def test_it_looks_again_and_says_when_nothing_answers():
    out = Screen()
    async with whole() as running:
        looking = asyncio.create_task(live(address=running.addresses.grpc, every_s=0.01, out=out))
        await out.shows(" tokens/s, ", 2)
    await out.shows("gateway at ", 2)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert looking.cancelled()
