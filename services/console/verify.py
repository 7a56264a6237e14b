"""`tandem verify`: a request as it would be posted to the gateway, asked with an audit."""

import http.client
import json
from pathlib import Path
from typing import Any

from services.errors import BadConfig, InvalidRequest, TandemError, Unavailable

ROUTES = {"messages": "/v1/chat/completions", "prompt": "/v1/completions"}
"""Where a body goes, by the field that only such a body has."""
TIMEOUT_S = 3600


def verify(path: Path, *, address: str) -> tuple[bool, str]:
    """Whether plain decoding gives the same answer, and the verdict in a line."""
    body = _body(path)
    route = next((route for field, route in ROUTES.items() if field in body), None)
    if route is None:
        raise InvalidRequest(f"{path} has neither {' nor '.join(ROUTES)}: it is no request to a route that is audited")
    report = _posted(address, route, _with_audit(body)).get("speculation") or {}
    audit = report.get("audit")
    if audit is None:
        raise Unavailable("the answer was not audited; try again")
    return audit["differs_at"] is None, verdict(audit, report)


def verdict(audit: dict[str, Any], report: dict[str, Any]) -> str:
    ran = f"{report['resolved']}, {report['accepted']} of {report['drafted']} drafts accepted, seed {report['seed']}"
    if audit["differs_at"] is None:
        return f"the same: {audit['checked']} tokens of {ran}"
    margin = "" if audit["margin"] is None else f", where plain decoding's likeliest token led by {audit['margin']:.6g}"
    exact = "" if report["exact"] else f"; exactness is not promised here: {report['inexact_reason']}"
    return f"different at token {audit['differs_at']} of choice {audit['choice']}{margin}: {ran}{exact}"


def _body(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} must be a readable JSON file: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"{path} must hold a JSON object")
    return body


def _with_audit(body: dict[str, Any]) -> dict[str, Any]:
    speculation = body.get("speculation") or {}
    if isinstance(speculation, str):
        speculation = {"mode": speculation}
    if not isinstance(speculation, dict):
        raise InvalidRequest("speculation must be a mode or an object")
    whole = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    return whole | {"speculation": speculation | {"audit": True}}


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
