"""`tandem generate`: the text goes where it belongs, each token in its colour, and what is wrong is one line."""

import io
import json
import re

import pytest
from tandem.v1.types_pb2 import Token

from services.console.generate import generate, request
from services.console.origins import LEGEND, STYLES, Origins, harmless
from services.errors import InvalidRequest
from services.wire.codec import ORIGINS
from tests.console.running import LETTERS, PROMPT, PROMPT_IDS, tandem, whole
from tests.target.harness import plain_answer
from tests.target.harness import request as plain

pytestmark = pytest.mark.anyio

ANSWER = "".join(LETTERS[id] for id in plain_answer(plain(PROMPT_IDS, 20)))
OPTIONS = ("--temperature", "0", "--max-tokens", "20", "--seed", "7")


async def test_in_a_pipe_the_text_is_alone_on_stdout_and_the_report_on_stderr():
    async with whole() as running:
        done = await tandem("generate", PROMPT, *OPTIONS, "--address", running.addresses.grpc)
    assert (done.status, done.out) == (0, ANSWER + "\n")
    assert re.fullmatch(
        r"ngram \(asked for auto\): 20 tokens, \d+ of \d+ drafts accepted in \d+ rounds, end: length, seed 7, exact\n",
        done.err,
    )


async def test_json_is_one_document_with_the_origin_of_every_token():
    async with whole() as running:
        done = await tandem("generate", PROMPT, *OPTIONS, "--json", "--mode=ngram", "--address", running.addresses.grpc)
    document = json.loads(done.out)
    assert (done.status, done.err, document["text"]) == (0, "", ANSWER)
    assert [token["id"] for token in document["tokens"]] == plain_answer(plain(PROMPT_IDS, 20))
    origins = [token["origin"] for token in document["tokens"]]
    assert {name: origins.count(name) for name in LEGEND} == document["speculation"]["by_origin"]
    assert document["usage"] == {"prompt_tokens": 5, "completion_tokens": 20}
    assert (document["finish"], document["speculation"]["seed"]) == ("length", 7)


@pytest.mark.parametrize("colour", [True, False])
async def test_colour_adds_to_the_text_and_takes_nothing(colour):
    out, err = io.StringIO(), io.StringIO()
    asked = request(PROMPT, mode="ngram", seed=7, temperature=0, max_tokens=20)
    async with whole() as running:
        await generate(asked, address=running.addresses.grpc, colour=colour, out=out, err=err)
    escapes = re.findall(r"\x1b\[(\d+)m", out.getvalue())
    assert re.sub(r"\x1b\[\d+m", "", out.getvalue()) == ANSWER + "\n"
    assert ({STYLES["first"], STYLES["accepted"], STYLES["correction"]} <= set(escapes)) == colour
    assert ("\x1b" in err.getvalue()) == colour == ("draft that was right" in err.getvalue())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "eagle"}, "'eagle' is not a speculation_mode; legal are auto, none, ngram, mtp, dflash, dflash2"),
        ({"max_tokens": 0}, "--max-tokens must be an integer from 1, not 0"),
        ({"seed": 2**63}, f"--seed must be an integer of 64 bits, not {2**63}"),
    ],
)
def test_what_no_message_can_hold_is_refused_by_name(arguments, message):
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        request(PROMPT, **{"mode": "auto", "seed": None, "temperature": None, "max_tokens": None} | arguments)


async def test_a_gateway_that_is_not_there_is_one_line_and_status_2():
    done = await tandem("generate", PROMPT, "--address", "127.0.0.1:1")
    message = "tandem: gateway at 127.0.0.1:1: the service is not reachable\n"
    assert (done.status, done.out, done.err) == (2, "", message)


async def test_what_the_gateway_refuses_is_one_line_too():
    async with whole() as running:
        done = await tandem("generate", PROMPT, "--temperature", "9", "--address", running.addresses.grpc)
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(r"tandem: sampling\.temperature must be .*\n", done.err)


def token(origin: str, piece: bytes) -> Token:
    return Token(origin=ORIGINS.value(origin), piece=piece)


def test_text_that_comes_late_or_in_halves_keeps_the_origin_of_its_tokens():
    origins = Origins()
    assert list(origins.push("a", [token("first", b"a"), token("accepted", b"b\xc3")])) == [("first", "a")]
    assert list(origins.push("bé", [token("bonus", b"\xa9c"), token("plain", b"")])) == [
        ("accepted", "b"),
        ("bonus", "é"),
    ]
    assert list(origins.push("cd", [token("plain", b"d")])) == [("bonus", "c"), ("plain", "d")]


def test_what_the_model_writes_cannot_command_the_terminal():
    assert harmless("a\x1b[2J\x9b\rb\n\tç") == "a\ufffd[2J\ufffd\ufffdb\n\tç"
