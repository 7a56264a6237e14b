"""One side of a tap ring as a process of its own, for tests that kill it: `target ADDRESS FOLDER`, or
`drafter FOLDER [mute]`, which says nothing after Hello when mute. Each line on stdout is something that happened."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from tandem.v1.drafter_pb2 import Hello

from services.target.link.link import DrafterLink
from services.target.taps.sharing import Sharing
from services.target.taps.taps import Taps
from services.target.worker import Worker
from services.wire.serving import drafter_service, serving
from tests.target.harness import PATIENT
from tests.target.recording_drafter import RecordingDrafter, recording


def say(*words: object) -> None:
    print(*words, flush=True)


class Telling(Sharing):
    @asynccontextmanager
    async def offer(self):
        try:
            async with super().offer() as ring:
                say("offers", ring.path)
                yield ring
        finally:
            say("withdrew")


async def target(address: str, folder: str) -> None:
    taps = Taps(size=8 << 20, hidden_size=8, dtype=torch.float32)
    hello = Hello(protocol_version=1, vocab_size=32, hidden_size=8, layers=2, dtype=2)
    link = DrafterLink(address, hello, PATIENT, taps, Telling(taps, Worker(), Path(folder)))
    begin = link._begin

    def telling(*args) -> None:
        begin(*args)
        say("welcomed")

    link._begin = telling
    await link.run()


async def drafter(folder: str, mute: str = "") -> None:
    with recording(RecordingDrafter(needs_final_hidden=True), tap_folder=Path(folder)) as servicer:
        greet = servicer._drafting.greet

        async def silence(requests, context):
            await anext(requests)
            say("got Hello")
            await asyncio.Event().wait()
            yield

        def greeting(hello):
            say("got Hello")
            return greet(hello)

        servicer._drafting.greet = greeting
        if mute:
            servicer.Draft = silence
        async with serving("127.0.0.1:0", [drafter_service(servicer)], grace_s=0) as server:
            await server.ready()
            say("listens", server.address)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"target": target, "drafter": drafter}[sys.argv[1]](*sys.argv[2:]))
