"""`tandem doctor`: what is wrong is found and named, what is not there is no failure."""

import re

import pytest

from services.console.doctor import AUDITED, examine
from tests.console.running import tandem, whole
from tests.target.test_audit import DependsOnWidth

pytestmark = pytest.mark.anyio

NOBODY = "127.0.0.1:1"


async def checks(tmp_path, *, address=NOBODY, **settings) -> dict[str, tuple[str, str]]:
    """Verdict and finding by what was looked at."""
    tables = {"serve": {"port": 0}} | settings
    lines = [
        line
        for role, pairs in tables.items()
        for line in (f"[{role}]", *(f"{name} = {value!r}" for name, value in pairs.items()))
    ]
    config = tmp_path / "tandem.toml"
    config.write_text("\n".join(lines))
    return {check.what: (check.verdict, check.found) for check in await examine(config=config, address=address)}


async def test_a_machine_where_nothing_runs_is_not_ill(tmp_path):
    found = await checks(tmp_path)
    assert {found[f"settings of {role}"] for role in ("target", "drafter", "gateway", "serve")} == {("ok", "legal")}
    assert found["running system"] == ("note", f"gateway at {NOBODY}: the service is not reachable")
    assert found["python"][0] == found["grpcio"][0] == found["torch"][0] == found["HTTP port"][0] == "ok"


async def test_a_setting_out_of_range_is_named(tmp_path):
    found = await checks(tmp_path, target={"queue": -1})
    assert found["settings of target"] == ("bad", "target.queue must be an integer from 0 to 65536, not -1")
    assert found["settings of drafter"][0] == "ok"


async def test_a_model_folder_that_cannot_be_served_is_named(tmp_path):
    found = await checks(tmp_path, target={"model": str(tmp_path)})
    assert found["weights"][0] == "bad"
    assert str(tmp_path) in found["weights"][1]


async def test_a_port_that_another_program_has_is_bad(tmp_path):
    async with whole() as running:
        port = int(running.addresses.http.rpartition(":")[2])
        found = await checks(tmp_path, serve={"grpc_port": port})
        assert found["gRPC port"] == ("bad", f"{port} is in use")
        found = await checks(tmp_path, serve={"grpc_port": port}, address=running.addresses.grpc)
        assert found["gRPC port"] == ("note", f"{port} is in use")


async def test_a_running_system_is_asked_and_audited(tmp_path):
    async with whole() as running:
        found = await checks(tmp_path, address=running.addresses.grpc)
    assert found["running system"][0] == found["exactness"][0] == found["drafter ngram"][0] == "ok"
    assert found["audit"][0] == "ok"
    assert found["audit"][1].startswith("32 tokens are those of plain decoding")


async def test_a_system_that_promises_nothing_or_breaks_its_promise_is_ill(tmp_path):
    async with whole(exact=False) as running:
        found = await checks(tmp_path, address=running.addresses.grpc)
    assert found["exactness"] == ("bad", "not promised: rows differ here")
    async with whole(model=DependsOnWidth(position=len(AUDITED.token_ids.ids) + 4)) as running:
        found = await checks(tmp_path, address=running.addresses.grpc)
    assert found["audit"] == ("bad", "drafting changed the answer at token 5")


async def test_the_command_prints_a_table_and_its_status_says_whether_all_is_well(tmp_path):
    config = tmp_path / "tandem.toml"
    config.write_text("[drafter]\nmodes = []\n")
    done = await tandem("doctor", "--config", str(config), "--address", NOBODY)
    assert (done.status, done.err) == (1, "")
    assert re.search(r"^bad +settings of drafter +drafter\.modes must be one or more of ngram", done.out, re.MULTILINE)
