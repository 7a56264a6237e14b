"""The HTTP face."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from services.gateway.anthropic import errors as anthropic_errors
from services.gateway.anthropic.routes import PREFIX, anthropic_routes
from services.gateway.generate import Generator
from services.gateway.openai import errors as openai_errors
from services.gateway.openai.routes import openai_routes
from services.gateway.probes import probe_routes
from services.gateway.rest import errors
from services.gateway.rest.body import Limits
from services.gateway.rest.request_ids import RequestIds

PING_S = 15.0
"""How often a silent stream sends a comment or a ping, so that no proxy thinks it dead."""


def create_app(generator: Generator, *, limits: Limits, ping_s: float) -> ASGIApp:
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    errors.install(app, openai_errors.refusal, under={PREFIX: anthropic_errors.refusal})
    for routes in (openai_routes, anthropic_routes):
        app.include_router(routes(generator, limits=limits, ping_s=ping_s))
    app.include_router(probe_routes(generator))
    return RequestIds(app)
