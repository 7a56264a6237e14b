"""What the Kustomize base promises, and that Kubernetes would take it."""

import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from services.config import DrafterSettings, GatewaySettings, TargetSettings, load
from services.gateway.http import LAST_WORDS_S
from services.wire.health import READY

BASE = Path(__file__).parents[2] / "deploy/kubernetes"
FILE = BASE / "tandem.toml"
LAST_VERSION = kubernetes_validate.latest_version()


@pytest.fixture
def pods(objects):
    return {name: thing["spec"]["template"]["spec"] for (kind, name), thing in objects.items() if kind == "Deployment"}


@pytest.fixture
def containers(pods):
    """Name -> container of both pods, the one that prepares the model too."""
    every = [pod.get("initContainers", []) + pod["containers"] for pod in pods.values()]
    return {container["name"]: container for pod in every for container in pod}


def port(address):
    return int(address.rpartition(":")[2])


def test_the_schemas_accept_every_object(objects):
    for document in objects.values():
        kubernetes_validate.validate(document, LAST_VERSION, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_it_renders_and_the_schemas_accept_what_comes_out(objects):
    done = subprocess.run(["kubectl", "kustomize", BASE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) == len(objects) + 1
    for document in rendered:
        kubernetes_validate.validate(document, LAST_VERSION, strict=True)


def test_programs_find_each_other(objects, containers):
    gateway, target, drafter = (
        load(kind, flags={}, file=FILE) for kind in (GatewaySettings, TargetSettings, DrafterSettings)
    )
    service = objects["Service", "tandem-target"]["spec"]
    assert gateway.target == f"tandem-target:{service['ports'][0]['port']}"
    assert target.drafter == drafter.listen, "they share a pod, and nobody else reaches the drafter"
    listening = [port(gateway.listen), port(gateway.grpc_listen), port(target.listen)]
    declared = containers["gateway"]["ports"] + containers["target"]["ports"]
    assert [entry["containerPort"] for entry in declared] == listening


def test_nothing_waits_for_the_drafter(objects, pods, containers):
    assert not {"readinessProbe", "startupProbe"} & containers["drafter"].keys()
    assert "drafter" not in {container["name"] for container in pods["tandem-target"]["initContainers"]}
    assert objects["Service", "tandem-target"]["spec"]["publishNotReadyAddresses"] is True


def test_a_target_is_ready_when_its_service_is_and_alive_while_it_loads(containers):
    target = containers["target"]
    assert target["readinessProbe"]["grpc"]["service"] == READY["target"]
    assert target["livenessProbe"]["grpc"].keys() == target["startupProbe"]["grpc"].keys() == {"port"}


def test_pods_may_take_longer_to_stop_than_they_do(pods, containers):
    hold = int(containers["gateway"]["lifecycle"]["preStop"]["exec"]["command"][1])
    gateway, target = (load(kind, flags={}, file=FILE).grace_s for kind in (GatewaySettings, TargetSettings))
    assert pods["tandem-gateway"]["terminationGracePeriodSeconds"] > hold + gateway + LAST_WORDS_S
    assert pods["tandem-target"]["terminationGracePeriodSeconds"] > target


def test_containers_are_locked(pods, containers):
    for pod in pods.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers.values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_target_and_drafter_share_memory_for_two_tap_rings(pods, containers):
    target, drafter = (load(kind, flags={}, file=FILE) for kind in (TargetSettings, DrafterSettings))
    assert target.tap_dir == drafter.tap_dir
    for name in ("target", "drafter"):
        assert {"name": "taps", "mountPath": str(target.tap_dir)} in containers[name]["volumeMounts"]
    [taps] = [volume["emptyDir"] for volume in pods["tandem-target"]["volumes"] if volume["name"] == "taps"]
    assert taps["medium"] == "Memory"
    assert int(taps["sizeLimit"].removesuffix("Mi")) * 2**20 > 2 * target.tap_bytes
