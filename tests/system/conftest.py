import pytest

from tests.system.running import tandem


@pytest.fixture(scope="session")
def served(embedded_model):
    """One `tandem serve` for all tests that only ask."""
    with tandem(embedded_model) as running:
        yield running
