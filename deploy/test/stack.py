"""The compose file under a project name of its own, on free ports, with the memory that Kubernetes would give."""

import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from images import docker

DEPLOY = Path(__file__).parents[1]
SERVICES = ("gateway", "target", "drafter")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def memory_limits() -> dict[str, str]:
    """Name -> memory limit of the containers in the Kubernetes base, which have the names of the services here."""
    found = {}
    for name in ("gateway", "target"):
        for document in yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text()):
            if document["kind"] == "Deployment":
                pod = document["spec"]["template"]["spec"]
                for container in pod.get("initContainers", []) + pod["containers"]:
                    found[container["name"]] = container["resources"]["limits"]["memory"].removesuffix("i")
    return found


@dataclass
class Stack:
    """`wheels` takes the place of the package index from which the model would come."""

    project: str
    tag: str
    wheels: Path

    def __post_init__(self) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        self.command = os.environ.get("COMPOSE", "docker-compose").split()
        self.override = self.wheels.parent / "compose.test.yaml"
        services = {name: {"mem_limit": limit} for name, limit in memory_limits().items()}
        services["model"] |= {"volumes": [f"{self.wheels}:/wheels:ro"], "environment": {"PIP_FIND_LINKS": "/wheels"}}
        self.override.write_text(json.dumps({"services": services}))

    def compose(self, *arguments: str) -> str:
        files = [f"--file={DEPLOY / 'compose.yaml'}", f"--file={self.override}", f"--project-name={self.project}"]
        environment = {"TAG": self.tag, "PORT": str(self.port), "GRPC_PORT": str(self.grpc_port)}
        done = subprocess.run(
            [*self.command, *files, *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise AssertionError(f"compose {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout.strip()

    def container(self, service: str) -> str:
        labels = [f"label=com.docker.compose.project={self.project}", f"label=com.docker.compose.service={service}"]
        return docker("ps", "--all", "--quiet", *(f"--filter={label}" for label in labels))

    def state(self, service: str) -> dict:
        return json.loads(docker("inspect", "--format={{json .State}}", self.container(service)))

    def memory(self) -> str:
        """What each program's container uses of what it may."""
        uses = [docker("stats", "--no-stream", "--format={{.MemUsage}}", self.container(name)) for name in SERVICES]
        return "; ".join(f"{name} {use}" for name, use in zip(SERVICES, uses, strict=True))

    def until_healthy(self, *services: str, within_s: float = 600) -> None:
        """Until the health checks of the compose file say so."""
        deadline = time.monotonic() + within_s
        while waiting := [name for name in services if self.state(name)["Health"]["Status"] != "healthy"]:
            dead = [name for name in waiting if self.state(name)["Status"] not in ("running", "restarting")]
            if dead or time.monotonic() > deadline:
                raise AssertionError(f"never healthy: {waiting}\n{self.compose('logs', '--tail=30', *waiting)}")
            time.sleep(1)

    def remains(self) -> list[str]:
        """Containers, networks and volumes of this project."""
        label = f"--filter=label=com.docker.compose.project={self.project}"
        kinds = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        return [name for kind in kinds for name in docker(*kind, "--quiet", label).split()]
