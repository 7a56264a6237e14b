"""`tandem explain`: a line for each round, of a request that is run or of a report that was kept."""

import json
from pathlib import Path

import pytest

from services.console.explain import lines, recorded
from services.errors import TandemError
from tests.console.running import PROMPT, tandem, whole

pytestmark = pytest.mark.anyio

BODY = {
    "model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 20, "seed": 7,
    "speculation": "ngram",
}  # fmt: skip


async def test_a_request_is_run_kept_and_explained_again(tmp_path):
    request, kept = tmp_path / "request.json", tmp_path / "kept.json"
    request.write_text(json.dumps(BODY))
    async with whole() as running:
        done = await tandem("explain", "--json", str(request), "--address", running.addresses.http)
        live = await tandem("explain", str(request), "--address", running.addresses.http)
    assert (done.status, live.status) == (0, 0)
    kept.write_text(done.out)
    again = await tandem("explain", str(kept), "--address", "127.0.0.1:1")
    head, *rounds, last = again.out.splitlines()
    report = json.loads(done.out)
    assert head.split() == [
        "at", "mode", "asked", "came", "verified", "kept", "predicted", "measured", "shared", "because",
    ]  # fmt: skip
    assert len(rounds) == len(report["decisions"])
    assert [line.split()[1] for line in rounds] == [each["mode"] for each in report["decisions"]]
    assert last.startswith(f"{len(rounds)} rounds, 19 tokens in "), "the first token comes with the prompt"
    assert len(live.out.splitlines()) > 2


@pytest.mark.parametrize("body", [{"model": "tiny"}, {"decisions": 3}, [1]])
def test_what_cannot_be_explained_is_said(tmp_path: Path, body):
    (tmp_path / "it.json").write_text(json.dumps(body))
    with pytest.raises(TandemError):
        recorded(tmp_path / "it.json", address="127.0.0.1:1")


def test_what_was_cut_is_told_and_a_report_of_before_there_was_a_cut_is_read():
    told = {
        "at": 3, "mode": "mtp", "asked": 7, "came": 7, "drafted": 4, "accepted": 3, "predicted_seconds": None,
        "measured_seconds": 0.01, "sequences": 1, "because": "speed",
    }  # fmt: skip
    _, cut, _ = lines({"decisions": [told]})
    del told["came"]
    _, older, _ = lines({"decisions": [told]})
    assert cut.split()[:6] == ["3", "mtp", "7", "7", "4", "3"]
    assert older.split()[:6] == ["3", "mtp", "7", "4", "4", "3"]


def test_a_record_of_another_form_is_said():
    with pytest.raises(TandemError, match="no report with decisions"):
        list(lines({"decisions": [{"at": 1}]}))
