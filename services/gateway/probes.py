"""What is asked about the server itself: whether it lives, works, which version it is, what it serves, how it fares."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from services.errors import Unavailable, UnknownModel
from services.gateway.generate import Generator
from services.gateway.models import card

VERSION = version("tandem-serve")


def probe_routes(generator: Generator) -> APIRouter:
    routes = APIRouter()

    @routes.get("/live")
    async def live() -> dict[str, str]:
        return {"status": "alive"}

    @routes.get("/health")
    @routes.get("/ready")
    async def ready() -> dict[str, str]:
        """A generation would work now."""
        if not generator.ready:
            raise Unavailable("the model is not ready")
        return {"status": "ready"}

    @routes.get("/version")
    async def which() -> dict[str, str]:
        return {"version": VERSION}

    @routes.get("/metrics")
    async def metrics(request: Request) -> Response:
        generator.metrics.target.described = await generator.target.look()
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(generator.metrics.registry), headers={"Content-Type": media_type})

    @routes.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card(await generator.target.describe())]}

    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        served = await generator.target.describe()
        if name != served.model:
            raise UnknownModel(f"model {name!r} is not served; served is {served.model!r}")
        return card(served)

    return routes
