"""Every field of every route against every kind of fault: refused by name, in the API's shape, before anything runs."""

import json

import pytest

from tests.gateway.faults import NOT_FINITE, PLACES, ROUTES, UNSUPPORTED, path_of

pytestmark = pytest.mark.anyio

FIELDS = [(route, name) for route, (_, fields) in ROUTES.items() for name in fields]


def json_of(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
async def peers(gateway):
    """The target must hear of nothing, and the gateway be as good as before."""
    async with gateway() as peers:
        yield peers
        assert peers.target.calls == []
        for route, (body, _) in ROUTES.items():
            assert (await peers.raw(json_of(body), path=route)).status_code == 200


def names(path: str, field: str) -> bool:
    """The field itself, or a place in it."""
    return path == field or path.startswith((f"{field}.", f"{field}["))


@pytest.mark.parametrize(("route", "field"), FIELDS, ids=lambda each: each.removeprefix("/v1/"))
async def test_a_fault_is_refused_by_the_name_of_its_field_streamed_or_not(peers, route, field):
    body, fields = ROUTES[route]
    tried = 0
    for kind, values in fields[field].faults().items():
        for value in values:
            status = 404 if (kind, field) == ("huge", "model") else 400
            for stream in (False, True):
                asked = {"stream": stream} | body | {field: value}
                path = path_of(await peers.raw(json_of(asked), path=route), status=status)
                assert names(path, field), (kind, value)
                tried += 1
    assert tried


@pytest.mark.parametrize(("route", "field"), FIELDS, ids=lambda each: each.removeprefix("/v1/"))
async def test_what_is_no_finite_number_is_refused_by_its_place(peers, route, field):
    body, fields = ROUTES[route]
    place = PLACES.get(fields[field].kind)
    for literal in NOT_FINITE if place else ():
        rest = {name: value for name, value in body.items() if name != field}
        raw = json.dumps(rest)[:-1] + f', "{field}": {place % literal}}}'
        assert names(path_of(await peers.raw(raw.encode(), path=route)), field), literal


@pytest.mark.parametrize(("route", "field"), FIELDS, ids=lambda each: each.removeprefix("/v1/"))
async def test_what_is_required_must_be_there_and_all_else_may_be_absent_or_null(gateway, route, field):
    body, fields = ROUTES[route]
    rest = {name: value for name, value in body.items() if name != field}
    async with gateway() as peers:
        answer = await peers.raw(json_of(rest), path=route)
        if fields[field].required:
            assert path_of(answer) == field
            return
        assert answer.status_code == 200
        if fields[field].nullable:
            assert (await peers.raw(json_of(rest | {field: None}), path=route)).status_code == 200


VALUES = {"response_format": {"type": "json_object"}, "modalities": ["audio"], "n": 2}


@pytest.mark.parametrize("route", UNSUPPORTED)
async def test_what_would_change_the_output_and_is_not_there_is_refused_by_name(peers, route):
    for field in UNSUPPORTED[route]:
        asked = ROUTES[route][0] | {field: VALUES.get(field, {"some": "thing"})}
        answer = await peers.raw(json_of(asked), path=route)
        assert path_of(answer) == field
        assert answer.json()["error"].get("code") in ("unsupported_parameter", None)


@pytest.mark.parametrize("route", UNSUPPORTED)
async def test_what_asks_for_nothing_or_is_not_known_is_let_be(gateway, route):
    neutral = {name: values[0] for name, values in UNSUPPORTED[route].items() if values}
    harmless = [neutral, dict.fromkeys(UNSUPPORTED[route]), {"a_field_of_tomorrow": [1, {}], "store": False}]
    async with gateway() as peers:
        for fields in harmless:
            answer = await peers.raw(json_of(ROUTES[route][0] | fields), path=route)
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("route", [*ROUTES, "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model": "\xff"}', b'{"model": "a", "model": "b"}', b"[" * 10_000]
)
async def test_what_is_no_json_object_is_400_on_every_route(gateway, route, body):
    async with gateway() as peers:
        answer = await peers.raw(body, path=route)
        kind = await peers.raw(json_of(ROUTES["/v1/messages"][0]), path=route, **{"Content-Type": "text/plain"})
    assert (answer.status_code, kind.status_code) == (400, 415)
    assert {each.json()["error"]["type"] for each in (answer, kind)} == {"invalid_request_error"}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_body_over_the_limit_is_413_on_every_route(gateway, route):
    async with gateway(max_body_bytes=4096) as peers:
        answer = await peers.raw(json_of(ROUTES[route][0] | {"pad": "x" * 5000}), path=route)
    error = answer.json()["error"]
    assert answer.status_code == 413
    assert "request_too_large" in (error.get("code"), error["type"])
