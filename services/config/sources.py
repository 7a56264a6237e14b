"""Where settings come from: flags, then environment (`TANDEM_TARGET_CACHE_ROWS`), then a TOML file (`[target]`)."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from services.config.legal import legal_values
from services.config.settings import DrafterSettings, GatewaySettings, ServeSettings, Settings, TargetSettings
from services.errors import BadConfig

ROLES: Mapping[str, type[Settings]] = {
    "target": TargetSettings,
    "drafter": DrafterSettings,
    "gateway": GatewaySettings,
    "serve": ServeSettings,
}
# Read elsewhere: the cache folder of prepared models, and the file named here.
_OTHER_VARIABLES = {"TANDEM_CACHE", "TANDEM_CONFIG"}
# Kubernetes sets these in every pod beside a service that is called `tandem` or `tandem-...`.
_KUBERNETES = re.compile(r"TANDEM_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)")

S = TypeVar("S", bound=Settings)


def variable(role: str, name: str) -> str:
    return f"TANDEM_{role}_{name}".upper()


def role_of(kind: type[Settings]) -> str:
    return next(role for role, of in ROLES.items() if of is kind)


def load(kind: type[S], *, flags: Mapping[str, Any], file: Path | None = None) -> S:
    """Merge the sources of one program and check the result. `file` falls back to `TANDEM_CONFIG`."""
    role = role_of(kind)
    _refuse_unknown_variables()
    table = _table(file, role)

    class Sourced(kind, BaseSettings):  # type: ignore[misc, valid-type]
        model_config = SettingsConfigDict(env_prefix=variable(role, ""), env_ignore_empty=True)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, dict(table))

    try:
        return kind(**dict(Sourced(**flags)))
    except ValidationError as error:
        raise BadConfig("; ".join(_explain(kind, role, line) for line in error.errors())) from None


def _explain(kind: type[Settings], role: str, error: ErrorDetails) -> str:
    if not error["loc"]:
        return f"{role}: {error['ctx']['error']}"
    name = str(error["loc"][0])
    setting = f"{role}.{name}"
    if error["type"] == "extra_forbidden":
        return _unknown("setting", setting, [f"{role}.{field}" for field in kind.model_fields])
    legal = legal_values(kind.model_fields[name])
    if error["type"] == "missing":
        return f"{setting} is required: {legal}"
    return f"{setting} must be {legal}, not {error['input']!r}"


def _unknown(what: str, name: str, legal: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, sorted(legal), n=1, cutoff=0)
    return f"unknown {what} {name}; did you mean {nearest[0]}?"


def _refuse_unknown_variables() -> None:
    legal = {variable(role, name) for role, kind in ROLES.items() for name in kind.model_fields} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith("TANDEM_") and name not in legal and not _KUBERNETES.fullmatch(name):
            raise BadConfig(_unknown("environment variable", name, legal))


def _table(file: Path | None, role: str) -> Mapping[str, Any]:
    """The role's table in the file; other roles' tables may stand beside it."""
    path = file or (Path(named) if (named := os.environ.get("TANDEM_CONFIG")) else None)
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfig(f"config must be a readable TOML file, not {path}: {error}") from None
    for name, table in tables.items():
        if name not in ROLES:
            raise BadConfig(f"{path}: {_unknown('table', name, ROLES)}")
        if not isinstance(table, dict):
            raise BadConfig(f"{path}: {name} must be a table, [{name}]")
    found: Mapping[str, Any] = tables.get(role, {})
    return found
