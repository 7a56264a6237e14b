"""What the HTTP server itself answers where no request can be read, in a shape that clients know."""

import asyncio
import http
import json
import uuid

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.errors import InvalidRequest
from services.gateway.openai.errors import refusal
from services.gateway.rest.request_ids import HEADERS


class Protocol(H11Protocol):
    """Its refusal is JSON: of what is not HTTP, and of headers that never end or take longer than `upload_s`."""

    upload_s: float
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("this is no HTTP request, or its headers are too long"))

    def _watch(self) -> None:
        """The time runs from the first byte of headers, or from the beginning of the connection, to their end."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(self.upload_s, self._give_up)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        """Who has sent nothing at all, such as a browser that connects ahead of need, is told nothing."""
        begun, _ = self.conn.trailing_data
        if begun:
            self._refuse(HTTPException(408, f"the headers did not arrive within {self.upload_s:g} seconds"))
        else:
            self.transport.close()

    def _refuse(self, error: Exception) -> None:
        id = uuid.uuid4().hex
        told = refusal(error, id)
        body = json.dumps(told.body).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *((name, id) for name in HEADERS),
        ]
        reason = http.HTTPStatus(told.status).phrase.encode()
        response = h11.Response(status_code=told.status, headers=headers, reason=reason)
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def protocol(upload_s: float) -> type[Protocol]:
    """For a server: it makes one of the class for each connection."""
    return type("UploadTimed", (Protocol,), {"upload_s": upload_s})
