"""docs/configuration.md says what the programs do."""

from pathlib import Path

from services.config.document import markdown
from services.config.sources import ROLES, variable

DOCUMENT = Path(__file__).parents[2] / "docs/configuration.md"


def test_the_document_is_the_table():
    assert DOCUMENT.read_text() == markdown(), "run `make docs`"


def test_every_setting_of_every_program_is_in_it():
    text = markdown()
    for role, kind in ROLES.items():
        assert f"## {role}\n" in text
        for name in kind.model_fields:
            assert f"| `{name}`<br>`{variable(role, name)}` |" in text
