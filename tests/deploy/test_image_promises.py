"""What the images promise; whether they keep it is seen when they are built."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROLES = ("gateway", "target", "drafter")


@pytest.fixture(scope="module")
def stages():
    """Name -> what a stage starts from and its instructions."""
    text = (ROOT / "deploy/Dockerfile").read_text()
    blocks = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    return {block.split()[2]: block for block in blocks}


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_its_program_as_a_user_who_is_not_root(stages, role):
    assert stages[role].startswith("runtime AS")
    assert "USER 10001:10001\n" in stages[role]
    assert f'CMD ["{role}"]\n' in stages[role]
    assert f"--from=build-{role} " in stages[role]


def test_versions_are_those_of_the_constraints_and_nothing_comes_from_a_system_package(stages):
    assert "PIP_CONSTRAINT=/src/constraints.txt" in stages["build"]
    assert all("apt" not in block for block in stages.values())


def test_the_gateway_brings_no_torch(stages):
    assert "pip install '.[gateway]'" in stages["build-gateway"]
    needed = {"gateway"}
    while more := {extra for name in needed for extra in extras(name)} - needed:
        needed |= more
    assert not any(line.startswith("torch") for name in needed for line in PROJECT["optional-dependencies"][name])


def extras(name):
    """The extras of this project that an extra of it includes."""
    included = (re.fullmatch(r"tandem-serve\[(.*)\]", line) for line in PROJECT["optional-dependencies"][name])
    return {extra for match in included if match for extra in match[1].split(",")}


def test_tags_are_the_version(services):
    kustomization = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text())
    tags = {image["name"]: image["newTag"] for image in kustomization["images"]}
    assert tags == {f"tandem-{role}": PROJECT["version"] for role in ROLES}
    assert {service["image"] for service in services.values()} == {
        f"tandem-{role}:${{TAG:-{PROJECT['version']}}}" for role in ROLES
    }
