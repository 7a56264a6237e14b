"""Files of `deploy/`, read once."""

from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="session")
def services():
    """Name -> service of the compose file."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


@pytest.fixture(scope="session")
def volumes():
    """Name -> volume of the compose file."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["volumes"]


@pytest.fixture(scope="session")
def objects():
    """(kind, name) -> object of the Kustomize base, as its files have them."""
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    documents = [
        document
        for name in kustomization["resources"]
        for document in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())
    ]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}
