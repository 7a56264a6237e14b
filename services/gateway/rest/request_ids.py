"""Every request has an id, the client's own or a new one, and every response says it: the framework's and bugs' too."""

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = ("x-request-id", "request-id")
"""OpenAI's clients read the first, Anthropic's the second."""
FIT = re.compile(r"[!-~]{1,200}")


class RequestIds:
    """An application around `app`. An id that is not fit for a header or a log is replaced."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADERS[0], "")
        id = given if FIT.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = id

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in HEADERS:
                    headers[name] = id
            await send(message)

        await self._app(scope, receive, named)


def request_id(request: Request) -> str:
    return str(request.state.request_id)
