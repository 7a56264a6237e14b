"""What the compose file promises, whoever edits it."""

import re

import pytest

from services.config import DrafterSettings, GatewaySettings, TargetSettings, load
from services.gateway.http import LAST_WORDS_S

PROGRAMS = {"gateway": GatewaySettings, "target": TargetSettings, "drafter": DrafterSettings}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def port(address):
    return address.rpartition(":")[2]


@pytest.fixture
def settings(services, monkeypatch):
    """Role -> the settings its program would have: a name or value it refuses fails here."""

    def of(role):
        with monkeypatch.context() as patch:
            for name, value in services[role]["environment"].items():
                patch.setenv(name, value)
            return load(PROGRAMS[role], flags={})

    return {role: of(role) for role in PROGRAMS}


def test_every_program_has_a_service(services):
    assert services.keys() == PROGRAMS.keys() | {"model"}


def test_nothing_waits_for_the_drafter(services):
    assert all("drafter" not in service.get("depends_on", {}) for service in services.values())
    assert services["drafter"]["depends_on"].keys() == {"model"}, "and it waits for what it reads alone"


def test_the_gateway_stops_before_its_target(services):
    assert "target" in services["gateway"]["depends_on"]


def test_nobody_can_write_but_to_volumes_and_a_temporary_folder(services):
    for service in services.values():
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged")
        assert all(volume.startswith(("models:", "taps:")) for volume in service.get("volumes", []))


def test_only_the_gateway_is_reachable_and_only_on_loopback(services):
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published.keys() == {"gateway"}
    assert all(entry.startswith("127.0.0.1:") for entry in published["gateway"])
    assert not any("network_mode" in service for service in services.values())


def test_programs_find_each_other(services, settings):
    assert settings["gateway"].target == f"target:{port(settings['target'].listen)}"
    assert settings["target"].drafter == f"drafter:{port(settings['drafter'].listen)}"
    inside = [entry.rpartition(":")[2] for entry in services["gateway"]["ports"]]
    assert inside == [port(settings["gateway"].listen), port(settings["gateway"].grpc_listen)]


@pytest.mark.parametrize("role", PROGRAMS)
def test_health_checks_ask_the_port_the_program_listens_on(role, services, settings):
    *_, command, asked, address = services[role]["healthcheck"]["test"]
    assert (command, asked, address) == ("tandem-health", role, f"127.0.0.1:{port(settings[role].listen)}")


@pytest.mark.parametrize("role", PROGRAMS)
def test_a_program_may_take_longer_to_stop_than_it_does(role, services, settings):
    last_words = LAST_WORDS_S if role == "gateway" else 0
    assert seconds(services[role]["stop_grace_period"]) > settings[role].grace_s + last_words


def test_the_model_is_prepared_once_where_the_target_looks_for_it(services):
    model, target = services["model"], services["target"]
    assert model["command"] == ["model", "prepare"]
    assert model["restart"] == "no"
    assert model["image"] == target["image"]
    assert set(model["volumes"]) <= set(target["volumes"])
    assert target["depends_on"] == {"model": {"condition": "service_completed_successfully"}}


def test_target_and_drafter_share_memory_for_two_tap_rings(services, volumes, settings):
    assert settings["target"].tap_dir == settings["drafter"].tap_dir
    for role in ("target", "drafter"):
        assert f"taps:{settings[role].tap_dir}" in services[role]["volumes"]
    options = volumes["taps"]["driver_opts"]
    assert options["type"] == "tmpfs"
    [size] = re.findall(r"size=(\d+)m\b", options["o"])
    assert int(size) * 2**20 > 2 * settings["target"].tap_bytes
    assert "uid=10001" in options["o"], "the images' user"
