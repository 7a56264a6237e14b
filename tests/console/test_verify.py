"""`tandem verify`: status 0 only for an answer that was compared and found the same."""

import json
import re
from pathlib import Path

import pytest

from services.console.verify import verify
from services.errors import TandemError
from tests.console.running import PROMPT, PROMPT_IDS, tandem, whole
from tests.target.test_audit import DependsOnWidth

pytestmark = pytest.mark.anyio

BODY = {
    "model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 20, "seed": 7
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    def write(body) -> str:
        (tmp_path / "request.json").write_text(body if isinstance(body, str) else json.dumps(body))
        return str(tmp_path / "request.json")

    return write


@pytest.mark.parametrize("more", [{}, {"speculation": "ngram", "stream": True, "n": 2}])
async def test_a_lawful_system_is_clean(written, more):
    async with whole() as running:
        done = await tandem("verify", written(BODY | more), "--address", running.addresses.http)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"the same: {20 * more.get('n', 1)} tokens of ngram, ")


async def test_a_difference_is_status_1_and_says_where(written):
    place = 9
    async with whole(model=DependsOnWidth(position=len(PROMPT_IDS) + place - 1)) as running:
        done = await tandem("verify", written(BODY), "--address", running.addresses.http)
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith(
        f"different at token {place} of choice 0, where plain decoding's likeliest token led by "
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "must be a readable JSON file"),
        ("[]", "must hold a JSON object"),
        ({"model": "tiny"}, "has neither messages nor prompt"),
        (BODY | {"speculation": 3}, "speculation must be a mode or an object"),
        (BODY, "gateway at 127.0.0.1:1: "),
    ],
)
def test_what_cannot_be_verified_is_said(written, body, message):
    with pytest.raises(TandemError, match=re.escape(message)):
        verify(Path(written(body)), address="127.0.0.1:1")


async def test_what_the_gateway_refuses_is_said_as_it_says_it(written):
    async with whole() as running:
        done = await tandem("verify", written(BODY | {"top_p": 7}), "--address", running.addresses.http)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert "top_p must be" in done.err
