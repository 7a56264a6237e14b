"""What the HTTP server itself answers where no request can be read, in a shape that clients know."""

import json
import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.errors import InvalidRequest
from services.gateway.openai.errors import refusal
from services.gateway.rest.request_ids import HEADERS


class Protocol(H11Protocol):
    """Its refusal is JSON: of what is not HTTP, and of headers that never end."""

    def send_400_response(self, msg: str) -> None:
        id = uuid.uuid4().hex
        told = refusal(InvalidRequest("this is no HTTP request, or its headers are too long"), id)
        body = json.dumps(told.body).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *((name, id) for name in HEADERS),
        ]
        response = h11.Response(status_code=told.status, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
