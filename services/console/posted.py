"""A request from a file, posted to the gateway with a wish added to its `speculation`."""

import http.client
import json
from pathlib import Path
from typing import Any

from services.errors import BadConfig, InvalidRequest, TandemError, Unavailable

ROUTES = {"messages": "/v1/chat/completions", "prompt": "/v1/completions"}
"""Where a body goes, by the field that only such a body has."""
TIMEOUT_S = 3600


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} must be a readable JSON file: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must hold a JSON object")
    return value


def report_of(body: dict[str, Any], path: Path, *, wish: str, address: str) -> dict[str, Any]:
    """Post `body`, which came from `path`, not streamed, with `speculation.<wish>`: the report of what ran."""
    route = next((route for field, route in ROUTES.items() if field in body), None)
    if route is None:
        raise InvalidRequest(f"{path} has neither {' nor '.join(ROUTES)}: it is no request to a route that answers it")
    report: dict[str, Any] = _posted(address, route, _wishing(body, wish)).get("speculation") or {}
    return report


def _wishing(body: dict[str, Any], wish: str) -> dict[str, Any]:
    speculation = body.get("speculation") or {}
    if isinstance(speculation, str):
        speculation = {"mode": speculation}
    if not isinstance(speculation, dict):
        raise InvalidRequest("speculation must be a mode or an object")
    whole = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    return whole | {"speculation": speculation | {wish: True}}


def _posted(address: str, route: str, body: dict[str, Any]) -> dict[str, Any]:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        raise BadConfig(f"--address must be HOST:PORT, not {address}")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    try:
        connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        value: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"gateway at {address}: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise TandemError(f"gateway at {address}: {value['error']['message']}")
    return value
