"""`tandem-health`: asks a program of ours how it is, for probes that can only run a command.

A container runs it every few seconds for as long as it lives, so it does without the `tandem` command and its imports.
"""

import argparse
import http.client
import os
import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from services.errors import Unavailable
from services.wire.limits import CLIENT_OPTIONS

READY = {"target": "tandem.v1.TargetService", "drafter": "tandem.v1.DrafterService"}
"""The service whose health says that a program is ready; of a gateway, its HTTP routes do."""


def main() -> None:
    """Status 0 is yes. No is one line on stderr and status 1; arguments that are wrong are status 2."""
    parser = argparse.ArgumentParser(prog="tandem-health", description="Ask a running program whether it is ready.")
    parser.add_argument("role", choices=("gateway", *READY))
    parser.add_argument("address", type=_address, help="HOST:PORT; of a gateway, its HTTP address")
    parser.add_argument("--alive", action="store_true", help="ask only whether it runs, ready or not")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds to wait for the answer", metavar="SECONDS")
    asked = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        check(asked.role, *asked.address, alive=asked.alive, timeout_s=asked.timeout)
    except Unavailable as error:
        print("tandem-health:", error, file=sys.stderr)
        sys.exit(1)


def check(role: str, host: str, port: int, *, alive: bool, timeout_s: float) -> None:
    """Return when the program there is ready (`alive`: when it runs at all); raise Unavailable otherwise."""
    if role == "gateway":
        _check_http(host, port, "/live" if alive else "/ready", timeout_s)
    else:
        _check_grpc(f"{host}:{port}", "" if alive else READY[role], timeout_s)


def _check_http(host: str, port: int, path: str, timeout_s: float) -> None:
    connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"no answer: {error!r}") from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise Unavailable(f"{path} answers {status}")


def _check_grpc(address: str, service: str, timeout_s: float) -> None:
    with grpc.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        try:
            answer = HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=timeout_s)
        except grpc.RpcError as error:
            raise Unavailable(f"no answer: {error.code().name}") from None
    if answer.status != HealthCheckResponse.SERVING:
        raise Unavailable("not ready")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host:
        raise ValueError("no host")
    return host, int(port)


if __name__ == "__main__":
    main()
