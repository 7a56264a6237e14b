"""The HTTP server's life, beside the gRPC server's in one event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from services.errors import BadConfig
from services.gateway.protocol import protocol

KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an idle connection, so that it is they who close it."""
LAST_WORDS_S = 5
"""After the drain: time for the last bytes to be taken by slow clients."""


@asynccontextmanager
async def http_serving(listen: str, app: ASGIApp, *, upload_s: float) -> AsyncIterator[str]:
    """Serve on `listen` (`host:port`, port 0 for any free one) while the body runs; gives the address. Headers have to
    be here within `upload_s` seconds.

    Signals are the process's business, so uvicorn's own `serve`, which takes them over, is not used.
    """
    listener = bound(listen)
    config = uvicorn.Config(
        app,
        http=protocol(upload_s),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_WORDS_S,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    loop = asyncio.create_task(server.main_loop())
    try:
        yield f"{listen.rpartition(':')[0]}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await loop
        await server.shutdown(sockets=[listener])


def bound(listen: str) -> socket.socket:
    """A socket whose connections send at once: asyncio leaves Nagle's delay on where a socket names no protocol."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, int(port)))
    except OSError as error:
        listener.close()
        raise BadConfig(f"listen: cannot listen on {listen}; it must be a free port of this machine") from error
    return listener
