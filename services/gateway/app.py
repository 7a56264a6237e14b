"""The HTTP face: routes, and what a probe is told."""

from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from services.errors import Unavailable, UnknownModel
from services.gateway.anthropic import errors as anthropic_errors
from services.gateway.anthropic.routes import PREFIX, anthropic_routes
from services.gateway.generate import Generator
from services.gateway.models import card
from services.gateway.openai import errors as openai_errors
from services.gateway.openai.routes import openai_routes
from services.gateway.rest import errors
from services.gateway.rest.request_ids import RequestIds

PING_S = 15.0
"""How often a silent stream sends a comment or a ping, so that no proxy thinks it dead."""


def create_app(generator: Generator, *, max_body_bytes: int, ping_s: float) -> ASGIApp:
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    errors.install(app, openai_errors.refusal, under={PREFIX: anthropic_errors.refusal})
    for routes in (openai_routes, anthropic_routes):
        app.include_router(routes(generator, max_body_bytes=max_body_bytes, ping_s=ping_s))

    @app.get("/live")
    async def live() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """A generation would work now."""
        if not generator.ready:
            raise Unavailable("the model is not ready")
        return {"status": "ready"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card(await generator.target.describe())]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        served = await generator.target.describe()
        if name != served.model:
            raise UnknownModel(f"model {name!r} is not served; served is {served.model!r}")
        return card(served)

    return RequestIds(app)
